/** The page: connects the editor, the pictures and the status. */

import { askForGhostText, connectEditor, createEditor, readAroundCursor, showText } from "./editor.ts";
import { element, find } from "./elements.ts";
import { EXAMPLES, placeCursor } from "./examples.ts";
import { LanguageClient } from "./languageClient.ts";
import type { Message } from "./messages.ts";
import { showTime } from "./numbers.ts";
import { LikelyGhost } from "./panels/likely.ts";
import { drawPaths } from "./panels/paths.ts";
import { NUM_STRATEGIES, Strategies } from "./panels/strategies.ts";
import { drawTokens } from "./panels/tokens.ts";
import { Questions } from "./questions.ts";
import { decideStatus, describeClose, type Situation } from "./status.ts";
import "./style.css";

const NUM_PARTS = 1 + NUM_STRATEGIES; // tree, strategies

const RETRY_MS = 5000;

const first = placeCursor(EXAMPLES[0]?.marked ?? "");
const editor = createEditor(find("editor"), first.text);
const pictureSocket = openSocket("healing");
const editorSocket = openSocket("lsp");
const questions = new Questions(
  {
    send: (text) => {
      pictureSocket.send(text);
    },
    get isOpen() {
      return pictureSocket.readyState === WebSocket.OPEN;
    },
  },
  () => readAroundCursor(editor),
);
const strategies = new Strategies();
const ghost = new LikelyGhost();
let situation: Situation = { isConnected: false };
let retryTimer: ReturnType<typeof setTimeout> | undefined; // after a failure
let numParts = 0; // of the answer to the newest question

function setSituation(changes: Partial<Situation>): void {
  situation = { ...situation, ...changes };
  const { tone, text, canRetry } = decideStatus(situation);
  find("status").dataset.tone = tone;
  find("status-text").textContent = text;
  find("retry").hidden = !canRetry;
}

function openSocket(name: string): WebSocket {
  const address = new URL(name, document.baseURI);
  address.protocol = "ws:";
  const socket = new WebSocket(address);
  socket.addEventListener("close", ({ reason }) => {
    setSituation({ closed: describeClose(reason) });
  });
  return socket;
}

function ask(): void {
  clearTimeout(retryTimer);
  questions.askSoon();
  numParts = 0;
  find("pictures").classList.add("stale");
  delete document.body.dataset.answered;
}

function show(message: Message): void {
  switch (message.kind) {
    case "failure":
      setSituation({ failure: message.text });
      retryTimer = setTimeout(ask, RETRY_MS);
      break;
    case "healing":
      if (situation.failure !== undefined) {
        askForGhostText(editor);
      }
      setSituation({ failure: undefined });
      find("pictures").classList.remove("stale");
      drawTokens(message);
      drawPaths(message);
      strategies.begin(message.typed);
      ghost.begin(message.typed);
      break;
    case "strategy":
      strategies.add(message);
      ghost.add(message);
      break;
  }
  numParts += 1;
  if (numParts === NUM_PARTS) {
    document.body.dataset.answered = message.number.toString(); // all that is to come for this text has come
  }
}

function addExamples(): void {
  for (const { name, title, marked } of EXAMPLES) {
    const button = element("button", "", name);
    button.title = title;
    button.addEventListener("click", () => {
      const { text, cursor } = placeCursor(marked);
      showText(editor, text, cursor);
      askForGhostText(editor);
    });
    find("examples").append(button);
  }
}

async function startLanguageClient(): Promise<void> {
  const client = await LanguageClient.start(editorSocket, {
    onState: ({ uri, state, message }) => {
      const error = state === "off" || state === "error" ? message : undefined;
      setSituation(uri === null ? { editorError: error } : { documentError: error });
    },
    onAnswer: (tookMs, hasText) => {
      find("ghost-time").textContent = hasText ? `The ghost text took ${showTime(tookMs)}.` : "No ghost text here.";
    },
  });
  connectEditor(editor, client);
  setSituation({ isConnected: true });
  askForGhostText(editor);
}

// Monaco cancels timers of its own at each key, and nobody catches what they throw.
addEventListener("unhandledrejection", (event) => {
  if (event.reason instanceof Error && event.reason.name === "Canceled") {
    event.preventDefault();
  }
});
addExamples();
showText(editor, first.text, first.cursor);
editor.onDidChangeCursorPosition(ask);
editor.onDidChangeModelContent(ask);
find("retry").addEventListener("click", () => {
  setSituation({ failure: undefined, editorError: undefined, documentError: undefined });
  ask();
  askForGhostText(editor);
});
pictureSocket.addEventListener("open", ask);
pictureSocket.addEventListener("message", ({ data }: MessageEvent<string>) => {
  const message = questions.accept(data);
  if (message !== undefined) {
    show(message);
  }
});
editorSocket.addEventListener("open", () => {
  startLanguageClient().catch((error: unknown) => {
    setSituation({ closed: `The editor could not be connected: ${String(error)}` });
  });
});
