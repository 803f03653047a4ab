/** The entry point: connects VS Code's events and commands to the language server and the status item. */

import { isDeepStrictEqual } from "node:util";
import {
  commands,
  ConfigurationTarget,
  type ExtensionContext,
  type LogOutputChannel,
  type TextDocument,
  window,
  workspace,
} from "vscode";

import { findCommand } from "./command.ts";
import { showExplanation } from "./explanation.ts";
import { LanguageServer, type Launch } from "./languageServer.ts";
import { SelectedEnvironment } from "./selectedEnvironment.ts";
import {
  buildRuleArguments,
  type Levels,
  readCommand,
  readEnabled,
  readLanguages,
  readServerArguments,
  type ReadValue,
  SECTION,
  selectLanguageServerSettings,
} from "./settings.ts";
import { describe, findOffReason } from "./status.ts";
import { StatusItem } from "./statusItem.ts";

const read: ReadValue = (name) => workspace.getConfiguration(SECTION).get(name);
const readForLanguageServer = () =>
  selectLanguageServerSettings(workspace.getConfiguration().get<Record<string, unknown>>(SECTION) ?? {}, inspect);

function inspect(name: string): Levels {
  const found = workspace.getConfiguration(SECTION, null).inspect(name);
  const folders = (workspace.workspaceFolders ?? []).map(({ uri }) => workspace.getConfiguration(SECTION, uri));
  const inFolders = folders.map((folder) => folder.inspect(name)?.workspaceFolderValue);
  return { user: found?.globalValue ?? found?.defaultValue, workspace: [found?.workspaceValue, ...inFolders] };
}

let extension: Extension | undefined;

/** VS Code calls this once, after start-up. */
export async function activate(context: ExtensionContext): Promise<void> {
  const log = window.createOutputChannel("midtoken", { log: true });
  extension = new Extension(log);
  context.subscriptions.push(log, ...extension.connect());
  await extension.update();
}

/** VS Code calls this before the window closes, and waits a few seconds. */
export async function deactivate(): Promise<void> {
  await extension?.stop();
}

class Extension {
  readonly #log: LogOutputChannel;
  readonly #status = new StatusItem();
  readonly #environment: SelectedEnvironment;
  readonly #server: LanguageServer;
  #languages: readonly string[] | undefined; // undefined: those that the model knows
  #launch: Launch | undefined; // of the language server that runs
  #shownError: string | undefined;
  #lastTask: Promise<void> = Promise.resolve();

