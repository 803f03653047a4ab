import assert from "node:assert/strict";
import { test } from "node:test";
import { EXAMPLES, placeCursor } from "../src/examples.ts";

test("each example has one cursor, inside a line or before its end", () => {
  for (const { name, marked } of EXAMPLES) {
    assert.equal(marked.split("▏").length, 2, name);
    assert.ok(marked.endsWith("\n"), name);
  }
});

test("the cursor is where the mark was", () => {
  assert.deepEqual(placeCursor("ab▏c"), { text: "abc", cursor: 2 });
});

test("without a mark the cursor is at the end", () => {
  assert.deepEqual(placeCursor("abc"), { text: "abc", cursor: 3 });
});
