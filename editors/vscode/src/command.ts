/** Finds the command `midtoken`. Nothing here needs the editor. */

import { accessSync, constants, statSync } from "node:fs";
import { homedir } from "node:os";
import { basename, delimiter, dirname, isAbsolute, join } from "node:path";

const PROGRAM = "midtoken";

/** Where the command may be. Earlier fields come first. */
export interface CommandSources {
  readonly setting: readonly string[] | undefined; // midtoken.command
  readonly pythonEnvironment: string | undefined; // selected in the Python extension: its interpreter or its folder
  readonly workspaceFolders: readonly string[];
  readonly searchPath: string; // the environment variable PATH
}

export interface Command {
  readonly program: string;
  readonly firstArguments: readonly string[];
}

/** There is no command. The message says what to do. */
export class CommandNotFoundError extends Error {}

/** Returns the command of the first source that has one. If the setting names a command, no other source is used. */
export function findCommand(sources: CommandSources, isProgram: (path: string) => boolean = isExecutable): Command {
  if (sources.setting !== undefined) {
    return findNamedCommand(sources.setting, sources, isProgram);
  }
  const program = findCandidates(sources).find(isProgram);
  if (program === undefined) {
    throw new CommandNotFoundError(
      "there is no command midtoken in the selected Python environment or on the PATH, outside the workspace. " +
        "Install it with pip, or name it in your setting midtoken.command",
    );
  }
  return { program, firstArguments: [] };
}

function findNamedCommand(
  [name = "", ...firstArguments]: readonly string[],
  { workspaceFolders, searchPath }: CommandSources,
  isProgram: (path: string) => boolean,
): Command {
  const program = findPlaces(name, workspaceFolders, searchPath).find(isProgram);
  if (program === undefined) {
    throw new CommandNotFoundError(
      `the setting midtoken.command names ${name}, which is not a program that can be started`,
    );
  }
  return { program, firstArguments };
}

/** A name without a slash is looked up on the PATH, as in a shell. */
function findPlaces(name: string, workspaceFolders: readonly string[], searchPath: string): string[] {
  if (name.startsWith("~/")) {
    return [join(homedir(), name.slice(2))];
  }
  if (isAbsolute(name)) {
    return [name];
  }
  return name.includes("/") ? workspaceFolders.map((folder) => join(folder, name)) : findOnPath(name, searchPath);
}

/** A workspace must not decide what runs, so its own programs are used only if the setting names them. */
function findCandidates({ pythonEnvironment, workspaceFolders, searchPath }: CommandSources): string[] {
  const candidates = [...findInEnvironment(pythonEnvironment), ...findOnPath(PROGRAM, searchPath)];
  return candidates.filter((path) => !workspaceFolders.some((folder) => path.startsWith(join(folder, "/"))));
}

/** The Python extension names an environment by its interpreter or by its folder; without a selection, by `python`. */
function findInEnvironment(environment: string | undefined): string[] {
  if (environment === undefined || !isAbsolute(environment)) {
    return [];
  }
  const isInterpreter = basename(environment).startsWith("python") && basename(dirname(environment)) === "bin";
  return [isInterpreter ? join(dirname(environment), PROGRAM) : join(environment, "bin", PROGRAM)];
}

function findOnPath(name: string, searchPath: string): string[] {
  const folders = searchPath.split(delimiter).filter((folder) => isAbsolute(folder));
  return folders.map((folder) => join(folder, name));
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
