/** The completion, fading with its probability, up to a confidence that a slider sets. */

import { element, find } from "../elements.ts";
import type { Piece, StrategyPicture } from "../messages.ts";
import { showShare } from "../numbers.ts";

export class LikelyGhost {
  readonly #slider = find("confidence") as HTMLInputElement;
  #typed = "";
  #pieces: readonly Piece[] = [];

  constructor() {
    this.#slider.addEventListener("input", () => {
      this.#draw();
    });
  }

  /** Starts a completion of a text whose line ends with `typed`. */
  begin(typed: string): void {
    this.#typed = typed;
  }

  /** Draws the exact strategy's. */
  add(picture: StrategyPicture): void {
    if (picture.healing === "exact") {
      this.#pieces = picture.pieces;
      this.#draw();
    }
  }

  #draw(): void {
    const confidence = Number(this.#slider.value);
    find("confidence-value").textContent = confidence.toFixed(2);
    find("likely").replaceChildren(
      element("span", "typed", this.#typed),
      ...this.#pieces.map((piece) => drawPiece(piece, confidence)),
    );
  }
}

function drawPiece({ shown, probability }: Piece, confidence: number): HTMLElement {
  const drawn = element("span", probability < confidence ? "piece hidden" : "piece", shown);
  drawn.title = `${showShare(probability)}: all up to here is right`;
  drawn.style.setProperty("--probability", probability.toString());
  return drawn;
}
