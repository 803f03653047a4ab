/** The distribution of the next byte, and the tokenizations behind it. */

import { bar, element, find } from "../elements.ts";
import type { ByteShare, NextBytePicture, Tokenization } from "../messages.ts";
import { showShare, showTime } from "../numbers.ts";

const NUM_TOKENS = 4; // of each tokenization

export function drawNextByte(picture: NextBytePicture): void {
  find("next-byte").replaceChildren(
    element("div", "bytes", ...picture.bytes.map(drawByte)),
    element(
      "p",
      "sources",
      ...picture.tokenizations.map((each) => element("span", "source", ...drawTokenization(each))),
    ),
    element("p", "times", `asked and answered in ${showTime(picture.took_ms)}`),
  );
}

function drawByte({ shown, note, share }: ByteShare, index: number): HTMLElement {
  const name = element("span", "byte", shown);
  name.title = note;
  const percentage = element("span", "share", showShare(share));
  return element("div", "row", name, bar(share, index === 0 ? "chosen" : ""), percentage);
}

function drawTokenization({ tokens, ahead, share }: Tokenization): HTMLElement[] {
  const last = tokens.slice(-NUM_TOKENS);
  const drawn = last.map((token, index) => {
    const isLast = index === last.length - 1;
    const typed = isLast && ahead !== "" && token.endsWith(ahead) ? token.slice(0, -ahead.length) : token;
    const rest = token.slice(typed.length);
    return element("span", "token kept", typed, ...(rest === "" ? [] : [element("span", "ahead", rest)]));
  });
  const more = tokens.length > last.length ? [element("span", "more", "…")] : [];
  return [element("span", "share", showShare(share)), ...more, ...drawn];
}
