import assert from "node:assert/strict";
import { test } from "node:test";

import { formatCursor } from "../src/cursor.ts";

test("lines and columns count from 1", () => {
  assert.equal(formatCursor("a.py", 0, "", 0), "a.py:1:1");
  assert.equal(formatCursor("a.py", 11, "return Nod", 10), "a.py:12:11");
});

test("a character of two UTF-16 code units is one column", () => {
  assert.equal(formatCursor("a.py", 0, "😀é x", 3), "a.py:1:3");
});
