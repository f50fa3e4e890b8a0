// Texts of the page of one job.
import assert from "node:assert/strict";
import { test } from "node:test";
import { draftOf, limit } from "../../src/dibs/web/core/job-drafts.js";
import { endText, eventWords, explained, lowUse, samples } from "../../src/dibs/web/pages/job/job-text.js";
import { seconds } from "../../src/dibs/web/core/job-drafts.js";

test("a time limit is written in the format of the dialog", () => {
  assert.equal(limit(null), "");
  for (const length of [1, 59, 60, 5400, 86_400, 90_061]) assert.equal(seconds(limit(length)), length);
});

test("a retry with changes starts with all options but masked values", () => {
  const job = {
    id: 12, environment: "login shell", command: "python train.py", gpus: 2, name: "vit", cwd: "/data", env: { LR: "1", API_KEY: "***" }, after: [{ id: 3, when: "done" }, { id: 4, when: "end" }],
    priority: 10, time_limit_s: 7200, vram: 2 * 1024 ** 3, retries: 2, tags: ["a", "b"], request: { gpu_ids: ["0", "2"] },
  };
  assert.deepEqual(draftOf(job), { command: "python train.py", gpus: "2", name: "vit", cwd: "/data", like: "12", env: "LR=1", after: "3,4", priority: "10", time: "2h", vram: "2048M", retries: "2", tags: "a, b", gpuIds: "0,2" });
});

test("ends and events are said in words, with GPUs by their number", () => {
  assert.equal(endText({ exit_code: 1, signal: null, cause: "oom" }), "exit code 1, out of memory");
  assert.equal(endText({ exit_code: null, signal: 9, cause: "signal" }), "killed by signal 9");
  assert.equal(endText({ exit_code: null, signal: 15, cause: "timeout" }), "time limit reached");
  const events = [{ kind: "Placed", detail: "GPU-a-1, GPU-b-2" }, { kind: "Ended", detail: "" }, { kind: "Moved", detail: "first" }];
  const job = { attempts: [{ outcome: "failed", exit_code: 3, signal: null, cause: "exit" }] };
  assert.deepEqual(explained(events, job, new Map([["GPU-a-1", 0], ["GPU-b-2", 5]])).map((one) => one.detail), ["on GPU 0, GPU 5", "failed: exit code 3", "first"]);
});

const minutes = (count) => Array.from({ length: count }, (_, i) => 60 * i);

test("a GPU hardly used for long is reported, a short while is not", () => {
  assert.equal(lowUse(minutes(20), minutes(20).map(() => 3)), null);
  assert.equal(lowUse(minutes(46), minutes(46).map(() => 3)), "has been under 20 % for 45 min now");
  assert.equal(lowUse(minutes(60), minutes(60).map((_, i) => (i < 40 ? 3 : 90))), "was under 20 % for 39 min");
  assert.equal(lowUse(minutes(60), minutes(60).map((_, i) => (i === 30 ? null : 3))), null);
  assert.equal(lowUse([], []), null);
});

test("readings of the last hour replace the means of its minutes", () => {
  const at = (second) => new Date(second * 1000).toISOString();
  const gb = 1024 ** 3;
  const history = { recent: [[at(600), 5 * gb, 50, 1, 1], [at(610), 6 * gb, 60, 1, 1]], minutes: [[at(0), gb, 10, 1, 1], [at(300), null, 20, 1, 1], [at(600), 9, 90, 1, 1]] };
  assert.deepEqual(samples(history, 0, Infinity), { xs: [0, 300, 600, 610], memory: [1, null, 5, 6], use: [10, 20, 50, 60], power: [1, 1, 1, 1] });
  assert.deepEqual(samples(history, 600_000, 605_000).xs, [600]);
  assert.deepEqual(samples({ recent: [], minutes: [] }, 0, 1).xs, []);
});

test("the minute in which a job ended is left out: its GPU was idle in part of it", () => {
  const at = (second) => new Date(second * 1000).toISOString();
  const minutesOf = (count) => Array.from({ length: count }, (_, i) => [at(60 * i), null, i === count - 1 ? 0 : 90, null, null]);
  assert.deepEqual(samples({ recent: [], minutes: minutesOf(4) }, 0, 200_000).use, [90, 90, 90]);
  assert.deepEqual(samples({ recent: [], minutes: minutesOf(4) }, 0, 240_000).xs, [0, 60, 120, 180]);
});

test("an event without a text keeps its name", () => {
  assert.equal(eventWords("Submitted"), "submitted");
  assert.equal(eventWords("Unheard"), "Unheard");
});
