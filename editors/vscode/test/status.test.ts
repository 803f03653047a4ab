import assert from "node:assert/strict";
import { test } from "node:test";

import { type ActiveFile, describe, findOffReason, StateTracker, type Switches } from "../src/status.ts";

const FILE: ActiveFile = { scheme: "file", languageId: "python" };
const ON: Switches = { enabled: true, languages: ["python"], inlineSuggestEnabled: true };

function track(...events: ((tracker: StateTracker) => void)[]): StateTracker {
  const tracker = new StateTracker();
  for (const event of events) {
    event(tracker);
  }
  return tracker;
}

const starts = (tracker: StateTracker) => {
  tracker.clientStarts();
};
const runs = (tracker: StateTracker) => {
  tracker.clientRuns();
};
const fails = (tracker: StateTracker) => {
  tracker.fails("no server");
};

test("a language server starts, and is ready when it runs", () => {
  assert.deepEqual(track().findState(undefined), { kind: "stopped" });
  assert.deepEqual(track(starts).findState(undefined), { kind: "starting", what: "starting the language server" });
  assert.deepEqual(track(starts, runs).findState(undefined), { kind: "ready" });
});

test("a server tells its state, and that of a file, which comes second", () => {
  const tracker = track(starts, runs);
  const all = { uri: null, code: "x", message: "because" } as const;
  const excluded = { ...all, uri: "file:///a", state: "off", message: "excluded" } as const;
  tracker.told(excluded);
  assert.deepEqual(tracker.findState("file:///a"), { kind: "off", why: "excluded" });
  assert.deepEqual(tracker.findState("file:///b"), { kind: "ready" });
  for (const [state, expected] of [
    ["starting", { kind: "starting", what: "because" }],
    ["error", { kind: "failed", why: "because" }],
    ["off", { kind: "off", why: "because" }],
  ] as const) {
    tracker.told({ ...all, state });
    assert.deepEqual(tracker.findState("file:///a"), expected);
  }
  tracker.told({ ...all, state: "ready" });
  assert.deepEqual(tracker.findState("file:///a"), { kind: "off", why: "excluded" });
  tracker.told({ ...excluded, state: "ready" });
  assert.deepEqual(tracker.findState("file:///a"), { kind: "ready" });
});

test("only what a rule excludes is known not to be sent", () => {
  const tracker = track(starts, runs);
  const told = { uri: "file:///a", state: "off", message: "a rule" } as const;
  tracker.told({ ...told, code: "other_language" });
  assert.equal(tracker.findExclusion("file:///a"), undefined);
  tracker.told({ ...told, code: "excluded" });
  assert.equal(tracker.findExclusion("file:///a"), "a rule");
  assert.equal(tracker.findExclusion("file:///b"), undefined);
});

test("an error is gone when the language server is started again", () => {
  assert.deepEqual(track(starts, runs, fails, starts, runs).findState(undefined), { kind: "ready" });
});

test("a language server that ends by itself has failed; one that is stopped has not", () => {
  const crashed = track(starts, runs);
  crashed.clientEnds("it has ended");
  assert.deepEqual(crashed.findState(undefined), { kind: "failed", why: "it has ended" });
  const stopped = track(starts, runs);
  stopped.clientEnds();
  assert.deepEqual(stopped.findState(undefined), { kind: "stopped" });
  const failed = track(starts, fails);
  failed.clientEnds();
  assert.deepEqual(failed.findState(undefined), { kind: "failed", why: "no server" });
});

test("a file of a listed language gets suggestions, saved or not, and without a list one of any", () => {
  assert.equal(findOffReason(FILE, ON), undefined);
  assert.equal(findOffReason({ ...FILE, languageId: "go" }, { ...ON, languages: undefined }), undefined);
  assert.equal(findOffReason({ ...FILE, scheme: "untitled" }, ON), undefined);
});

for (const [name, file, switches, reason] of [
  ["suggestions are disabled", FILE, { ...ON, enabled: false }, /midtoken\.enabled is false/],
  ["its language is not listed", { ...FILE, languageId: "go" }, ON, /midtoken\.languages does not contain go/],
  ["it is the old side of a diff", { ...FILE, scheme: "git" }, ON, /only files/],
  [
    "VS Code shows no inline suggestions",
    FILE,
    { ...ON, inlineSuggestEnabled: false },
    /editor\.inlineSuggest\.enabled/,
  ],
] as const) {
  test(`a file is off, with the reason, if ${name}`, () => {
    assert.match(findOffReason(file, switches) ?? "", reason);
  });
}

test("each state has its icon, and the tooltip says the rest", () => {
  assert.deepEqual(describe({ kind: "starting", what: "waiting" }, undefined), {
    text: "$(loading~spin) midtoken",
    tooltip: "midtoken: waiting",
    isError: false,
  });
  assert.equal(describe({ kind: "ready" }, undefined)?.tooltip, "midtoken: ready");
  assert.deepEqual(describe({ kind: "failed", why: "no server" }, undefined), {
    text: "$(error) midtoken",
    tooltip: "midtoken: no server",
    isError: true,
  });
});

test("nothing is shown while no file needs the language server", () => {
  assert.equal(describe({ kind: "stopped" }, undefined), undefined);
});

test("that a file is off is shown even if the server has failed", () => {
  const status = describe({ kind: "failed", why: "no server" }, "a reason");
  assert.equal(status?.tooltip, "midtoken: off for this file: a reason");
  assert.equal(status.isError, false);
});
