// Numbers and times as text.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../../src/dibs/web/core/format.js";

const NOW = Date.parse("2026-01-02T12:00:00Z");
/** @param {number} seconds */
const at = (seconds) => new Date(NOW + seconds * 1000).toISOString();

const SPANS = [[0, "0 s"], [59.4, "59 s"], [59.6, "1 min"], [61, "1 min"], [3569, "59 min"], [3571, "1h00m"], [4020, "1h07m"], [86369, "23h59m"], [86399, "1d"], [86400, "1d"], [100_000, "1d 4h"], [172_800, "2d"], [-5, "0 s"], [null, ""], [NaN, ""]];
for (const [seconds, text] of SPANS) test(`a span of ${seconds} s is "${text}"`, () => assert.equal(format.span(seconds), text));

test("a time is relative to now", () => {
  assert.equal(format.ago(at(-2), NOW), "just now");
  assert.equal(format.ago(at(-300), NOW), "5 min ago");
  assert.equal(format.ago(at(720), NOW), "in 12 min");
  assert.equal(format.ago(null, NOW), "");
});

test("an expected start has a middle and a range, in one unit if possible", () => {
  assert.deepEqual(format.expected({ earliest: at(18 * 60), latest: at(40 * 60) }, NOW), { about: "~29 min", range: "18–40 min" });
  assert.deepEqual(format.expected({ earliest: at(40), latest: at(40) }, NOW), { about: "~40 s", range: "" });
  assert.deepEqual(format.expected({ earliest: at(50), latest: at(600) }, NOW), { about: "~5 min", range: "50 s–10 min" });
  assert.deepEqual(format.expected({ earliest: at(-60), latest: at(2) }, NOW), { about: "now", range: "" });
  assert.equal(format.expected(null, NOW), null);
});

test("an expected start is shown with its GPUs if known", () => {
  const start = (low, high, gpus) => ({ earliest: at(low), latest: at(high), gpu_indices: gpus });
  assert.equal(format.starts(start(-1, 0, [0]), NOW), "now, on GPU 0");
  assert.equal(format.starts(start(18 * 60, 40 * 60, [3]), NOW), "in ~29 min (18–40 min), on GPU 3");
  assert.equal(format.starts(start(720, 720, [0, 1]), NOW), "in ~12 min, on GPUs 0, 1");
  assert.equal(format.starts(start(720, 720, []), NOW), "in ~12 min");
  assert.equal(format.starts(null, NOW), "");
});

test("sizes are formatted", () => {
  assert.equal(format.size(0), "0 B");
  assert.equal(format.size(1536 * 1024 ** 2), "1.5 GB");
  assert.equal(format.size(80 * 1024 ** 3), "80 GB");
  assert.equal(format.size(1023), "1023 B");
  assert.equal(format.size(null), "");
  assert.equal(format.sizeOf(44 * 1024 ** 3, 80 * 1024 ** 3), "44/80 GB");
  assert.equal(format.sizeOf(null, 512 * 1024 ** 2), "?/512 MB");
});

test("counts have singular and plural nouns", () => {
  assert.equal(format.count(1234567), "1\u202f234\u202f567");
  assert.equal(format.plural(1, "job"), "1 job");
  assert.equal(format.plural(0, "job"), "0 jobs");
});

const NUMBERS = [[0.92274, "0.9227"], [0.00047, "4.7e-4"], [0.0001, "1e-4"], [12.5, "12.5"], [3, "3"], [1.5e7, "15000000"], [2.5e6 + 0.5, "2.5e6"], [0.5, "0.5"], [-0.001, "-1e-3"], [null, ""]];
for (const [value, text] of NUMBERS) test(`the number ${value} is "${text}"`, () => assert.equal(format.number(value), text));

const LOGS = [
  ["Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    main()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"],
  ["epoch 1\repoch 2\repoch 3\n", "epoch 3"],
  ["\x1b[31mValueError: bad\x1b[0m\n\n----\n", "ValueError: bad"],
  ["sh: 1: trian: not found\n", "sh: 1: trian: not found"],
  ["RuntimeError: real\ncleaning up\n", "RuntimeError: real"],
  ["", ""],
  ["\n\n===\n", ""],
];
for (const [log, line] of LOGS) test(`the telling line of ${JSON.stringify(log).slice(0, 40)}`, () => assert.equal(format.lastLine(log), line));

test("the end of a job is described", () => {
  assert.equal(format.ending({ exit_code: 1, signal: null, cause: "exit" }), "exit 1");
  assert.equal(format.ending({ exit_code: null, signal: 9, cause: "signal" }), "signal 9");
  assert.equal(format.ending({ exit_code: null, signal: null, cause: "lost" }), "lost");
});

test("a job says why it waits or how it ended, each once", () => {
  const job = (more) => format.why({ state: "failed", reason: null, cause: null, exit_code: null, signal: null, finished_at: "2026-11-18T08:00:00Z", ...more });
  assert.equal(job({ cause: "exit", exit_code: 1 }), "exit 1");
  assert.equal(job({ cause: "oom", exit_code: 1 }), "out of memory, exit 1");
  assert.equal(job({ cause: "signal", signal: 9 }), "signal 9");
  assert.equal(job({ cause: "gpu", exit_code: 2 }), "gpu, exit 2");
  assert.equal(job({ cause: "dependency", state: "cancelled" }), "dependency");
  assert.equal(job({ state: "done", exit_code: 0 }), "");
  assert.equal(job({ state: "queued", finished_at: null, reason: "held by you" }), "held by you");
});
