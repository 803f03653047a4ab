/** The text before the cursor, cut into the tokenizer's tokens, with the heal point. */

import { element, find } from "../elements.ts";
import type { HealingPicture } from "../messages.ts";
import { count } from "../numbers.ts";

export function drawTokens(picture: HealingPicture): void {
  find("tokens-note").replaceChildren(
    ...(picture.num_healed_bytes === 0
      ? ["Nothing that you type next can change these tokens, so nothing is taken back here."]
      : [
          "What you type next cannot change the tokens before the heal point. The ",
          element("em", "healed", count(picture.num_healed_bytes, "byte")),
          " after it are taken back.",
        ]),
  );
  find("tokens").replaceChildren(
    element("span", "more", "…"),
    ...picture.kept_tokens.map((token) => element("span", "token kept", token)),
    element("span", "heal-point", element("span", "label", "heal point")),
    ...picture.healed_tokens.map((token) => element("span", "token healed", token)),
    element("span", "cursor"),
  );
}
