import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { type Channel, Questions } from "../src/questions.ts";

const PAUSE_MS = 70;

class Sent implements Channel {
  isOpen = true;
  readonly texts: string[] = [];

  send(text: string): void {
    this.texts.push(text);
  }
}

function start(context: TestContext): { sent: Sent; questions: Questions; type: (text: string) => void } {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const sent = new Sent();
  let prefix = "";
  const questions = new Questions(sent, () => ({ prefix, suffix: "" }), PAUSE_MS);
  const type = (text: string): void => {
    prefix += text;
    questions.askSoon();
  };
  return { sent, questions, type };
}

test("a question is asked after a pause, about the text of then", (context) => {
  const { sent, type } = start(context);
  type("a");
  context.mock.timers.tick(PAUSE_MS - 1);
  type("b");
  context.mock.timers.tick(PAUSE_MS - 1);
  assert.deepEqual(sent.texts, []);
  context.mock.timers.tick(1);
  assert.deepEqual(sent.texts, ['{"number":2,"prefix":"ab","suffix":""}']);
});

test("an answer is accepted until the text changes, not until the next question is sent", (context) => {
  const { questions, type } = start(context);
  type("a");
  context.mock.timers.tick(PAUSE_MS);
  assert.equal(questions.accept('{"kind":"failure","number":1}')?.kind, "failure");
  type("b");
  assert.equal(questions.accept('{"kind":"failure","number":1}'), undefined);
});

test("nothing is sent through a connection that is not open", (context) => {
  const { sent, type } = start(context);
  sent.isOpen = false;
  type("a");
  context.mock.timers.tick(PAUSE_MS);
  assert.deepEqual(sent.texts, []);
});
