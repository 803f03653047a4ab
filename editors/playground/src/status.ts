/** What the page says about its servers, decided from what is known of them. */

import type { Failure } from "./messages.ts";

export interface Situation {
  /** Why a connection to the playground was closed. */
  readonly closed?: string | undefined;
  /** The editor's and the picture's connections are open. */
  readonly isConnected: boolean;
  /** The completion server is being started. */
  readonly isStarting: boolean;
  /** What failed of the newest question. */
  readonly failure?: Pick<Failure, "part" | "text"> | undefined;
  /** The newest error that the language server has shown. */
  readonly editorError?: string | undefined;
}

export interface Status {
  readonly tone: "busy" | "good" | "bad";
  readonly text: string;
  readonly canRetry: boolean;
}

const PARTS: Readonly<Record<Failure["part"], string>> = {
  connection: "No completion server",
  healing: "No picture",
  strategy: "No comparison of strategies",
  next_byte: "No next byte",
};

/** Returns the one thing that the user should know first. */
export function decideStatus(situation: Situation): Status {
  const { closed, failure, editorError } = situation;
  if (closed !== undefined) {
    return { tone: "bad", text: closed, canRetry: false };
  }
  if (failure !== undefined) {
    return { tone: "bad", text: `${PARTS[failure.part]}: ${failure.text}`, canRetry: true };
  }
  if (situation.isStarting) {
    return {
      tone: "busy",
      text: "Starting the completion server. The first start takes some ten seconds.",
      canRetry: false,
    };
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
