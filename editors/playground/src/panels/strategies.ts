/** What each healing strategy completes. */

import { element, find } from "../elements.ts";
import type { StrategyPicture } from "../messages.ts";
import { countPasses, showTime } from "../numbers.ts";

const NAMES: Readonly<Record<string, string>> = {
  exact: "midtoken: all spellings at once",
  greedy: "mask, step by step",
  single: "one token back",
  none: "no healing",
};

/** The number of strategies that are asked. */
export const NUM_STRATEGIES = Object.keys(NAMES).length;

export class Strategies {
  #typed = "";
  #exact = "";

  /** Starts a new comparison for a text whose line ends with `typed`. */
  begin(typed: string): void {
    this.#typed = typed;
    find("strategies").replaceChildren();
  }

  add(picture: StrategyPicture): void {
    if (picture.healing === "exact") {
      this.#exact = picture.completion;
    }
    const differs = picture.completion !== this.#exact;
    const completion = picture.completion === "" ? "(nothing)" : picture.completion + (picture.is_cut ? "…" : "");
    const row = element(
      "div",
      `row ${picture.healing === "exact" ? "exact" : ""} ${differs ? "differs" : ""}`,
      element(
        "span",
        "name",
        NAMES[picture.healing] ?? picture.healing,
        element("span", "cost", `${countPasses(picture.num_forwards)}, ${showTime(picture.took_ms)}`),
      ),
      element("span", "line", element("span", "typed", this.#typed), element("span", "completion", completion)),
    );
    row.dataset.healing = picture.healing;
    find("strategies").append(row);
  }
}
