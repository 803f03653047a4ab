/**
 * The covering tree: one row for each crossing, with the healed bytes in the same columns of all rows.
 *
 * The last token of each row passes the cursor, which is a vertical line.
 */

import { bar, element, find } from "../elements.ts";
import type { Cell, HealingPicture, SpelledPath } from "../messages.ts";
import { count, countPasses, showShare, showTime } from "../numbers.ts";

export function drawPaths(picture: HealingPicture): void {
  const { paths, cells, times } = picture;
  find("paths-note").replaceChildren(
    cells.length === 0
      ? "Any token may follow. The most likely one is shown."
      : "Each row spells it with other tokens; the last one passes the cursor. One forward pass weighs them all.",
  );
  const table = find("paths");
  table.style.setProperty("--num-columns", countColumns(cells).toString());
  table.style.setProperty("--num-cells", cells.length.toString());
  table.style.setProperty("--num-rows", (1 + paths.length).toString());
  table.replaceChildren(
    element(
      "div",
      "row typed",
      element("span", "share", "typed"),
      element("span", ""),
      element("span", "path", ...cells.map((cell) => drawCell(cell))),
    ),
    ...paths.map((path) => drawRow(path, cells)),
    element("span", "cursor-line"),
  );
  const numRead = times.num_context_tokens - times.num_cached_tokens;
  find("times").textContent = [
    `healing ${showTime(times.prompt_ms)}`,
    `model ${showTime(times.model_ms)} in ${countPasses(times.num_forwards)}`,
    `choice ${showTime(times.choice_ms)}`,
    `${count(numRead, "token")} read, ${times.num_cached_tokens.toString()} remembered`,
  ].join(" · ");
}

function drawRow(path: SpelledPath, cells: readonly Cell[]): HTMLElement {
  const tokens: HTMLElement[] = [];
  let at = 0;
  path.token_cells.forEach((length, index) => {
    const classes = index < path.num_shared ? "token branch shared" : "token branch";
    tokens.push(element("span", classes, ...cells.slice(at, at + length).map(drawCell)));
    at += length;
  });
  const ahead = element("span", "ahead", path.next_token);
  tokens.push(element("span", "token crossing", ...cells.slice(at).map(drawCell), ahead));
  const shares = bar(path.share, path.is_chosen ? "chosen" : "", path.best_share);
  shares.title = `${showShare(path.share)} with any token that may come next, ${showShare(path.best_share)} with the best`;
  return element(
    "div",
    path.is_chosen ? "row chosen" : "row",
    element("span", "share", showShare(path.share)),
    shares,
    element("span", "path", ...tokens),
  );
}

function drawCell(cell: Cell): HTMLElement {
  const drawn = element("span", "cell", cell.shown);
  drawn.style.setProperty("--columns", cell.width.toString());
  return drawn;
}

function countColumns(cells: readonly Cell[]): number {
  return cells.reduce((total, cell) => total + cell.width, 0);
}
