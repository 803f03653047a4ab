/** The user's settings. Nothing here needs the editor: values come from a function. */

export const SECTION = "midtoken";

/** Returns the value of the setting `midtoken.NAME`. It may be of any type, since users edit files. */
export type ReadValue = (name: string) => unknown;

/** A setting of the extension has a value that it cannot have. The message says which, and what it must be. */
export class SettingError extends Error {}

/** The values of a setting: the user's own, and those of the workspace and its folders. `undefined` where it is not set. */
export interface Levels {
  readonly user: unknown;
  readonly workspace: readonly unknown[];
}

/**
 * Returns what the language server gets of the section: all but the settings of the extension itself. It checks names
 * and values, and reports those that it does not know.
 *
 * What protects adds up over all levels: a workspace can exclude more, and have secrets replaced, but not less.
 */
export function selectLanguageServerSettings(
  section: Record<string, unknown>,
  inspect: (name: string) => Levels,
): Record<string, unknown> {
  const own = ["command", "model", "server"];
  return {
    ...Object.fromEntries(Object.entries(section).filter(([name]) => !own.includes(name))),
    exclude: addUpPatterns(inspect("exclude")),
    redactSecrets: addUpRedaction(inspect("redactSecrets")),
  };
}

/** Returns the patterns of all levels, or a value that is no list of texts, which the language server rejects. */
function addUpPatterns({ user, workspace }: Levels): unknown {
  const values = [user, ...workspace].filter((value) => !isAbsent(value));
  return values.every(isListOfTexts) ? [...new Set(values.flat())] : values.find((value) => !isListOfTexts(value));
}

/** Returns false if only the user says so, or a value that is neither true nor false, which the language server rejects. */
function addUpRedaction({ user, workspace }: Levels): unknown {
  const values = [user, ...workspace].filter((value) => !isAbsent(value));
  const wrong = values.find((value) => typeof value !== "boolean");
  return wrong ?? (user !== false || values.includes(true));
}

/** Returns whether suggestions are enabled. Only `false` disables them, as in the language server. */
export function readEnabled(read: ReadValue): boolean {
  return read("enabled") !== false;
}

/** Returns the language identifiers in `midtoken.languages`, or undefined: those that the model knows. Throws SettingError. */
export function readLanguages(read: ReadValue): readonly string[] | undefined {
  const value = read("languages");
  if (isAbsent(value)) {
    return undefined;
  }
  if (!isListOfTexts(value)) {
    throw new SettingError(`the setting midtoken.languages must be a list of language identifiers`);
  }
  return value;
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

function isListOfTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}
