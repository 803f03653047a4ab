/** Shows the download of a model as a notification, which can cancel it. The client's own progress cannot. */

import { type Progress, ProgressLocation, window } from "vscode";
import type {
  ProgressToken,
  WorkDoneProgressBegin,
  WorkDoneProgressEnd,
  WorkDoneProgressReport,
} from "vscode-languageclient/node";

interface Download {
  readonly token: ProgressToken;
  readonly end: () => void;
  readonly progress: Progress<{ message?: string; increment?: number }>;
  percentage: number;
}

/** The notification of one download at a time. */
export class DownloadNotification {
  readonly #cancel: (token: ProgressToken) => void;
  #download: Download | undefined;

  /** `cancel` is called when the user cancels the download. */
  constructor(cancel: (token: ProgressToken) => void) {
    this.#cancel = cancel;
  }

  /** Returns false for a progress that cannot be cancelled, which is no download. */
  follow(token: ProgressToken, value: WorkDoneProgressBegin | WorkDoneProgressReport | WorkDoneProgressEnd): boolean {
    if (value.kind === "begin" && value.cancellable === true) {
      this.#begin(token, value.title);
    }
    const download = this.#download;
    if (download?.token !== token) {
      return false;
    }
    if (value.kind === "end") {
      this.end();
    } else {
      const percentage = value.percentage ?? download.percentage;
      download.progress.report({ message: value.message ?? "", increment: percentage - download.percentage });
      download.percentage = percentage;
    }
    return true;
  }

  /** Removes the notification. */
  end(): void {
    this.#download?.end();
    this.#download = undefined;
  }

  #begin(token: ProgressToken, title: string): void {
    this.end();
    const options = { location: ProgressLocation.Notification, cancellable: true, title };
    void window.withProgress(options, (progress, cancellation) => {
      cancellation.onCancellationRequested(() => {
        this.#cancel(token);
      });
      return new Promise<void>((resolve) => {
        this.#download = { token, end: resolve, progress, percentage: 0 };
      });
    });
  }
}
