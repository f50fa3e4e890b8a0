// Calculations of sweeps: axes, brushes, ranks, seeds, CSV.
import assert from "node:assert/strict";
import { test } from "node:test";

import * as axes from "../../src/dibs/web/pages/sweep/axes.js";
import { viridis } from "../../src/dibs/web/core/viridis.js";
import { csv } from "../../src/dibs/web/core/csv.js";
import * as extension from "../../src/dibs/web/pages/sweep/extension.js";
import * as runs from "../../src/dibs/web/pages/sweep/runs.js";

const AT = "2026-01-01T00:00:00Z";
const ACC = { metric: "acc", goal: "maximize", by: "last" };
/** A run with these parameters and numbers. */
const run = (index, params, numbers = {}, more = {}) => ({
  job: index + 100, index, params, numbers, summaries: {}, state: "done", started_at: AT, finished_at: "2026-01-01T00:01:00Z", ...more,
});

for (const [what, values, kind] of [
  ["few numbers are steps", [16, 32, 64, 128], "steps"],
  ["many numbers are linear", [0, 1, 2, 3, 4, 5, 6, 7], "linear"],
  ["many over decades are logarithmic", [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2], "log"],
  ["zero has no logarithm", [0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1], "linear"],
  ["text is words", ["adam", "sgd"], "words"],
  ["numbers and text together are words", [1, "auto"], "words"],
  ["truths are words", [true, false], "words"],
  ["no value at all is words", [null, undefined], "words"],
]) {
  test(`axis: ${what}`, () => assert.equal(axes.axisOf("x", values).kind, kind));
}

test("axis: measured numbers are never discrete steps", () => {
  assert.equal(axes.axisOf("acc", [0.1, 0.9], { isMeasured: true }).kind, "linear");
});

test("positions go from bottom to top, and missing values have none", () => {
  const lr = axes.axisOf("lr", [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10]);
  assert.equal(axes.placeOf(lr, 1e-5), 0);
  assert.equal(axes.placeOf(lr, 10), 1);
  assert.ok(Math.abs(axes.placeOf(lr, 1e-2) - 0.5) < 1e-9);
  assert.equal(axes.placeOf(lr, null), null);
  assert.equal(axes.placeOf(lr, 100), null);
  const opt = axes.axisOf("opt", ["sgd", "adamw", "lion"]);
  assert.deepEqual(opt.steps, ["adamw", "lion", "sgd"]);
  assert.equal(axes.placeOf(opt, "lion"), 0.5);
  assert.equal(axes.placeOf(opt, "other"), null);
  const bs = axes.axisOf("bs", [16, 32, 128]);
  assert.equal(axes.placeOf(bs, 32), 0.5);
});

test("an axis with one value has it in the middle", () => {
  assert.equal(axes.placeOf(axes.axisOf("x", [3]), 3), 0.5);
  const flat = axes.axisOf("acc", [0.5, 0.5], { isMeasured: true });
  assert.equal(axes.placeOf(flat, 0.5), 0.5);
  assert.equal(axes.ticks(flat).length, 1);
});

test("ticks: every step has a label, a range its two ends", () => {
  assert.deepEqual(axes.ticks(axes.axisOf("bs", [16, 32])), [{ at: 0, text: "16" }, { at: 1, text: "32" }]);
  assert.deepEqual(axes.ticks(axes.axisOf("x", [0, 1, 2, 3, 4, 5, 6])).map((one) => one.text), ["0", "6"]);
  const many = axes.axisOf("name", Array.from({ length: 50 }, (_, i) => `model-${i}`));
  assert.deepEqual(axes.ticks(many).map((one) => one.text), ["model-0", "model-49"]);
});

test("the label at a position is a value of the axis", () => {
  assert.equal(axes.textAt(axes.axisOf("opt", ["a", "b", "c"]), 0.6), "b");
  assert.equal(axes.textAt(axes.axisOf("x", [0, 1, 2, 3, 4, 5, 10]), 0.5), "5");
});

test("brushes survive the URL, and invalid ones are ignored", () => {
  const brushes = new Map([["lr", [0.25, 1]], ["a:b,c", [0, 0.5]]]);
  assert.deepEqual(axes.read(axes.written(brushes)), brushes);
  assert.deepEqual(axes.read("lr:0.9-0.1,x,y:2-3,:0-1,%:0-1"), new Map([["%", [0, 1]]]));
  assert.deepEqual(axes.read(null), new Map());
});

test("a brush keeps values within it and no missing ones", () => {
  const axis = axes.axisOf("acc", [0, 1], { isMeasured: true });
  assert.ok(axes.isWithin(axis, 0.8, [0.8, 1]));
  assert.ok(!axes.isWithin(axis, 0.79, [0.8, 1]));
  assert.ok(!axes.isWithin(axis, null, [0, 1]));
});

