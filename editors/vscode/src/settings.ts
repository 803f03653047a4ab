/** The user's settings. Nothing here needs the editor: values come from a function. */

export const SECTION = "midtoken";
const ANY = "*"; // in the setting `languages`

/** Returns the value of the setting `midtoken.NAME`. It may be of any type, since users edit files. */
export type ReadValue = (name: string) => unknown;

/** A setting of the extension has a value that it cannot have. The message says which, and what it must be. */
export class SettingError extends Error {}

/** The values of a setting: the user's own, or else the default, and those of the workspace and its folders. */
export interface Levels {
  readonly user: unknown;
  readonly workspace: readonly unknown[]; // `undefined` where it is not set
}

/** Returns the values of the setting `midtoken.NAME`. */
export type Inspect = (name: string) => Levels;

/**
 * Returns the value of a setting over all levels, which is of no kind that the setting can have if one of them is not.
 * Without a value, returns undefined.
 */
type Join = (levels: Levels) => unknown;

/** Returns how the levels of a setting join, of whose values one is the stricter: the user allows, a workspace forbids. */
function joinBy<Value>(isValue: (value: unknown) => value is Value, join: (one: Value, other: Value) => Value): Join {
  return ({ user, workspace }) => {
    const present: unknown[] = [user, ...workspace].filter((value) => !isAbsent(value));
    const [first, ...others] = present.filter(isValue);
    return (
      present.find((value) => !isValue(value)) ??
      (first === undefined ? undefined : others.reduce((one, other) => join(one, other), first))
    );
  };
}

const joinSwitches = joinBy(isSwitch, (one, other) => one && other);
const joinLanguages = joinBy(isListOfTexts, (one, other) => {
  return other.includes(ANY) ? one : other.filter((language) => one.includes(ANY) || one.includes(language));
});

/** The settings that limit what is sent, beside `languages`. VS Code merges the others, so a workspace can choose them. */
const LIMITS: Readonly<Record<string, Join>> = {
  enabled: joinSwitches,
  prefetch: joinSwitches,
  redactSecrets: joinBy(isSwitch, (one, other) => one || other),
  exclude: joinBy(isListOfTexts, (one, other) => [...new Set([...one, ...other])]),
};

/**
 * Returns what the language server gets of the section: all but the settings of the extension itself. It checks names
 * and values, and reports those that it does not know.
 *
 * What limits adds up over all levels: a workspace can have less sent than the user allows, but not more. Of `languages`
 * it gets the user's, because without any those of the model count; `readLanguages` returns what is left of them.
 */
export function selectLanguageServerSettings(
  section: Record<string, unknown>,
  inspect: Inspect,
): Record<string, unknown> {
  const own = ["command", "model", "server"];
  const limits = Object.entries(LIMITS).map(([name, join]) => [name, join(inspect(name))] as const);
  const languages = joinLanguages(inspect("languages"));
  return {
    ...Object.fromEntries(Object.entries(section).filter(([name]) => !own.includes(name))),
    ...Object.fromEntries(limits.filter(([, value]) => value !== undefined)),
    languages: languages === undefined || isListOfTexts(languages) ? inspect("languages").user : languages,
  };
}

/** Returns whether suggestions are enabled. Only `false` disables them, as in the language server. */
export function readEnabled(inspect: Inspect): boolean {
  return joinSwitches(inspect("enabled")) !== false;
}

/**
 * Returns the language identifiers that all levels of `midtoken.languages` list, or undefined: those that the language
 * server chooses by the user's setting. Throws SettingError.
 */
export function readLanguages(inspect: Inspect): readonly string[] | undefined {
  const value = joinLanguages(inspect("languages"));
  if (value !== undefined && !isListOfTexts(value)) {
    throw new SettingError(`the setting midtoken.languages must be a list of language identifiers`);
  }
  return value?.includes(ANY) === true ? undefined : value;
}

/** Returns the program and its first arguments in `midtoken.command`, or undefined if it is not set. Throws SettingError. */
export function readCommand(read: ReadValue): readonly string[] | undefined {
  const value = read("command");
  if (isAbsent(value) || value === "") {
    return undefined;
  }
  const command = typeof value === "string" ? [value] : value;
  if (!isListOfTexts(command) || command.length === 0 || command[0] === "") {
    throw new SettingError("the setting midtoken.command must be a path, or a list of a program and its arguments");
  }
  return command;
}

/**
 * Returns the arguments that name the model in `midtoken.model` and the completion server in `midtoken.server`; none for
 * one that is not set. Throws SettingError.
 */
export function readServerArguments(read: ReadValue): readonly string[] {
  return [...readModel(read), ...readServer(read)];
}

function readModel(read: ReadValue): string[] {
  const value = read("model");
  if (isAbsent(value) || value === "") {
    return [];
  }
  if (typeof value !== "string") {
    throw new SettingError("the setting midtoken.model must be the name of a model, a folder or a GGUF file");
  }
  return [`--model=${value}`];
}

function readServer(read: ReadValue): string[] {
  const value = read("server");
  if (isAbsent(value) || value === "") {
    return [];
  }
  if (typeof value !== "string" || !/^(grpcs:\/\/)?[^/]+:[0-9]+$/.test(value)) {
    throw new SettingError(
      "the setting midtoken.server must be a host and a port, such as 127.0.0.1:8001 or grpcs://host:8001",
    );
  }
  return ["--server", value];
}

/**
 * Returns the arguments by which a command follows the settings on what may be sent, which are among those of the
 * language server. Throws SettingError.
 */
export function buildRuleArguments({ exclude, redactSecrets }: Record<string, unknown>): readonly string[] {
  if (!isAbsent(exclude) && !isListOfTexts(exclude)) {
    throw new SettingError("the setting midtoken.exclude must be a list of patterns");
  }
  const patterns = (exclude ?? []).map((pattern) => `--exclude=${pattern}`);
  return redactSecrets === false ? [...patterns, "--send-secrets"] : patterns;
}

function isAbsent(value: unknown): value is null | undefined {
  return value === null || value === undefined;
}

function isSwitch(value: unknown): value is boolean {
  return typeof value === "boolean";
}

function isListOfTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}
