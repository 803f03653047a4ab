/**
 * Drives the playground's page in a headless Chromium for tests/e2e/test_playground.py.
 *
 * Usage: driver.ts CHROMIUM URL. Reads a line of JSON for each action from stdin, {"action": NAME, "argument": TEXT}, and
 * writes a line of JSON for each result, {"result": VALUE} or {"error": TEXT}. The first result is written when the
 * editor is shown. The browser ends with stdin.
 */

import { createInterface } from "node:readline";
import { type KeyInput, launch, type Page } from "puppeteer-core";

type Action = (page: Page, argument: string) => Promise<unknown>;

/** What a page should never do: log an error, break its policy, fail to load, or ask another host. */
const problems: string[] = [];

const ACTIONS: Readonly<Record<string, Action>> = {
  /** Types text with the keyboard. */
  type: (page, text) => page.keyboard.type(text, { delay: 30 }),

  /** Inserts text as an input method does: any characters. */
  insert: (page, text) => page.keyboard.sendCharacter(text),

  /** Presses keys together, such as `Control+ArrowRight`. */
  press: async (page, keys) => {
    const names = keys.split("+") as KeyInput[];
    for (const name of names) {
      await page.keyboard.down(name);
    }
    for (const name of names.reverse()) {
      await page.keyboard.up(name);
    }
  },

  /** Clicks the button with this text. */
  click: async (page, name) => {
    for (const button of await page.$$("button")) {
      if ((await button.evaluate((each) => each.textContent)) === name) {
        await button.click();
        return;
      }
    }
    throw new Error(`the page has no button ${name}`);
  },

  /** Returns the ghost text, or null if none is shown. Its lines are in no certain order. */
  ghost: (page) =>
    page.evaluate(() => {
      const parts = [...document.querySelectorAll("[class*=ghost-text]")].map((part) => part.textContent);
      return parts.length === 0 ? null : parts.join("").replaceAll("\u00a0", " ");
    }),

  /** Returns the lines of the editor, with the ghost text. */
  lines: (page) =>
    page.evaluate(() =>
      [...document.querySelectorAll<HTMLElement>(".view-line")]
        .sort((one, other) => parseFloat(one.style.top) - parseFloat(other.style.top))
        .map((line) => line.textContent.replaceAll("\u00a0", " ")),
    ),

  /** Returns what the page shows about the newest text, or null while it is not complete. */
  pictures: (page) =>
    page.evaluate(() => {
      const read = (parent: ParentNode, selector: string): string[] =>
        [...parent.querySelectorAll(selector)].map((found) => found.textContent);
      if (document.body.dataset.answered === undefined) {
        return null;
      }
      return {
        kept: read(document, "#tokens .kept"),
        healed: read(document, "#tokens .healed"),
        paths: [...document.querySelectorAll("#paths .row:not(.typed)")].map((row) => ({
          tokens: read(row, ".token"),
          share: read(row, ".share")[0],
          isChosen: row.classList.contains("chosen"),
        })),
        strategies: [...document.querySelectorAll<HTMLElement>("#strategies .row")].map((row) => ({
          healing: row.dataset.healing,
          line: read(row, ".line")[0],
        })),
      };
    }),

  /** Moves the slider of the confidence. */
  confidence: (page, value) =>
    page.$eval(
      "#confidence",
      (slider, value) => {
        (slider as HTMLInputElement).value = value;
        slider.dispatchEvent(new Event("input"));
      },
      value,
    ),

  /** Returns what is shown of the likely text. */
  likely: (page) => page.$$eval("#likely .piece:not(.hidden)", (pieces) => pieces.map((piece) => piece.textContent)),

  /** Returns the text of the pictures. */
  text: (page) => page.$eval("#pictures", (pictures) => pictures.textContent),

  /** Returns how good the state is, and the text about it. */
  status: (page) =>
    page.evaluate(() => ({
      tone: document.getElementById("status")?.dataset.tone,
      text: document.getElementById("status-text")?.textContent,
    })),

  /** Returns by how many pixels the page is wider than a window of this width. */
  overflow: async (page, width) => {
    await page.setViewport({ width: Number(width), height: 800 });
    return page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  },

  problems: () => Promise.resolve(problems),

  /** Writes a picture of the page to a file. */
  screenshot: (page, path) => page.screenshot({ path }),

  open,
};

let host = ""; // of the page

/** Shows another page, and forgets the problems of the last one. */
async function open(page: Page, url: string): Promise<void> {
  host = new URL(url).host;
  problems.length = 0;
  await page.goto(url);
  await page.waitForSelector(".monaco-editor .view-line", { timeout: 60_000 });
}

async function main([chromium = "", url = ""]: string[]): Promise<void> {
  const browser = await launch({
    executablePath: chromium,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"], // a container's root has no sandbox
    defaultViewport: { width: 1280, height: 800, deviceScaleFactor: 1.25 },
  });
  try {
    const [page] = await browser.pages();
    if (page === undefined) {
      throw new Error("Chromium has no page");
    }
    watch(page);
    await open(page, url);
    report({ result: null });
    for await (const line of createInterface({ input: process.stdin })) {
      report(await act(page, line));
    }
  } finally {
    await browser.close();
  }
}

function watch(page: Page): void {
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warn") {
      problems.push(`${message.type()}: ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => {
    problems.push(`error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  });
  page.on("requestfailed", (request) => {
    problems.push(`failed: ${request.url()}`);
  });
  page.on("request", (request) => {
    const address = new URL(request.url());
    if (address.host !== host && address.protocol !== "data:") {
      problems.push(`another host: ${request.url()}`);
    }
  });
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
