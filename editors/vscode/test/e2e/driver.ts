/**
 * Drives VS Code in a headless Chromium for tests/e2e/test_vscode.py.
 *
 * Usage: driver.ts CHROMIUM URL. Reads a line of JSON for each action from stdin, {"action": NAME, "argument": TEXT}, and
 * writes a line of JSON for each result, {"result": VALUE} or {"error": TEXT}. The first result is written when the
 * editor is shown. The browser ends with stdin.
 */

import { createInterface } from "node:readline";
import { type KeyInput, launch, type Page } from "puppeteer-core";

type Action = (page: Page, argument: string) => Promise<unknown>;

const ACTIONS: Readonly<Record<string, Action>> = {
  /** Types text with the keyboard. */
  type: async (page, text) => {
    await page.keyboard.type(text, { delay: 30 });
    await draw(page);
  },

  /** Presses keys together, such as `Control+Alt+ArrowRight`. */
  press: async (page, keys) => {
    const names = keys.split("+") as KeyInput[];
    for (const name of names) {
      await page.keyboard.down(name);
    }
    for (const name of names.reverse()) {
      await page.keyboard.up(name);
    }
    await draw(page);
  },

  /** Returns the ghost text, or null if none is shown. Its lines are in no certain order. */
  ghost: (page) =>
    page.evaluate(() => {
      const parts = [...document.querySelectorAll("[class*=ghost-text]")].map((part) => part.textContent);
      return parts.length === 0 ? null : parts.join("").replaceAll("\u00a0", " ");
    }),

  /** Returns the lines of the editor from top to bottom, with the ghost text and without it. */
  screen: (page) =>
    page.evaluate(() => {
      const read = (line: Element) => line.textContent.replaceAll("\u00a0", " ").replaceAll("\u200b", "");
      const withoutGhost = (line: Element) => {
        const copy = line.cloneNode(true) as Element;
        copy.querySelectorAll("[class*=ghost-text-decoration]").forEach((part) => {
          part.remove();
        });
        return copy;
      };
      const all = [...document.querySelectorAll(".monaco-editor .view-line")];
      all.sort((one, other) => one.getBoundingClientRect().top - other.getBoundingClientRect().top);
      const own = all.filter((line) => line.closest(".suggest-preview-text") === null).map(withoutGhost);
      const hasGhost = document.querySelector("[class*=ghost-text]") !== null;
      return { lines: all.map(read), ownLines: own.map(read), hasGhost };
    }),

  /** Returns what the status item says, or null if it is hidden. */
  status: (page) =>
    page.evaluate(
      () => document.querySelector("[id='midtoken.midtoken.midtoken.status']")?.getAttribute("aria-label") ?? null,
    ),

  /** Returns the texts of the notifications. */
  notifications: (page) =>
    page.evaluate(() =>
      [...document.querySelectorAll(".notification-list-item-message")].map((message) => message.textContent),
    ),

  /** Presses a button of a notification. */
  answer: async (page, text) => {
    const button = await page.waitForSelector(`.notifications-toasts ::-p-xpath(.//a[text()=${JSON.stringify(text)}])`);
    await button?.click();
  },

  /** Returns the text of the terminal that is shown. */
  terminal: (page) =>
    page.evaluate(() =>
      [...document.querySelectorAll(".xterm-rows > div")].map((row) => row.textContent.trimEnd()).join("\n"),
    ),

  /** Runs a command of the command palette by its name. */
  command: async (page, name) => {
    await page.keyboard.press("F1");
    await page.waitForSelector(".quick-input-widget input", { visible: true });
    await page.keyboard.type(name);
    const row = await page.waitForSelector(`.quick-input-list .monaco-list-row[aria-label^=${JSON.stringify(name)}]`);
    await row?.click();
  },

  /** Sets the size of the window, such as `1000x500`. */
  resize: async (page, size) => {
    const [width = 0, height = 0] = size.split("x").map(Number);
    await page.setViewport({ width, height, deviceScaleFactor: 1.5 });
    await draw(page);
  },

  /** Writes a picture of the window to a file. */
  screenshot: (page, path) => page.screenshot({ path }),
};

/** Returns when the keys are handled and what follows at once is drawn. */
async function draw(page: Page): Promise<void> {
  await page.evaluate(
    () =>
      new Promise((resolve) => {
        requestAnimationFrame(() => requestAnimationFrame(resolve));
      }),
  );
}

async function main([chromium = "", url = ""]: string[]): Promise<void> {
  const browser = await launch({
    executablePath: chromium,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"], // a container's root has no sandbox
    defaultViewport: { width: 1100, height: 700, deviceScaleFactor: 1.5 },
  });
  try {
    const [page] = await browser.pages();
    if (page === undefined) {
      throw new Error("Chromium has no page");
    }
    await page.goto(url);
    await page.waitForSelector(".monaco-editor .view-line", { timeout: 60_000 });
    await page.click(".monaco-editor .view-lines");
    report({ result: null });
    for await (const line of createInterface({ input: process.stdin })) {
      report(await act(page, line));
    }
  } finally {
    await browser.close();
  }
}

async function act(page: Page, line: string): Promise<object> {
  const { action, argument } = JSON.parse(line) as { action: string; argument: string };
  const perform = ACTIONS[action];
  if (perform === undefined) {
    return { error: `there is no action ${action}` };
  }
  try {
    return { result: (await perform(page, argument)) ?? null };
  } catch (error) {
    return { error: String(error) };
  }
}

function report(message: object): void {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

await main(process.argv.slice(2));
