// Texts and charts of the pages about GPUs.
import assert from "node:assert/strict";
import * as strips from "../../src/dibs/web/pages/gpus/strip-columns.js";
import { shares, users } from "../../src/dibs/web/pages/people/shares.js";
import { test } from "node:test";

import * as gpuFacts from "../../src/dibs/web/pages/gpus/gpu-facts.js";

const GIB = 1024 ** 3;
const at = (minute, second = 0) => new Date(Date.UTC(2026, 0, 1, 0, minute, second)).toISOString();
const row = (moment, memory, use = 50) => [moment, memory, use, 200, 60];

test("a day: minutes first, then single readings, in percent of the card", () => {
  const day = gpuFacts.dayOf({ id: "a", minutes: [row(at(0), 8 * GIB), row(at(1), 8 * GIB), row(at(2), 8 * GIB)], recent: [row(at(1, 30), 40 * GIB), row(at(1, 35), 40 * GIB)] }, 80 * GIB);
  assert.deepEqual(day.memory, [10, 10, 50, 50]);
  assert.equal(day.at.length, 4);
});

test("a day: without readings the line has a gap", () => {
  const day = gpuFacts.dayOf({ id: "a", minutes: [row(at(0), GIB), row(at(30), GIB)], recent: [] }, GIB);
  assert.deepEqual(day.use, [50, null, 50]);
});

test("a day: unknown values stay unknown, and without history there are no points", () => {
  assert.deepEqual(gpuFacts.dayOf({ id: "a", minutes: [[at(0), null, null, null, null]], recent: [] }, GIB).memory, [null]);
  assert.deepEqual(gpuFacts.dayOf(undefined, GIB).at, []);
});

const GPU = { fault: null, drained: null, foreign: null, state: "free", idle_since: null, waiters: 0 };
for (const [what, gpu, said] of [
  ["free", GPU, "free"],
  ["idle", { ...GPU, idle_since: at(0) }, "free, idle for 10 min"],
  ["drained", { ...GPU, state: "drained", drained: "drained by root: new fan" }, "drained by root: new fan"],
  ["foreign", { ...GPU, state: "foreign", foreign: "pid 7 of root" }, "pid 7 of root"],
  ["at fault", { ...GPU, state: "unhealthy", fault: "fell off the bus" }, "fell off the bus"],
  ["leased", { ...GPU, state: "leased" }, ""],
  ["reserved", { ...GPU, reservation: { user: "ann" } }, "reserved"],
]) {
  test(`a GPU that is ${what}`, () => assert.equal(gpuFacts.statusText(gpu, Date.parse(at(10))), said));
}

test("the strip of a GPU has the mean of each column, and nothing where nothing was read", () => {
  const view = { from: 0, to: 4000_000 };
  assert.deepEqual(strips.columns([100, 500, 1500, 3900], [10, 30, 50, null], view, 4), [20, 50, null, null]);
  const day = { at: [100, 200], use: [5, 6], memory: [7, 8], power: [], temperature: [] };
  assert.deepEqual(strips.near(day, 190), { use: 6, memory: 8 });
  assert.deepEqual(strips.near(day, 900), { use: null, memory: null });
});

test("the bar of people has every GPU once, whatever it is", () => {
  const gpu = (more) => ({ id: String(Math.random()), index: 0, holders: [], foreign: null, processes: [], state: "free", ...more });
  const gpus = [gpu({ state: "leased", holders: [{ user: "me", uid: 1 }] }), gpu(), gpu(), gpu({ foreign: "x", state: "foreign" }), gpu({ state: "drained" })];
  const parts = shares(gpus, users(gpus, []), "me");
  assert.deepEqual(parts.map((one) => [one.text, one.gpus, one.kind]), [["me", 1, "me"], ["without a lease", 1, "foreign"], ["free", 2, "free"], ["out of use", 1, "out"]]);
  assert.equal(parts.reduce((sum, one) => sum + one.gpus, 0), gpus.length);
});

test("everybody is listed once, with GPUs, tickets and use without a lease", () => {
  const gpu = (index, holders, more = {}) => ({ id: `G${index}`, index, holders, foreign: null, processes: [], ...more });
  const held = (user, since, more = {}) => ({ user, uid: 1, pid: 1, job: null, since, vram: null, ...more });
  const gpus = [gpu(0, [held("ann", "2026-01-02"), held("ann", "2026-01-01")]), gpu(1, [held("bob", null)]), gpu(2, [], { foreign: "used without a lease", processes: [{ user: "eve" }] }), gpu(3, [held(null, null, { uid: 7 })])];
  const found = users(gpus, [{ user: "bob", gpus: 2 }, { user: "cat", gpus: 1 }]);
  assert.deepEqual(found.map((one) => [one.user, one.gpus, one.waiting, one.foreign, one.since]), [["bob", 1, 2, [], null], ["ann", 1, 0, [], "2026-01-01"], ["uid 7", 1, 0, [], null], ["cat", 0, 1, [], null], ["eve", 0, 0, [2], null]]);
});
