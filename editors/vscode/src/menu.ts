/** The menu of the status item. */

import { commands, window } from "vscode";

interface Entry {
  readonly label: string;
  readonly command: string;
  readonly arguments?: readonly unknown[];
}

/** A command that the language server offers (LSP, Command). */
interface Offer {
  readonly title: string;
  readonly command: string;
  readonly arguments?: readonly unknown[];
}

/**
 * Lets the user choose a command and runs it. `languageId` is the language of the active file, if there is one, and
 * `uri` its URI, as the language server knows it.
 */
export async function showMenu(
  isEnabled: boolean,
  languages: readonly string[] | undefined,
  languageId: string | undefined,
  uri: string | undefined,
): Promise<void> {
  const entries = [...(isEnabled ? await listOffers(uri) : []), ...listEntries(isEnabled, languages, languageId)];
  const chosen = await window.showQuickPick(entries, { title: "midtoken" });
  if (chosen !== undefined) {
    await commands.executeCommand(chosen.command, ...(chosen.arguments ?? []));
  }
}

/** Returns what the language server offers: to snooze, and to turn suggestions off or on. */
async function listOffers(uri: string | undefined): Promise<Entry[]> {
  try {
    const offers = await commands.executeCommand<Offer[]>("midtoken.listCommands", uri ?? "");
    return offers.map(({ title, ...offer }) => ({ label: title, ...offer }));
  } catch {
    return []; // it does not run, or is older
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
    { label: "Open settings", command: "workbench.action.openSettings", arguments: ["@ext:midtoken.midtoken"] },
  ];
}
