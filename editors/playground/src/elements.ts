/** Makes elements of the page. Texts become text nodes, never HTML. */

type Child = Node | string;

/** Returns a new element with classes, separated by blanks, and children. */
export function element(tag: string, classes: string, ...children: Child[]): HTMLElement {
  const made = document.createElement(tag);
  made.className = classes;
  made.append(...children);
  return made;
}

/** Returns the element of the page with this id. */
export function find(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) {
    throw new Error(`the page has no element ${id}`);
  }
  return found;
}

/** Returns a bar whose length shows a share of 1. The part of it beyond `best` is pale. */
export function bar(share: number, classes: string, best = share): HTMLElement {
  return element("span", `bar ${classes}`, fill("all", share), fill("best", best));
}

function fill(classes: string, share: number): HTMLElement {
  const filled = element("span", classes);
  filled.style.width = `${(100 * share).toString()}%`;
  return filled;
}
