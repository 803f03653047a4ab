/** What the status item says. Nothing here needs the editor. */

/** The state of the language server, from what the client and the server report. */
export type ServerState =
  | { readonly kind: "stopped" }
  | { readonly kind: "starting"; readonly what: string }
  | { readonly kind: "ready" }
  | { readonly kind: "off"; readonly why: string }
  | { readonly kind: "failed"; readonly why: string };

/** The notification `$/midtoken/status`: the state of a document, or with `uri` null that of all. */
export interface ToldStatus {
  readonly uri: string | null;
  readonly state: "starting" | "ready" | "off" | "error";
  readonly code: string;
  readonly message: string;
}

/** The facts about the file in the active editor that decide whether it gets suggestions. */
export interface ActiveFile {
  readonly scheme: string; // of its URI
  readonly languageId: string;
}

/** The settings that decide whether a file gets suggestions. */
export interface Switches {
  readonly enabled: boolean;
  readonly languages: readonly string[] | undefined; // undefined: those that the model knows
  readonly inlineSuggestEnabled: boolean; // VS Code's own editor.inlineSuggest.enabled
}

export interface StatusText {
  readonly text: string;
  readonly tooltip: string;
  readonly isError: boolean;
}

/** The schemes of files that the language server gets: not those of diffs, outputs or settings. */
export const SCHEMES = ["file", "untitled", "vscode-notebook-cell"] as const;

/** Follows the state of the language server: whether it runs, and what it tells in `$/midtoken/status`. */
export class StateTracker {
  #general: ServerState = { kind: "stopped" };
  readonly #documents = new Map<string, ToldStatus>(); // those that are not ready, by URI

  /** The client begins to start the language server. */
  clientStarts(): void {
    this.#general = { kind: "starting", what: "starting the language server" };
    this.#documents.clear();
  }

  /** The language server has answered `initialize`. */
  clientRuns(): void {
    this.#general = { kind: "ready" };
  }

  /** The language server has ended. Without a reason, it was stopped on purpose. */
  clientEnds(why?: string): void {
    if (why !== undefined) {
      this.fails(why);
    } else if (this.#general.kind !== "failed") {
      this.#general = { kind: "stopped" };
    }
  }

  /** The language server cannot be started. */
  fails(why: string): void {
    this.#general = { kind: "failed", why };
  }

  /** The server told its state, or that of a document. */
  told(status: ToldStatus): void {
    if (status.uri === null) {
      this.#general = toState(status);
    } else if (status.state === "ready") {
      this.#documents.delete(status.uri);
    } else {
      this.#documents.set(status.uri, status);
    }
  }

  /** Returns the state for a document, by its URI; undefined if none is open. */
  findState(uri: string | undefined): ServerState {
    const told = uri === undefined ? undefined : this.#documents.get(uri);
    return told === undefined || this.#general.kind !== "ready" ? this.#general : toState(told);
  }

  /** Returns why nothing of a document is sent, as the server told; undefined if it has not. */
  findExclusion(uri: string): string | undefined {
    const told = this.#documents.get(uri);
    return told?.code === "excluded" ? told.message : undefined;
  }
}

function toState({ state, message }: ToldStatus): ServerState {
  switch (state) {
    case "starting":
      return { kind: "starting", what: message };
    case "ready":
      return { kind: "ready" };
    case "off":
      return { kind: "off", why: message };
    case "error":
      return { kind: "failed", why: message };
  }
}

/** Returns why a file gets no suggestions, or undefined if it gets them. */
export function findOffReason(file: ActiveFile, switches: Switches): string | undefined {
  if (!switches.enabled) {
    return "midtoken.enabled is false";
  }
  if (!SCHEMES.some((scheme) => scheme === file.scheme)) {
    return "only files, untitled documents and cells of notebooks get suggestions";
  }
  if (switches.languages?.includes(file.languageId) === false) {
    return `midtoken.languages does not contain ${file.languageId}`;
  }
  return switches.inlineSuggestEnabled ? undefined : "VS Code's editor.inlineSuggest.enabled is false";
}

/** Returns what the status item shows; undefined if there is nothing to say. */
export function describe(state: ServerState, offReason: string | undefined): StatusText | undefined {
  if (offReason !== undefined) {
    return say("circle-slash", `off for this file: ${offReason}`);
  }
  switch (state.kind) {
    case "stopped":
      return undefined;
    case "starting":
      return say("loading~spin", state.what);
    case "ready":
      return say("check", "ready");
    case "off":
      return say("circle-slash", `off for this file: ${state.why}`);
    case "failed":
      return say("error", state.why, true);
  }
}

function say(icon: string, text: string, isError = false): StatusText {
  return { text: `$(${icon}) midtoken`, tooltip: `midtoken: ${text}`, isError };
}
