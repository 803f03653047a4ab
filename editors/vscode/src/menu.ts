/** The menu of the status item. */

import { commands, window } from "vscode";

interface Entry {
  readonly label: string;
  readonly command: string;
  readonly argument?: string;
}

/** Lets the user choose a command and runs it. `languageId` is the language of the active file, if there is one. */
export async function showMenu(
  isEnabled: boolean,
  languages: readonly string[] | undefined,
  languageId: string | undefined,
): Promise<void> {
  const chosen = await window.showQuickPick(listEntries(isEnabled, languages, languageId), { title: "midtoken" });
  if (chosen !== undefined) {
    await commands.executeCommand(chosen.command, ...(chosen.argument === undefined ? [] : [chosen.argument]));
  }
}

function listEntries(
  isEnabled: boolean,
  languages: readonly string[] | undefined,
  languageId: string | undefined,
): Entry[] {
  const ofFile: Entry[] = [];
  if (languageId !== undefined && languages !== undefined) {
    ofFile.push(
      languages.includes(languageId)
        ? { label: `Disable suggestions in ${languageId}`, command: "midtoken.disableLanguage" }
        : { label: `Enable suggestions in ${languageId}`, command: "midtoken.enableLanguage" },
    );
  }
  if (languageId !== undefined) {
    ofFile.push({ label: "Explain healing at the cursor", command: "midtoken.explain" });
  }
  return [
    isEnabled
      ? { label: "Disable suggestions", command: "midtoken.disable" }
      : { label: "Enable suggestions", command: "midtoken.enable" },
    ...ofFile,
    { label: "Restart language server", command: "midtoken.restart" },
    { label: "Show statistics", command: "midtoken.showStatistics" },
    { label: "Show log", command: "midtoken.showLog" },
    { label: "Open settings", command: "workbench.action.openSettings", argument: "@ext:midtoken.midtoken" },
  ];
}
