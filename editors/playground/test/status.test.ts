import assert from "node:assert/strict";
import { test } from "node:test";
import { decideStatus, describeClose, type Situation } from "../src/status.ts";

const READY: Situation = { isConnected: true };
const FAILURE = "64 requests are waiting; try again later";

test("a page that is connected is ready", () => {
  assert.deepEqual(decideStatus(READY), { tone: "good", text: "Ready", canRetry: false });
});

test("a page that is not connected yet says so", () => {
  assert.equal(decideStatus({ ...READY, isConnected: false }).text, "Connecting");
});

test("a failure is shown in the server's own words, and the user can ask again", () => {
  const status = decideStatus({ ...READY, failure: FAILURE });
  assert.deepEqual(status, { tone: "bad", text: `No picture: ${FAILURE}`, canRetry: true });
});

test("an error of the language server is shown as it is", () => {
  assert.equal(decideStatus({ ...READY, editorError: "midtoken: out of step" }).text, "midtoken: out of step");
});

test("the reason that explains the others comes first", () => {
  const all: Situation = { closed: "ended", isConnected: false, failure: FAILURE, editorError: "e" };
  assert.deepEqual(decideStatus(all), { tone: "bad", text: "ended", canRetry: false });
  assert.match(decideStatus({ ...all, closed: undefined }).text, /64 requests/);
  assert.equal(decideStatus({ ...all, closed: undefined, failure: undefined }).text, "e");
});

test("a connection that was closed says why, and what to do", () => {
  assert.match(describeClose("the playground has ended"), /^The playground has ended\. Start “midtoken playground”/);
  assert.match(describeClose(""), /^The playground does not answer any more\. /);
});
