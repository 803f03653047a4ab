import assert from "node:assert/strict";
import { test } from "node:test";
import { decideStatus, describeClose, type Situation } from "../src/status.ts";

const READY: Situation = { isConnected: true, isStarting: false };
const FAILURE = { part: "healing", text: "64 requests are waiting; try again later" } as const;

test("a page that is connected is ready", () => {
  assert.deepEqual(decideStatus(READY), { tone: "good", text: "Ready", canRetry: false });
});

test("a page that is not connected yet says so", () => {
  assert.equal(decideStatus({ ...READY, isConnected: false }).text, "Connecting");
});

test("a server that is being started is named", () => {
  const status = decideStatus({ ...READY, isStarting: true });
  assert.equal(status.tone, "busy");
  assert.match(status.text, /Starting the completion server/);
});

test("a failure is shown in the server's own words, and the user can ask again", () => {
  const status = decideStatus({ ...READY, failure: FAILURE });
  assert.deepEqual(status, { tone: "bad", text: `No picture: ${FAILURE.text}`, canRetry: true });
});

test("an error of the language server is shown as it is", () => {
  assert.equal(decideStatus({ ...READY, editorError: "midtoken: out of step" }).text, "midtoken: out of step");
});

test("the reason that explains the others comes first", () => {
  const all: Situation = { closed: "ended", isConnected: false, isStarting: true, failure: FAILURE, editorError: "e" };
  assert.deepEqual(decideStatus(all), { tone: "bad", text: "ended", canRetry: false });
  assert.match(decideStatus({ ...all, closed: undefined }).text, /64 requests/);
  assert.match(decideStatus({ ...all, closed: undefined, failure: undefined }).text, /Starting/);
});

test("a connection that was closed says why, and what to do", () => {
  assert.match(describeClose("the playground has ended"), /^The playground has ended\. Start “midtoken playground”/);
  assert.match(describeClose(""), /^The playground does not answer any more\. /);
});
