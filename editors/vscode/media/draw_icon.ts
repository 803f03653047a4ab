/** Draws icon.svg as icon.png: `node media/draw_icon.ts CHROMIUM`. */

import { fileURLToPath } from "node:url";
import { launch } from "puppeteer-core";

const SIZE = 128; // what the list of extensions shows at most

const browser = await launch({ executablePath: process.argv[2] ?? "chromium", args: ["--no-sandbox"] });
try {
  const page = await browser.newPage();
  await page.setViewport({ width: SIZE, height: SIZE });
  await page.goto(new URL("icon.svg", import.meta.url).href);
  await page.screenshot({ path: fileURLToPath(new URL("icon.png", import.meta.url)), omitBackground: true });
} finally {
  await browser.close();
}
