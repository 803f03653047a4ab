/** The page's LSP client: one document, its changes, and inline completions. */

import {
  createProtocolConnection,
  DidChangeTextDocumentNotification,
  DidOpenTextDocumentNotification,
  InitializedNotification,
  InitializeRequest,
  type InlineCompletionItem,
  InlineCompletionRequest,
  type InlineCompletionTriggerKind,
  type Position,
  type ProtocolConnection,
  type TextDocumentContentChangeEvent,
  WorkDoneProgress,
  WorkDoneProgressCreateRequest,
} from "vscode-languageserver-protocol/browser";
import { WebSocketReader, WebSocketWriter } from "./webSocketTransport.ts";

const URI = "untitled:playground.py";
const RETRY_MS = 400;

/** What the language server says beside its answers. */
export interface Listener {
  onState(report: StateReport): void;
  /** An answer to a request has come, with ghost text or without. */
  onAnswer(tookMs: number, hasText: boolean): void;
}

/** What the language server tells in `$/midtoken/status`: see docs/other_editors.md. */
export interface StateReport {
  readonly uri: string | null;
  readonly state: "starting" | "ready" | "off" | "error";
  readonly message: string;
}

export class LanguageClient {
  readonly #connection: ProtocolConnection;
  readonly #listener: Listener;
  #version = 0;

  private constructor(connection: ProtocolConnection, listener: Listener) {
    this.#connection = connection;
    this.#listener = listener;
  }

  /** Initializes the language server behind an open WebSocket. */
  static async start(socket: WebSocket, listener: Listener): Promise<LanguageClient> {
    const connection = createProtocolConnection(new WebSocketReader(socket), new WebSocketWriter(socket));
    connection.onNotification("$/midtoken/status", (report: StateReport) => {
      listener.onState(report);
    });
    connection.onRequest(WorkDoneProgressCreateRequest.type, ({ token }) => {
      connection.onProgress(WorkDoneProgress.type, token, () => undefined);
    });
    connection.listen();
    await connection.sendRequest(InitializeRequest.type, {
      processId: null,
      rootUri: null, // eslint-disable-line @typescript-eslint/no-deprecated -- the protocol requires the field
      clientInfo: { name: "midtoken playground" },
      capabilities: {
        general: { positionEncodings: ["utf-16"] },
        textDocument: { inlineCompletion: {} },
        window: { workDoneProgress: true },
      },
    });
    await connection.sendNotification(InitializedNotification.type, {});
    return new LanguageClient(connection, listener);
  }

  /** Opens the document. From now on, each change of it must be sent. */
  open(text: string): void {
    void this.#connection.sendNotification(DidOpenTextDocumentNotification.type, {
      textDocument: { uri: URI, languageId: "python", version: this.#version, text },
    });
  }

  /** Sends changes in the order in which they are to be applied. */
  change(contentChanges: TextDocumentContentChangeEvent[]): void {
    this.#version += 1;
    void this.#connection.sendNotification(DidChangeTextDocumentNotification.type, {
      textDocument: { uri: URI, version: this.#version },
      contentChanges,
    });
  }

  /**
   * Returns the ghost texts at a position; none once the request is cancelled. Until then, it asks again: the language
   * server answers null while the completion server is being started.
   */
  async suggest(
    position: Position,
    triggerKind: InlineCompletionTriggerKind,
    isCancelled: () => boolean,
  ): Promise<InlineCompletionItem[]> {
    while (!isCancelled()) {
      const startedMs = performance.now();
      const answer = await this.#connection.sendRequest(InlineCompletionRequest.type, {
        textDocument: { uri: URI },
        position,
        context: { triggerKind },
      });
      if (answer !== null) {
        const items = Array.isArray(answer) ? answer : answer.items;
        this.#listener.onAnswer(performance.now() - startedMs, items.length > 0);
        return items;
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    return [];
  }
}
