/** Runs `midtoken lsp` and follows its state. */

import { commands, type LogOutputChannel, NotebookCellKind, type TextEditor, window } from "vscode";
import {
  type Executable,
  LanguageClient,
  type LanguageClientOptions,
  MessageType,
  RevealOutputChannelOn,
  ShowMessageNotification,
  type ShowMessageParams,
  State,
  WorkDoneProgressCancelNotification,
} from "vscode-languageclient/node";

import type { Command } from "./command.ts";
import { DownloadNotification } from "./downloadNotification.ts";
import { SECTION } from "./settings.ts";
import { SCHEMES, type ServerState, StateTracker, type ToldStatus } from "./status.ts";

/** How to start the language server, and for which languages. */
export interface Launch {
  readonly command: Command;
  readonly serverArguments: readonly string[];
  readonly languages: readonly string[] | undefined; // undefined: all
}

/** The one language server of a window. */
export class LanguageServer {
  readonly #log: LogOutputChannel;
  readonly #readSettings: () => Record<string, unknown>;
  readonly #onChange: () => void;
  readonly #tracker = new StateTracker();
  readonly #download = new DownloadNotification((token) => {
    void this.#client?.sendNotification(WorkDoneProgressCancelNotification.type, { token });
  });
  #client: LanguageClient | undefined;
  #unanswered: string | undefined; // the document of the last request, if that got no answer

  /** `onChange` is called when `state` may have changed. */
  constructor(log: LogOutputChannel, readSettings: () => Record<string, unknown>, onChange: () => void) {
    this.#log = log;
    this.#readSettings = readSettings;
    this.#onChange = onChange;
  }

  /** Returns the state for a document, by its URI; undefined if none is open. */
  findState(uri: string | undefined): ServerState {
    return this.#tracker.findState(uri);
  }

  /** Returns why nothing of a document is sent; undefined if nothing is known of it. */
  findExclusion(uri: string): string | undefined {
    return this.#tracker.findExclusion(uri);
  }

  /** Shows an error in the state. The caller has told the user. */
  fail(why: string): void {
    this.#tracker.fails(why);
    this.#onChange();
  }

  /** Stops the language server that runs, and starts one. Never rejects: the client shows errors. */
  async start(launch: Launch): Promise<void> {
    await this.stop();
    const client = this.#build(launch);
    this.#client = client;
    try {
      await client.start();
    } catch (error) {
      this.fail(`the language server could not be started: ${describeError(error)}`);
    }
  }

  /** Stops the language server. Does nothing if none runs. Never rejects. */
  async stop(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    this.#download.end();
    try {
      if (client?.state === State.Starting) {
        await client.start(); // waits for the start, before which the client cannot be stopped
      }
      if (client?.isRunning() === true) {
        await client.dispose();
      }
    } catch (error) {
      this.#log.warn(`the language server did not stop properly: ${describeError(error)}`);
    }
    this.#tracker.clientEnds();
    this.#onChange();
  }

  /** Tells the language server where the cursor is, so that it has the text around it read before the next key. */
  async tellCursor({ document, selection }: TextEditor): Promise<void> {
    if (this.#client?.isRunning() === true) {
      const convert = this.#client.code2ProtocolConverter;
      const params = { textDocument: { uri: convert.asUri(document.uri) }, range: convert.asRange(selection) };
      await this.#client.sendNotification("$/midtoken/cursor", params);
    }
  }

  #build({ command, serverArguments, languages }: Launch): LanguageClient {
    const executable: Executable = {
      command: command.program,
      args: [...command.firstArguments, "lsp", ...serverArguments],
    };
    const client = new LanguageClient(SECTION, "midtoken", executable, this.#buildOptions(languages));
    client.onDidChangeState(({ newState }) => {
      this.#follow(client, newState);
    });
    client.onNotification(ShowMessageNotification.type, (params) => {
      this.#show(params);
    });
    client.onNotification("$/midtoken/status", (status: ToldStatus) => {
      this.#tracker.told(status);
      this.#onChange();
      if (status.state === "ready") {
        void this.#askAgain();
      }
    });
    return client;
  }

  #buildOptions(languages: Launch["languages"]): LanguageClientOptions {
    return {
      documentSelector: SCHEMES.flatMap(
        (scheme) => languages?.map((language) => ({ language, scheme })) ?? [{ scheme }],
      ),
      notebookDocumentOptions: {
        filterCells: (_, cells) =>
          cells.filter(
            ({ kind, document }) =>
              kind === NotebookCellKind.Code && languages?.includes(document.languageId) !== false,
          ),
      },
      outputChannel: this.#log,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      middleware: {
        workspace: {
          configuration: ({ items }) => items.map(({ section }) => (section === SECTION ? this.#readSettings() : null)),
        },
        handleWorkDoneProgress: (progressToken, progress, next) => {
          if (!this.#download.follow(progressToken, progress)) {
            next(progressToken, progress);
          }
        },
        provideInlineCompletionItems: async (document, position, context, token, next) => {
          const items = await next(document, position, context, token);
          this.#unanswered = items === null || items === undefined ? document.uri.toString() : undefined;
          return items;
        },
      },
    };
  }

  #follow(client: LanguageClient, state: State): void {
    if (client !== this.#client) {
      return; // it was stopped on purpose
    }
    if (state === State.Starting) {
      this.#tracker.clientStarts();
    } else if (state === State.Running) {
      this.#tracker.clientRuns();
    } else {
      this.#download.end();
      this.#tracker.clientEnds("the language server has ended; the log says more");
    }
    this.#onChange();
  }

  /** Lets VS Code request a suggestion for the text that was typed before the server was ready. */
  async #askAgain(): Promise<void> {
    if (this.#unanswered !== undefined && this.#unanswered === window.activeTextEditor?.document.uri.toString()) {
      this.#unanswered = undefined;
      await commands.executeCommand("editor.action.inlineSuggest.trigger");
    }
  }

  /** Shows a message, which is no state: it may be about one document or setting. */
  #show({ type, message }: ShowMessageParams): void {
    if (type === MessageType.Error) {
      void this.#showError(message);
    } else {
      void window.showInformationMessage(message);
    }
  }

  async #showError(message: string): Promise<void> {
    const showLog = "Show Log";
    if ((await window.showErrorMessage(message, showLog)) === showLog) {
      this.#log.show();
    }
  }
}

function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
