/** Asks the playground about the text around the cursor, not at each key, and passes on the answers to the newest question. */

import type { Message } from "./messages.ts";

/** The part of a WebSocket that questions need. */
export interface Channel {
  send(text: string): void;
  readonly isOpen: boolean;
}

export interface TextAroundCursor {
  readonly prefix: string;
  readonly suffix: string;
}

export class Questions {
  readonly #channel: Channel;
  readonly #read: () => TextAroundCursor;
  readonly #pauseMs: number;
  #number = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `read` returns the text when the question is sent, `pauseMs` after the last change. */
  constructor(channel: Channel, read: () => TextAroundCursor, pauseMs = 70) {
    this.#channel = channel;
    this.#read = read;
    this.#pauseMs = pauseMs;
  }

  /** The number of the newest question that was sent. */
  get number(): number {
    return this.#number;
  }

  /** Asks after a pause without another change. From now on, answers to older questions are ignored. */
  askSoon(): void {
    this.#number += 1;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#ask();
    }, this.#pauseMs);
  }

  /** Returns the message, or undefined if it belongs to a question that was superseded. */
  accept(text: string): Message | undefined {
    const message = JSON.parse(text) as Message;
    return message.number === this.#number ? message : undefined;
  }

  #ask(): void {
    if (this.#channel.isOpen) {
      this.#channel.send(JSON.stringify({ number: this.#number, ...this.#read() }));
    }
  }
}
