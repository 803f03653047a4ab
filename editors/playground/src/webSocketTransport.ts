/** JSON-RPC over a WebSocket: each message is one text, without a header. */

import {
  AbstractMessageReader,
  AbstractMessageWriter,
  type DataCallback,
  type Disposable,
  type Message,
} from "vscode-languageserver-protocol/browser";

export class WebSocketReader extends AbstractMessageReader {
  readonly #socket: WebSocket;

  constructor(socket: WebSocket) {
    super();
    this.#socket = socket;
    socket.addEventListener("close", () => {
      this.fireClose();
    });
  }

  listen(callback: DataCallback): Disposable {
    const listener = (event: MessageEvent<string>): void => {
      callback(JSON.parse(event.data) as Message);
    };
    this.#socket.addEventListener("message", listener);
    return {
      dispose: () => {
        this.#socket.removeEventListener("message", listener);
      },
    };
  }
}

export class WebSocketWriter extends AbstractMessageWriter {
  readonly #socket: WebSocket;

  constructor(socket: WebSocket) {
    super();
    this.#socket = socket;
  }

  write(message: Message): Promise<void> {
    if (this.#socket.readyState === WebSocket.OPEN) {
      this.#socket.send(JSON.stringify(message));
    }
    return Promise.resolve();
  }

  end(): void {
    this.#socket.close();
  }
}
