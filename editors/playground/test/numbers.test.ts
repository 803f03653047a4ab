import assert from "node:assert/strict";
import { test } from "node:test";
import { count, countPasses, showShare, showTime } from "../src/numbers.ts";

test("a share has as many digits as it needs, and is zero only if it is", () => {
  const shown = [1, 0.9996, 0.9986, 0.504, 0.0014, 0.00001, 0].map(showShare);
  assert.deepEqual(shown, ["100 %", "100 %", "99.9 %", "50.4 %", "0.14 %", "< 0.01 %", "0 %"]);
});

test("a time has a digit after the point while it is short", () => {
  assert.deepEqual([0.04, 3.14, 12.7].map(showTime), ["0.0 ms", "3.1 ms", "13 ms"]);
});

test("one is singular", () => {
  assert.deepEqual(
    [count(1, "pass", "passes"), count(0, "token"), count(2, "token")],
    ["1 pass", "0 tokens", "2 tokens"],
  );
});

test("an answer without a forward pass is told as such", () => {
  assert.deepEqual([0, 1, 2].map(countPasses), ["no new pass", "1 pass", "2 passes"]);
});
