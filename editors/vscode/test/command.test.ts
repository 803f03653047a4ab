import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { CommandNotFoundError, type CommandSources, findCommand } from "../src/command.ts";

const SOURCES: CommandSources = {
  setting: undefined,
  pythonEnvironment: "/envs/chosen/bin/python3.11",
  workspaceFolders: ["/projects/one", "/projects/two"],
  searchPath: "/usr/local/bin:/usr/bin",
};

/** Returns the program that is found when only these files are programs. */
function find(changes: Partial<CommandSources>, ...programs: string[]): string {
  return findCommand({ ...SOURCES, ...changes }, (path) => programs.includes(path)).program;
}

test("a program of the workspace is not used unless the setting names it", () => {
  const program = "/projects/two/.venv/bin/midtoken";
  for (const pythonEnvironment of [undefined, "/projects/two/.venv", "/projects/two/.venv/bin/python"]) {
    const sources = { pythonEnvironment, searchPath: "/projects/two/.venv/bin" };
    assert.throws(() => find(sources, program), CommandNotFoundError);
    assert.equal(find({ ...sources, setting: [".venv/bin/midtoken"] }, program), program);
  }
});

test("the selected Python environment comes before the PATH", () => {
  const places = ["/envs/chosen/bin/midtoken", "/usr/local/bin/midtoken", "/usr/bin/midtoken"];
  for (let first = 0; first < places.length; first++) {
    assert.equal(find({}, ...places.slice(first)), places[first]);
  }
});

test("an environment may be named by its folder", () => {
  assert.equal(find({ pythonEnvironment: "/envs/python" }, "/envs/python/bin/midtoken"), "/envs/python/bin/midtoken");
});

test("an environment that is not selected is not looked at", () => {
  assert.equal(find({ pythonEnvironment: "python" }, "/usr/bin/midtoken"), "/usr/bin/midtoken");
  assert.equal(find({ pythonEnvironment: undefined }, "/usr/bin/midtoken"), "/usr/bin/midtoken");
});

test("a named command is used although others exist, with its arguments", () => {
  const setting = ["/opt/python", "-m", "midtoken"];
  assert.deepEqual(
    findCommand({ ...SOURCES, setting }, () => true),
    { program: "/opt/python", firstArguments: ["-m", "midtoken"] },
  );
});

test("a named command without a slash is on the PATH", () => {
  assert.equal(find({ setting: ["mid"] }, "/usr/bin/mid"), "/usr/bin/mid");
});

test("a named relative path begins at a workspace folder", () => {
  assert.equal(find({ setting: ["env/bin/mid"] }, "/projects/two/env/bin/mid"), "/projects/two/env/bin/mid");
});

test("a named path may begin at the home folder", () => {
  const path = join(homedir(), "bin/mid");
  assert.equal(find({ setting: ["~/bin/mid"] }, path), path);
});

test("a named command that does not exist is an error that names it, although others exist", () => {
  assert.throws(() => find({ setting: ["/opt/mid"] }, "/usr/bin/midtoken"), {
    constructor: CommandNotFoundError,
    message: /\/opt\/mid/,
  });
});

test("without any command the error says what to do", () => {
  assert.throws(() => find({}), { constructor: CommandNotFoundError, message: /Install it.*midtoken\.command/ });
});

test("an empty or relative folder on the PATH is not the current folder", () => {
  assert.throws(() => find({ searchPath: ":bin:" }, "midtoken", "bin/midtoken"), CommandNotFoundError);
});

test("folders and files that cannot be executed are not programs", (context) => {
  const folder = mkdtempSync(join(tmpdir(), "midtoken-test-"));
  context.after(() => {
    rmSync(folder, { recursive: true });
  });
  const [asFolder, asFile, asProgram] = ["folder", "file", "program"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(join(asFolder, "midtoken"), { recursive: true });
  for (const place of [asFile, asProgram]) {
    mkdirSync(place);
    writeFileSync(join(place, "midtoken"), "");
  }
  chmodSync(join(asProgram, "midtoken"), 0o755);
  const sources = { ...SOURCES, pythonEnvironment: undefined, searchPath: `${asFolder}:${asFile}:${asProgram}` };
  assert.equal(findCommand(sources).program, join(asProgram, "midtoken"));
});
