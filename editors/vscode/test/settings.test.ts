import assert from "node:assert/strict";
import { test } from "node:test";

import {
  buildRuleArguments,
  type Levels,
  readCommand,
  readEnabled,
  readLanguages,
  selectLanguageServerSettings,
  readServerArguments,
  SettingError,
} from "../src/settings.ts";

const values = (settings: Record<string, unknown>) => (name: string) => settings[name];

const UNSET: Levels = { user: undefined, workspace: [undefined, undefined] };

test("the language server gets all settings, right or wrong, but those of the extension", () => {
  const settings = { maxTokens: 12, extent: 7, deadlineMs: null, another: [] };
  const section = { ...settings, command: "midtoken", model: "owner/name", server: "127.0.0.1:1" };
  assert.deepEqual(
    selectLanguageServerSettings(section, () => UNSET),
    { ...settings, languages: undefined },
  );
});

/** Returns what the language server gets for a setting with these values, which VS Code merges to `merged`. */
function addUp(name: string, user: unknown, ...workspace: unknown[]): unknown {
  const merged = { [name]: workspace.findLast((value) => value !== undefined) ?? user };
  return selectLanguageServerSettings(merged, inspectOnly(name, user, ...workspace))[name];
}

const inspectOnly =
  (name: string, user: unknown, ...workspace: unknown[]) =>
  (asked: string) =>
    asked === name ? { user, workspace } : UNSET;

test("the patterns of all levels count, and a wrong value of one level is passed on", () => {
  assert.deepEqual(addUp("exclude", ["a"], []), ["a"]);
  assert.deepEqual(addUp("exclude", ["a"], ["b"], ["c", "a"]), ["a", "b", "c"]);
  assert.deepEqual(addUp("exclude", [], null, ["c"]), ["c"]);
  assert.equal(addUp("exclude", "secret.py", []), "secret.py");
  assert.equal(addUp("exclude", ["a"], "b"), "b");
});

test("only the user lets secrets be sent", () => {
  assert.equal(addUp("redactSecrets", true, false), true);
  assert.equal(addUp("redactSecrets", false, undefined), false);
  assert.equal(addUp("redactSecrets", false, false), false);
  assert.equal(addUp("redactSecrets", false, undefined, true), true);
  assert.equal(addUp("redactSecrets", "no", true), "no");
  assert.equal(addUp("redactSecrets", false, "no"), "no");
});

for (const name of ["enabled", "prefetch"]) {
  test(`what the user or a workspace switches off by ${name} is off`, () => {
    assert.equal(addUp(name, false, true), false);
    assert.equal(addUp(name, true, false), false);
    assert.equal(addUp(name, true, false, true), false);
    assert.equal(addUp(name, true, undefined), true);
    assert.equal(addUp(name, false, "yes"), "yes");
  });
}

test("a workspace enables no language that the user has not", () => {
  const left = (user: unknown, ...workspace: unknown[]) => readLanguages(inspectOnly("languages", user, ...workspace));
  assert.deepEqual(left(["python", "go"], ["go", "rust"]), ["go"]);
  assert.deepEqual(left(["python"], ["*"]), ["python"]);
  assert.deepEqual(left(["*"], ["go"]), ["go"]);
  assert.deepEqual(left(["go"], null, []), []);
  assert.deepEqual(left(null, ["go"]), ["go"]); // of which the language server takes those that the model knows
  assert.equal(left(null, ["*"]), undefined);
  assert.equal(addUp("languages", null, ["go"]), null);
  assert.deepEqual(addUp("languages", ["python"], ["python", "go"]), ["python"]);
  assert.equal(addUp("languages", null, "go"), "go");
  assert.throws(() => left(["go"], "python"), { constructor: SettingError, message: /midtoken\.languages/ });
});

test("only false disables suggestions", () => {
  const isEnabled = (user: unknown, ...workspace: unknown[]) => readEnabled(inspectOnly("enabled", user, ...workspace));
  assert.equal(isEnabled(false, true), false);
  assert.equal(isEnabled(true, false), false);
  assert.equal(isEnabled("no"), true); // the language server refuses it by name
  assert.equal(isEnabled(undefined), true);
});

test("a command is a path or a list", () => {
  assert.deepEqual(readCommand(values({ command: "/a b/midtoken" })), ["/a b/midtoken"]);
  assert.deepEqual(readCommand(values({ command: ["python", "-m", "midtoken"] })), ["python", "-m", "midtoken"]);
});

for (const absent of [null, undefined, ""]) {
  test(`a command, model or server that is ${JSON.stringify(absent)} is not set`, () => {
    assert.equal(readCommand(values({ command: absent })), undefined);
    assert.deepEqual(readServerArguments(values({ model: absent, server: absent })), []);
  });
}

for (const wrong of [7, [], [""], ["midtoken", 7], {}]) {
  test(`the command ${JSON.stringify(wrong)} is rejected by name`, () => {
    assert.throws(() => readCommand(values({ command: wrong })), {
      constructor: SettingError,
      message: /midtoken\.command/,
    });
  });
}

test("a model becomes an argument", () => {
  assert.deepEqual(readServerArguments(values({ model: "owner/name@v1" })), ["--model=owner/name@v1"]);
  assert.throws(() => readServerArguments(values({ model: 7 })), { name: "Error", message: /midtoken\.model/ });
});

test("a server becomes an argument", () => {
  for (const server of ["host:8001", "grpcs://host:8001"]) {
    assert.deepEqual(readServerArguments(values({ server })), ["--server", server]);
  }
});

for (const wrong of ["host", "http://host:1", ":8001", 8001, "host:port"]) {
  test(`the server ${JSON.stringify(wrong)} is rejected by name`, () => {
    assert.throws(() => readServerArguments(values({ server: wrong })), {
      constructor: SettingError,
      message: /midtoken\.server/,
    });
  });
}

test("a command follows the settings on what may be sent, and a wrong one is no reason to send", () => {
  assert.deepEqual(buildRuleArguments({ exclude: ["a*", "b/"], redactSecrets: true }), [
    "--exclude=a*",
    "--exclude=b/",
  ]);
  assert.deepEqual(buildRuleArguments({ exclude: null, redactSecrets: false }), ["--send-secrets"]);
  assert.deepEqual(buildRuleArguments({ redactSecrets: "no" }), []);
  assert.throws(() => buildRuleArguments({ exclude: "a*" }), {
    constructor: SettingError,
    message: /midtoken\.exclude/,
  });
});
