/** Draws the status in VS Code's status bar. */

import { type Disposable, StatusBarAlignment, type StatusBarItem, ThemeColor, window } from "vscode";

import type { StatusText } from "./status.ts";

/** The item in the status bar. A click shows the log. */
export class StatusItem implements Disposable {
  readonly #item: StatusBarItem = window.createStatusBarItem("midtoken.status", StatusBarAlignment.Right);

  constructor() {
    this.#item.name = "midtoken";
    this.#item.command = "midtoken.showLog";
  }

  /** Shows a status, or hides the item. */
  show(status: StatusText | undefined): void {
    if (status === undefined) {
      this.#item.hide();
      return;
    }
    this.#item.text = status.text;
    this.#item.tooltip = status.tooltip;
    this.#item.accessibilityInformation = { label: status.tooltip };
    this.#item.backgroundColor = status.isError ? new ThemeColor("statusBarItem.errorBackground") : undefined;
    this.#item.show();
  }

  dispose(): void {
    this.#item.dispose();
  }
}
