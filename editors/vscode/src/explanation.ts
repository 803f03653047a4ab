/** Runs `midtoken explain` at the cursor and shows its page in a terminal, since colours separate the tokens. */

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { homedir } from "node:os";
import { basename } from "node:path";
import { EventEmitter, type Pseudoterminal, type TerminalDimensions, type TextEditor, window, workspace } from "vscode";

import type { Command } from "./command.ts";
import { formatCursor } from "./cursor.ts";

const DEFAULT_COLUMNS = 100;

/** Opens a terminal with the explanation. The text of the editor counts, saved or not, and the rules for its file. */
export function showExplanation(editor: TextEditor, command: Command, moreArguments: readonly string[]): void {
  const { document, selection } = editor;
  const { line, character } = selection.active;
  const cursor = formatCursor(document.fileName, line, document.lineAt(line).text, character);
  const explain = [...command.firstArguments, "explain", cursor, "--stdin", ...moreArguments];
  const folder = workspace.getWorkspaceFolder(document.uri) ?? workspace.workspaceFolders?.[0];
  const pty = new ExplanationTerminal((columns, write, signal) => {
    const environment = { ...process.env, COLUMNS: String(columns), FORCE_COLOR: "1", TERM: "xterm-256color" };
    const options = { cwd: folder?.uri.fsPath ?? homedir(), env: environment, signal };
    return run(spawn(command.program, explain, options), document.getText(), write);
  });
  window.createTerminal({ name: `midtoken: ${basename(document.fileName)}`, pty }).show();
}

type Job = (columns: number, write: (text: string) => void, signal: AbortSignal) => Promise<void>;

/** A terminal that shows what a job writes. Closing it ends the job. */
class ExplanationTerminal implements Pseudoterminal {
  readonly #written = new EventEmitter<string>();
  readonly #ending = new AbortController();
  readonly #job: Job;
  readonly onDidWrite = this.#written.event;

  constructor(job: Job) {
    this.#job = job;
  }

  open(dimensions: TerminalDimensions | undefined): void {
    const write = (text: string): void => {
      this.#written.fire(text.replaceAll("\n", "\r\n"));
    };
    this.#job(dimensions?.columns ?? DEFAULT_COLUMNS, write, this.#ending.signal).catch((error: unknown) => {
      write(`midtoken: ${error instanceof Error ? error.message : String(error)}\n`);
    });
  }

  close(): void {
    this.#ending.abort();
    this.#written.dispose();
  }
}

function run(child: ChildProcessWithoutNullStreams, input: string, write: (text: string) => void): Promise<void> {
  child.stdin.on("error", () => undefined); // it may end before it has read all
  child.stdin.end(input);
  child.stdout.setEncoding("utf8").on("data", write);
  child.stderr.setEncoding("utf8").on("data", write);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", () => {
      resolve();
    });
  });
}