test("the keyboard moves an end, and a brush over everything is removed", () => {
  assert.deepEqual(axes.nudged(undefined, "low", 0.1), [0.1, 1]);
  assert.equal(axes.nudged([0.1, 1], "low", -0.1), undefined);
  assert.deepEqual(axes.nudged([0.5, 0.6], "high", -0.5), [0.5, 0.5]);
});

test("a dragged order is kept, with new names before the last", () => {
  assert.deepEqual(axes.ordered(["a", "b", "acc"], []), ["a", "b", "acc"]);
  assert.deepEqual(axes.ordered(["a", "b", "c", "acc"], ["b", "a", "acc"]), ["b", "a", "c", "acc"]);
  assert.deepEqual(axes.ordered(["a", "acc"], ["gone", "acc", "a"]), ["acc", "a"]);
});

const SOME = [
  run(0, { lr: 0.1, seed: 0, bs: 16 }, { acc: 0.5, step: 9 }),
  run(1, { lr: 0.1, seed: 1, bs: 16 }, { acc: 0.7, step: 9 }),
  run(2, { lr: 0.2, seed: 0, bs: 16 }, { acc: 0.9, step: 9 }),
  run(3, { lr: 0.2, seed: 1, bs: 16 }, {}, { state: "failed" }),
];

test("only parameters that vary are listed, including seeds", () => {
  assert.deepEqual(runs.varying(SOME), ["lr", "seed"]);
  assert.deepEqual(runs.seeds(SOME), ["seed"]);
  assert.deepEqual(runs.varying([]), []);
});

test("metrics: counters come after measurements, and the time is always listed", () => {
  assert.deepEqual(runs.metrics(SOME), ["acc", "step", "seconds"]);
  assert.deepEqual(runs.metrics([run(0, {})]), ["seconds"]);
});

test("ranks: best first, missing values last, whatever the goal", () => {
  assert.deepEqual(runs.ranked(SOME, ACC).map((one) => one.index), [2, 1, 0, 3]);
  assert.deepEqual(runs.ranked(SOME, { ...ACC, goal: "minimize" }).map((one) => one.index), [0, 1, 2, 3]);
});

const COURSE = [
  run(0, {}, { acc: 0.5 }, { summaries: { acc: { min: 0.1, max: 0.9, mean: 0.6, count: 3 } } }),
  run(1, {}, { acc: 0.7 }, { summaries: { acc: { min: 0.6, max: 0.7, mean: 0.65, count: 2 } } }),
  run(2, {}, { acc: 0.8 }),
];
for (const [goal, by, scores, order] of [
  ["maximize", "last", [0.5, 0.7, 0.8], [2, 1, 0]],
  ["maximize", "best", [0.9, 0.7, 0.8], [0, 2, 1]],
  ["maximize", "mean", [0.6, 0.65, 0.8], [2, 1, 0]],
  ["minimize", "best", [0.1, 0.6, 0.8], [0, 1, 2]],
]) {
  test(`runs are compared by the ${by} to ${goal}, or by the last value if no other is known`, () => {
    const measure = { metric: "acc", goal, by };
    assert.deepEqual(COURSE.map((one) => runs.scored(one, measure)), scores);
    assert.deepEqual(runs.ranked(COURSE, measure).map((one) => one.index), order);
    assert.equal(runs.lastOnly(COURSE, measure), by === "last" ? 0 : 1);
  });
}

test("the duration of a run has one value, and none is missing", () => {
  assert.equal(runs.lastOnly(COURSE, { metric: "seconds", goal: "minimize", by: "best" }), 0);
  assert.equal(runs.scored(COURSE[0], { metric: "seconds", goal: "minimize", by: "best" }), 60);
});

test("the CSV has minimum, maximum and mean of a metric if known", () => {
  const [head, first, , last] = runs.sheet(COURSE);
  assert.deepEqual(head.slice(3), ["acc", "seconds", "acc min", "acc max", "acc mean"]);
  assert.deepEqual(first.slice(3), [0.5, 60, 0.1, 0.9, 0.6]);
  assert.deepEqual(last.slice(5), [undefined, undefined, undefined]);
});

test("the goal is that of the sweep for its metric, otherwise guessed by name", () => {
  assert.equal(runs.goalOf({ metric: "loss", goal: "maximize" }, "loss"), "maximize");
  assert.equal(runs.goalOf({ metric: "loss", goal: "maximize" }, "val_error"), "minimize");
  assert.equal(runs.goalOf({ metric: null, goal: null }, "acc"), "maximize");
  assert.equal(runs.goalOf({ metric: null, goal: null }, "seconds"), "minimize");
});

