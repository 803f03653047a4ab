/** The code editor: Monaco with the parts that the page uses, and ghost text from the language server. */

import * as monaco from "monaco-editor/editor.js";
import "monaco-editor/features/bracketMatching/register.js";
import "monaco-editor/features/caretOperations/register.js";
import "monaco-editor/features/clipboard/register.js";
import "monaco-editor/features/codicon/register.js";
import "monaco-editor/features/comment/register.js";
import "monaco-editor/features/contextmenu/register.js";
import "monaco-editor/features/cursorUndo/register.js";
import "monaco-editor/features/find/register.js";
import "monaco-editor/features/hover/register.js";
import "monaco-editor/features/indentation/register.js";
import "monaco-editor/features/inlineCompletions/register.js";
import "monaco-editor/features/linesOperations/register.js";
import "monaco-editor/features/multicursor/register.js";
import "monaco-editor/features/smartSelect/register.js";
import "monaco-editor/features/toggleTabFocusMode/register.js";
import "monaco-editor/features/unicodeHighlighter/register.js";
import "monaco-editor/features/wordOperations/register.js";
import "monaco-editor/languages/definitions/python/register.js";
import { InlineCompletionTriggerKind, type Range } from "vscode-languageserver-protocol/browser";
import type { LanguageClient } from "./languageClient.ts";
import type { TextAroundCursor } from "./questions.ts";
import { COLORS, type Scheme } from "./colors.ts";

// As much text as a model reads; the playground takes no more than 4 MB.
const NUM_LINES_BEFORE = 1000;
const NUM_LINES_AFTER = 200;

export type Editor = monaco.editor.IStandaloneCodeEditor;

self.MonacoEnvironment = {
  getWorker: () => new Worker(new URL("editor.worker.js", document.baseURI), { type: "module" }),
};

/** Returns an editor in the element, in light or dark as the system is. */
export function createEditor(parent: HTMLElement, text: string): Editor {
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  defineTheme("light", "vs");
  defineTheme("dark", "vs-dark");
  darkness.addEventListener("change", () => {
    monaco.editor.setTheme(darkness.matches ? "dark" : "light");
  });
  const model = monaco.editor.createModel(text, "python");
  model.setEOL(monaco.editor.EndOfLineSequence.LF);
  return monaco.editor.create(parent, {
    model,
    theme: darkness.matches ? "dark" : "light",
    ariaLabel: "Code",
    automaticLayout: true,
    fontFamily: "ui-monospace, 'SF Mono', SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
    fontSize: 14,
    lineHeight: 22,
    minimap: { enabled: false },
    padding: { top: 14, bottom: 14 },
    lineNumbersMinChars: 3,
    folding: false,
    glyphMargin: false,
    scrollBeyondLastLine: false,
    renderLineHighlight: "line",
    renderControlCharacters: true,
    overviewRulerLanes: 0,
    quickSuggestions: false,
    suggestOnTriggerCharacters: false,
    wordBasedSuggestions: "off",
    inlineSuggest: { enabled: true, syntaxHighlightingEnabled: false },
    scrollbar: { alwaysConsumeMouseWheel: false },
  });
}

/** Draws ghost text from the language server, and tells it of each change. */
export function connectEditor(editor: Editor, client: LanguageClient): void {
  client.open(editor.getValue());
  editor.getModel()?.onDidChangeContent(({ changes }) => {
    client.change(changes.map(({ range, text }) => ({ range: toLspRange(range), text })));
  });
  monaco.languages.registerInlineCompletionsProvider("python", {
    provideInlineCompletions: async (_model, position, context, token) => {
      const items = await client.suggest(
        { line: position.lineNumber - 1, character: position.column - 1 },
        context.triggerKind === monaco.languages.InlineCompletionTriggerKind.Explicit
          ? InlineCompletionTriggerKind.Invoked
          : InlineCompletionTriggerKind.Automatic,
        () => token.isCancellationRequested,
      );
      return { items: items.map(({ insertText, range }) => toMonacoItem(insertText, range)) };
    },
    disposeInlineCompletions: () => undefined,
  });
}

/** Replaces the whole text, and puts the cursor at an offset. */
export function showText(editor: Editor, text: string, offset: number): void {
  const model = editor.getModel();
  if (model === null) {
    return;
  }
  editor.executeEdits("example", [{ range: model.getFullModelRange(), text, forceMoveMarkers: true }]);
  editor.setPosition(model.getPositionAt(offset));
  editor.focus();
}

/** Shows ghost text at the cursor, if there is any, without a key. */
export function askForGhostText(editor: Editor): void {
  const asking = editor.getAction("editor.action.inlineSuggest.trigger")?.run();
  asking?.catch(() => undefined); // the next key cancels it
}

/** Returns the text around the cursor. */
export function readAroundCursor(editor: Editor): TextAroundCursor {
  const model = editor.getModel();
  const cursor = editor.getPosition();
  if (model === null || cursor === null) {
    return { prefix: "", suffix: "" };
  }
  const first = Math.max(1, cursor.lineNumber - NUM_LINES_BEFORE);
  const last = Math.min(model.getLineCount(), cursor.lineNumber + NUM_LINES_AFTER);
  return {
    prefix: model.getValueInRange(monaco.Range.fromPositions({ lineNumber: first, column: 1 }, cursor)),
    suffix: model.getValueInRange(
      monaco.Range.fromPositions(cursor, { lineNumber: last, column: model.getLineMaxColumn(last) }),
    ),
  };
}

function toMonacoItem(
  insertText: string | { value: string },
  range: Range | undefined,
): monaco.languages.InlineCompletion {
  const text = typeof insertText === "string" ? insertText : insertText.value;
  return range === undefined ? { insertText: text } : { insertText: text, range: toMonacoRange(range) };
}

function toMonacoRange({ start, end }: Range): monaco.IRange {
  return new monaco.Range(start.line + 1, start.character + 1, end.line + 1, end.character + 1);
}

function toLspRange(range: monaco.IRange): Range {
  return {
    start: { line: range.startLineNumber - 1, character: range.startColumn - 1 },
    end: { line: range.endLineNumber - 1, character: range.endColumn - 1 },
  };
}

function defineTheme(scheme: Scheme, base: "vs" | "vs-dark"): void {
  monaco.editor.defineTheme(scheme, { base, inherit: true, rules: [], colors: COLORS[scheme] });
}
