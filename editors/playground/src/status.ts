/** What the page says about its servers, decided from what is known of them. */

export interface Situation {
  /** Why a connection to the playground was closed. */
  readonly closed?: string | undefined;
  /** The editor's and the picture's connections are open. */
  readonly isConnected: boolean;
  /** What failed of the newest question. */
  readonly failure?: string | undefined;
  /** Why the language server suggests nothing at all, as it has told. */
  readonly editorError?: string | undefined;
  /** Why it suggests nothing in the page's text. */
  readonly documentError?: string | undefined;
}

export interface Status {
  readonly tone: "busy" | "good" | "bad";
  readonly text: string;
  readonly canRetry: boolean;
}

/** Returns the one thing that the user should know first. */
export function decideStatus(situation: Situation): Status {
  const { closed, failure } = situation;
  const editorError = situation.editorError ?? situation.documentError;
  if (closed !== undefined) {
    return { tone: "bad", text: closed, canRetry: false };
  }
  if (failure !== undefined) {
    return { tone: "bad", text: `No picture: ${failure}`, canRetry: true };
  }
  if (editorError !== undefined) {
    return { tone: "bad", text: editorError, canRetry: true };
  }
  return situation.isConnected
    ? { tone: "good", text: "Ready", canRetry: false }
    : { tone: "busy", text: "Connecting", canRetry: false };
}

/** Returns the text for a closed WebSocket. The playground says why, unless it was killed or never answered. */
export function describeClose(reason: string): string {
  const what = reason === "" ? "the playground does not answer any more" : reason;
  return `${what.charAt(0).toUpperCase()}${what.slice(1)}. Start “midtoken playground” and open the address that it prints.`;
}
