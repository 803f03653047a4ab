/** Texts to start from. */

export interface Example {
  readonly name: string;
  readonly title: string;
  /** The cursor is at the mark ▏. */
  readonly marked: string;
}

export interface PlacedText {
  readonly text: string;
  /** The offset of the cursor. */
  readonly cursor: number;
}

const MARK = "▏";

export const EXAMPLES: readonly Example[] = [
  {
    name: "= Nod",
    title: "Inside an identifier: each strategy says something else",
    marked: `class Node:
    def __init__(self, value, next):
        self.value = value
        self.next = next


class Stack:
    def __init__(self):
        self.top = None

    def push(self, value):
        self.top = Nod▏
`,
  },
  {
    name: "return Nod",
    title: "Inside an identifier, at the end of a small file",
    marked: `class Node:
    def __init__(self, value):
        self.value = value


def make():
    return Nod▏
`,
  },
  {
    name: '"http:',
    title: "The colon alone is a rare token: in URLs it is part of ://",
    marked: `import urllib.request

url = "http:▏
`,
  },
  {
    name: "fill in",
    title: "There is text after the cursor too",
    marked: `def find_largest(numbers):
    largest = numbers[0]
    for number in num▏
        if number > largest:
            largest = number
    return largest
`,
  },
  {
    name: "größe",
    title: "Letters and emoji are several bytes, which can be several tokens",
    marked: `# 📐 Fläche und Größe
breite, höhe = 3, 4
größe = breite * höhe
print(f"📐 {höhe} m, {br▏
`,
  },
  {
    name: "blanks",
    title: "Runs of blanks are tokens as well",
    marked: `def count(words):
    totals = {}
    for word in words:
     ▏
`,
  },
];

/** Returns the text of an example without the mark. */
export function placeCursor(marked: string): PlacedText {
  const cursor = marked.indexOf(MARK);
  return cursor < 0 ? { text: marked, cursor: marked.length } : { text: marked.replace(MARK, ""), cursor };
}