test("seeds are grouped with mean and standard deviation", () => {
  const [first, second] = runs.grouped(SOME, ACC);
  assert.deepEqual(first.params, { lr: 0.2, bs: 16 });
  assert.deepEqual([first.mean, first.sd, first.runs.length], [0.9, null, 2]);
  assert.ok(Math.abs(second.mean - 0.6) < 1e-9);
  assert.ok(Math.abs(second.sd - Math.SQRT2 / 10) < 1e-9);
});

test("the remaining time is estimated from finished and running jobs", () => {
  const now = Date.parse(AT) + 30_000;
  const active = run(9, {}, {}, { state: "running", finished_at: null });
  const queued = run(10, {}, {}, { state: "queued", started_at: null, finished_at: null });
  assert.equal(runs.remaining([SOME[0], active, queued], now), 30 + 60);
  assert.equal(runs.remaining([active], now), null);
  assert.equal(runs.remaining(SOME, now), null);
});

test("CSV values are quoted where needed and formulas are escaped", () => {
  assert.equal(csv([["a", 1, null], ['x"y', "=1+2", "-3"], ["l1\nl2", "@x", "-x"]]), "a,1,\r\n\"x\"\"y\",'=1+2,-3\r\n\"l1\nl2\",'@x,'-x\r\n");
});

test("the CSV has a column for every parameter and metric", () => {
  const [head, first, , , last] = runs.sheet(SOME);
  assert.deepEqual(head, ["job", "index", "state", "lr", "seed", "bs", "acc", "step", "seconds"]);
  assert.deepEqual(first, [100, 0, "done", 0.1, 0, 16, 0.5, 9, 60]);
  assert.deepEqual(last.slice(6), [null, null, 60]);
});

for (const [what, params, found] of [
  ["a seed that varies", [{ lr: 1, seed: 3 }, { lr: 1, seed: 9 }], "seed"],
  ["a constant seed", [{ random_state: 7 }, { random_state: 7 }], "random_state"],
  ["none without a seed", [{ lr: 1 }], null],
  ["none if it is not an integer", [{ seed: "a" }, { seed: 1 }], null],
  ["no fold, because the number of folds is limited", [{ fold: 1 }, { fold: 2 }], null],
]) {
  test(`new seeds: ${what}`, () => assert.equal(runs.freeSeed(params.map((one, i) => run(i, one))), found));
}

test("new seeds are not used by any run", () => {
  assert.deepEqual(runs.freshSeeds([run(0, { seed: 3 }), run(1, { seed: 41 })], "seed", 3), [42, 43, 44]);
});

const GRID = [run(0, { lr: 0.1, opt: "sgd", net: { deep: 1 } }), run(1, { lr: 1e-7, opt: "adam", net: { deep: 1 } })];

test("a grid is extended where its values can be typed; other parameters are kept and named", () => {
  const values = extension.typedValues(GRID, GRID[0]);
  assert.deepEqual(values, { lr: "0.1, 1e-7", opt: "sgd, adam" });
  assert.equal(extension.fixed(GRID[0], values), 'net = {"deep":1}');
  const { all, changes } = extension.missing(GRID, GRID[0], { ...values, lr: "0.1, 1e-7, 3" });
  assert.equal(all, 6);
  assert.deepEqual(changes, [{ lr: 0.1, opt: "adam" }, { lr: 1e-7, opt: "sgd" }, { lr: 3, opt: "sgd" }, { lr: 3, opt: "adam" }]);
  assert.throws(() => extension.missing(GRID, GRID[0], { lr: Array.from({ length: 2001 }, (_, i) => i).join(",") }), /more than 2000/);
});

test("random values are no grid: the form starts with the values of one run", () => {
  const drawn = Array.from({ length: 9 }, (_, i) => run(i, { lr: i / 10, wd: i / 7 }));
  assert.deepEqual(extension.typedValues(drawn, drawn[2]), { lr: "0.2", wd: String(2 / 7) });
});

for (const value of ["", " x", "a,b", "1", "true", null, undefined, [1]]) {
  test(`a value that would be parsed differently is kept: ${JSON.stringify(value)}`, () => {
    assert.deepEqual(extension.typedValues([run(0, { x: value })], run(0, { x: value })), {});
  });
}

test("viridis begins dark and ends light", () => {
  assert.equal(viridis(0), "rgb(68 1 84)");
  assert.equal(viridis(1), "rgb(253 231 37)");
  assert.equal(viridis(7), viridis(1));
});
