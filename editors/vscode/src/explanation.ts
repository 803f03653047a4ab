/** Runs `midtoken explain` at the cursor and shows its page in a terminal, since colours separate the tokens. */

import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { EventEmitter, type Pseudoterminal, type TerminalDimensions, type TextEditor, window } from "vscode";

import type { Command } from "./command.ts";
import { formatCursor } from "./cursor.ts";

const DEFAULT_COLUMNS = 100;

/** Opens a terminal with the explanation. The text of the editor counts, saved or not. */
export function showExplanation(editor: TextEditor, command: Command, serverArguments: readonly string[]): void {
  const { document, selection } = editor;
  const { line, character } = selection.active;
  const file = basename(document.fileName) || "untitled";
  const cursor = formatCursor(file, line, document.lineAt(line).text, character);
  const text = document.getText();
  const explain = [...command.firstArguments, "explain", cursor, ...serverArguments];
  const pty = new ExplanationTerminal(async (columns, write, signal) => {
    const folder = await mkdtemp(join(tmpdir(), "midtoken-")); // readable by this user only
    try {
      await writeFile(join(folder, file), text);
      await run(command.program, explain, folder, columns, write, signal);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
  window.createTerminal({ name: `midtoken: ${file}`, pty }).show();
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

function run(
  program: string,
  programArguments: readonly string[],
  folder: string,
  columns: number,
  write: (text: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const environment = { ...process.env, COLUMNS: String(columns), FORCE_COLOR: "1", TERM: "xterm-256color" };
  const child = spawn(program, programArguments, { cwd: folder, env: environment, signal });
  child.stdout.setEncoding("utf8").on("data", write);
  child.stderr.setEncoding("utf8").on("data", write);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", () => {
      resolve();
    });
  });
}