  constructor(log: LogOutputChannel) {
    this.#log = log;
    this.#environment = new SelectedEnvironment(() => void this.update());
    this.#server = new LanguageServer(log, readForLanguageServer, () => {
      this.#draw();
    });
  }

  /** Registers commands and listeners, and returns what must be disposed of at the end. */
  connect(): { dispose(): unknown }[] {
    return [
      this.#status,
      this.#environment,
      commands.registerCommand("midtoken.toggle", () => toggle()),
      commands.registerCommand("midtoken.explain", () => this.#explain()),
      commands.registerCommand("midtoken.restart", () => this.#restart()),
      commands.registerCommand("midtoken.showLog", () => {
        this.#log.show();
      }),
      workspace.onDidOpenTextDocument(() => void this.update()),
      workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration(SECTION) || event.affectsConfiguration("editor.inlineSuggest")) {
          void this.update();
        }
      }),
      window.onDidChangeActiveTextEditor(() => {
        this.#draw();
        this.#tellCursor();
      }),
      window.onDidChangeTextEditorSelection(() => {
        this.#tellCursor();
      }),
    ];
  }

  /** Brings the language server in step with the settings and the open files. Never rejects: errors are shown. */
  update(): Promise<void> {
    this.#lastTask = this.#lastTask.then(async () => {
      try {
        await this.#update();
        this.#shownError = undefined;
      } catch (error) {
        this.#report(error);
      }
      this.#draw();
    });
    return this.#lastTask;
  }

  /** Stops the language server. */
  async stop(): Promise<void> {
    await this.#server.stop();
  }

  async #update(): Promise<void> {
    this.#languages = readLanguages(inspect);
    const isNeeded = workspace.textDocuments.some((document) => this.#findOffReason(document) === undefined);
    if (!isNeeded && this.#launch === undefined) {
      return;
    }
    const launch = await this.#buildLaunch();
    if (isDeepStrictEqual(launch, this.#launch)) {
      return;
    }
    if (isNeeded) {
      this.#launch = launch;
      await this.#server.start(launch);
      this.#tellCursor();
    } else {
      this.#launch = undefined;
      await this.#server.stop();
    }
  }

  /** Throws SettingError and CommandNotFoundError. */
  async #buildLaunch(): Promise<Launch> {
    const command = findCommand({
      setting: readCommand(read),
      pythonEnvironment: await this.#environment.find(),
      workspaceFolders: (workspace.workspaceFolders ?? []).map(({ uri }) => uri.fsPath),
      searchPath: process.env.PATH ?? "",
    });
    return { command, serverArguments: readServerArguments(read), languages: this.#languages };
  }

  async #restart(): Promise<void> {
    this.#launch = undefined;
    await this.#server.stop();
    await this.update();
  }

  async #explain(): Promise<void> {
    const editor = window.activeTextEditor;
    if (editor === undefined) {
      return;
    }
    const { document } = editor;
    const unknown = document.isUntitled ? this.#findOffReason(document) : undefined; // only the server has its rules
    const refusal = this.#server.findExclusion(document.uri.toString()) ?? unknown;
    if (refusal !== undefined) {
      void window.showWarningMessage(`midtoken: ${refusal}.`);
      return;
    }
    try {
      const { command, serverArguments } = await this.#buildLaunch();
      showExplanation(editor, command, [...buildRuleArguments(readForLanguageServer()), ...serverArguments]);
    } catch (error) {
      this.#shownError = undefined; // the user asked, so the answer is shown again
      this.#report(error);
    }
  }

  /** Shows why the language server cannot be started. The same error is shown once. */
  #report(error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    this.#server.fail(message);
    if (this.#shownError !== message) {
      this.#shownError = message;
      this.#log.error(message);
      void askForSettings(message);
    }
  }

  #findOffReason({ uri, languageId }: TextDocument): string | undefined {
    const inlineSuggestEnabled = workspace.getConfiguration("editor").get("inlineSuggest.enabled") !== false;
    const switches = { enabled: readEnabled(inspect), languages: this.#languages, inlineSuggestEnabled };
    return findOffReason({ scheme: uri.scheme, languageId }, switches);
  }

  #tellCursor(): void {
    if (window.activeTextEditor !== undefined) {
      void this.#server.tellCursor(window.activeTextEditor);
    }
  }

  #draw(): void {
    const document = window.activeTextEditor?.document;
    this.#status.show(
      describe(this.#server.findState(document?.uri.toString()), document && this.#findOffReason(document)),
    );
  }
}

async function askForSettings(message: string): Promise<void> {
  const openSettings = "Open Settings";
  if ((await window.showErrorMessage(`midtoken: ${message}.`, openSettings)) === openSettings) {
    await commands.executeCommand("workbench.action.openSettings", "@ext:midtoken.midtoken");
  }
}

/**
 * Switches suggestions off or on by the setting `enabled`: in the workspace if it is set there, otherwise for the user.
 * To switch them on, it is also changed for the user, because a workspace can only restrict what the user allows.
 */
async function toggle(): Promise<void> {
  const isOn = !readEnabled(inspect);
  const configuration = workspace.getConfiguration(SECTION);
  const isSetInWorkspace = configuration.inspect("enabled")?.workspaceValue !== undefined;
  if (isSetInWorkspace) {
    await configuration.update("enabled", isOn, ConfigurationTarget.Workspace);
  }
  if (isOn || !isSetInWorkspace) {
    await configuration.update("enabled", isOn, ConfigurationTarget.Global);
  }
}
