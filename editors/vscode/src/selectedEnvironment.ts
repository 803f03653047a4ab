/** The environment that is selected in the Python extension. */

import { PythonExtension } from "@vscode/python-extension";
import { type Disposable, extensions, workspace } from "vscode";

/** Asks the Python extension, if it is installed, and listens to it after the first question. */
export class SelectedEnvironment implements Disposable {
  readonly #onChange: () => void;
  #listener: Disposable | undefined;

  /** `onChange` is called when another environment is selected. */
  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /** Returns the interpreter or the folder of the first workspace folder's environment. Never rejects. */
  async find(): Promise<string | undefined> {
    if (extensions.getExtension("ms-python.python") === undefined) {
      return undefined;
    }
    try {
      const { environments } = await PythonExtension.api();
      this.#listener ??= environments.onDidChangeActiveEnvironmentPath(this.#onChange);
      return environments.getActiveEnvironmentPath(workspace.workspaceFolders?.[0]?.uri).path;
    } catch {
      return undefined; // the extension is disabled, or could not be activated
    }
  }

  dispose(): void {
    this.#listener?.dispose();
  }
}
