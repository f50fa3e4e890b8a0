// Calculations of sweeps: axes, brushes, ranks, seeds, CSV.
import assert from "node:assert/strict";
import { test } from "node:test";

import * as series from "../../src/dibs/web/core/series.js";
import { differences } from "../../src/dibs/web/pages/compare/differences.js";
import * as axes from "../../src/dibs/web/pages/sweep/axes.js";
import * as curveData from "../../src/dibs/web/pages/sweep/curve-data.js";
import * as importance from "../../src/dibs/web/pages/sweep/importance.js";
import * as plots from "../../src/dibs/web/pages/sweep/plots.js";
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

test("ticks: every step has a label, a range round numbers, decades marks between them", () => {
  assert.deepEqual(axes.ticks(axes.axisOf("bs", [16, 32])), [{ at: 0, text: "16" }, { at: 1, text: "32" }]);
  assert.deepEqual(axes.ticks(axes.axisOf("x", [0, 1, 2, 3, 4, 5, 6])).map((one) => one.text), ["0", "2", "4", "6"]);
  const log = axes.ticks(axes.axisOf("lr", [1e-5, 1e-4, 1e-3, 1e-2, 2e-2, 3e-2, 4e-2]));
  assert.deepEqual(log.filter((one) => one.text).map((one) => one.text), ["1e-5", "1e-4", "1e-3", "0.01"]);
  assert.ok(log.length > 25 && log.every((one) => one.at >= -1e-9 && one.at <= 1 + 1e-9));
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

test("a young run or a broken one does not stretch the axis of the metric", () => {
  const settled = [0.8, 0.82, 0.85, 0.87, 0.9, 0.91, 0.05];
  const axis = axes.axisOf("acc", [...settled, 0.001], { isMeasured: true, settled });
  assert.deepEqual([axis.low, axis.high], [0.8, 0.91]);
  assert.equal(axes.placeOf(axis, 0.001), 0);
  assert.ok(axes.isWithin(axis, 0.05, [0, 0.1]));
  const young = axes.axisOf("acc", [0.1, 0.2], { isMeasured: true, settled: [] });
  assert.deepEqual([young.low, young.high], [0.1, 0.2]);
});

test("round ticks, and scales without a few far points", () => {
  assert.deepEqual(plots.ticks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(plots.ticks(-3, 17, 4), [0, 5, 10, 15]);
  assert.deepEqual(plots.ticks(2, 2), [2]);
  assert.deepEqual(plots.logTicks(0.5, 8).filter((one) => one.isMajor).map((one) => one.value), [0.5, 1, 2, 5]);
  const values = Array.from({ length: 1000 }, (_, i) => i / 1000);
  const scale = plots.scaleOf([...values, 1e9], {});
  assert.ok(scale.high < 1.1);
  assert.ok(plots.scaleOf([...values, 1e9], { kept: [5] }).high > 5);
  assert.equal(plots.placeOf({ low: 1, high: 100, isLog: true }, 10), 0.5);
  assert.equal(plots.valueAt({ low: 1, high: 100, isLog: true }, 0.5), 10);
  assert.deepEqual([1e-4, 0.25, 2000, 12_000, 0].map(plots.tickText), ["1e-4", "0.25", "2K", "12K", "0"]);
  // Two ticks never have one text.
  assert.deepEqual([1250, 1500, 1750].map(plots.tickText), ["1.25K", "1.5K", "1.75K"]);
});

test("curves are smoothed without a pull to their first value", () => {
  assert.deepEqual(series.smoothed([4, 2, 0], 0), [4, 2, 0]);
  assert.deepEqual(series.smoothed([5, 5, 5], 0.9).map((one) => Number(one.toFixed(9))), [5, 5, 5]);
  const found = series.smoothed([0, 10, 0, 10], 0.6);
  assert.ok(found[1] > 5 && found[1] < 10 && found[2] < found[1]);
});

test("seeds have a mean and a deviation at each place where any of them is known", () => {
  const curves = [{ index: 0, job: 1, x: [0, 10], y: [0, 10] }, { index: 1, job: 2, x: [0, 10], y: [2, 12] }, { index: 2, job: 3, x: [0, 20], y: [1, 1] }];
  const [band, other] = curveData.bands(curves, [{ key: "a", indices: [0, 1] }, { key: "b", indices: [2] }, { key: "none", indices: [9] }]);
  assert.equal(band.mean[0], 1);
  assert.equal(band.mean.at(-1), 11);
  assert.ok(Math.abs(band.high[0] - 1 - Math.SQRT2) < 1e-9);
  assert.deepEqual([other.count, other.low[3]], [1, 1]);
  assert.equal(curveData.valueAt(curves[0], 5), 5);
  assert.equal(curveData.valueAt(curves[0], 11), null);
});

test("the pointer finds the curve that is nearest, also between its points", () => {
  const drawn = [{ index: 7, xs: [0, 100], ys: [0, 100] }, { index: 8, xs: [0, 50, 100], ys: [50, 80, 50] }];
  assert.equal(curveData.nearest(drawn, 50, 52, 20)?.index, 7);
  assert.equal(curveData.nearest(drawn, 50, 78, 20)?.index, 8);
  assert.equal(curveData.nearest(drawn, 10, 200, 20), null);
});

test("importance finds the parameter that matters, with its direction", () => {
  const runs = Array.from({ length: 40 }, (_, i) => run(i, { lr: (i % 10) / 10, opt: i % 3 ? "a" : "b", seed: i }, { acc: (i % 10) / 10 }));
  const found = importance.importance(runs, { metric: "acc", goal: "maximize", by: "last" });
  assert.deepEqual(found.map((one) => one.name), ["lr", "opt"]);
  assert.ok(found[0].share > 0.8 && found[0].trend > 0.99);
  assert.ok(found[1].share < 0.3 && found[1].trend === null);
  assert.deepEqual(importance.importance(runs.slice(0, 3), { metric: "acc", goal: "maximize", by: "last" }), []);
});

test("the best so far only improves, in the order in which runs ended", () => {
  const ended = (index, minute, acc, state = "done") => run(index, { x: index }, { acc }, { state, finished_at: `2026-01-01T00:${String(minute).padStart(2, "0")}:00Z` });
  const course = importance.bestSoFar([ended(0, 30, 0.5), ended(1, 10, 0.4), ended(2, 20, 0.3), ended(3, 5, 0.9, "failed")], { metric: "acc", goal: "maximize", by: "last" });
  assert.deepEqual(course.map((one) => [one.run.index, one.best]), [[1, 0.4], [2, 0.4], [0, 0.5]]);
});

test("a heat map has the mean of each pair of values", () => {
  const runs = [[1, "a", 2], [1, "a", 4], [2, "b", 6]].map(([x, y, acc], index) => run(index, { x, y }, { acc }));
  const map = importance.heat(runs, { metric: "acc", goal: "maximize", by: "last" }, "x", "y");
  assert.deepEqual([map.columns, map.rows], [["1", "2"], ["b", "a"]]);
  assert.deepEqual(map.cells.map((row) => row.map((cell) => cell.mean)), [[null, 6], [3, null]]);
});

test("series of several jobs share one axis; after a restart the later steps count", () => {
  assert.deepEqual(series.aligned([{ x: [1, 3], y: [10, 30] }, { x: [2, 3], y: [5, null] }]), { xs: [1, 2, 3], ys: [[10, null, 30], [null, 5, null]] });
  const course = { at: ["2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z", "2026-01-01T00:00:30Z"], steps: [1, 2, 1], values: [3, 2, 4] };
  assert.deepEqual(series.overAxis(course, false), { x: [1], y: [4], axis: "step" });
  assert.deepEqual(series.overAxis(course, true, Date.parse("2026-01-01T00:00:00Z") / 1000), { x: [10, 20, 30], y: [3, 2, 4], axis: "time" });
  assert.equal(series.overAxis({ at: [null], steps: [null], values: [1] }, true).axis, "count");
});

test("differences between jobs are found in parameters, options, words and metrics", () => {
  const job = (more) => ({ command: "python t.py --lr 0.1 --fast", params: null, report: null, cwd: "/a", gpus: 1, vram: null, cpus: null, mem: null, priority: 0, project: "p", tags: [], attempt: 1, environment: "", env: {}, ...more });
  const rows = differences([job({}), job({ command: "python t.py --lr 0.2 bs=4", gpus: 2, report: { loss: 0.5 } })]);
  assert.deepEqual(rows.map((row) => [row.name, ...row.values]), [["lr", "0.1", "0.2"], ["fast", "yes", ""], ["bs", "", "4"], ["GPUs", "1", "2"], ["loss", "", "0.5"], ["Command", "python t.py --lr 0.1 --fast", "python t.py --lr 0.2 bs=4"]]);
  assert.deepEqual(differences([job({}), job({})]), []);
  assert.ok(differences([job({}), job({})], true).some((row) => row.name === "Folder" && row.isEqual));
  assert.deepEqual(differences([job({ params: { lr: 1 } }), job({ params: { lr: 2 } })])[0].values, ["1", "2"]);
});

const searched = (search, early_stop = null) => ({ metric: "loss", goal: "minimize", early_stop, search: search && { sampler: "tpe", trials: 4, seed: 0, ended: null, ...search } });
const inState = (state, cause = null) => ({ job: 1, index: 0, params: {}, state, cause, numbers: {}, summaries: {}, started_at: null, finished_at: null });

test("a search says what it looks for, how far it is, and why it ended", () => {
  assert.equal(runs.searchText(searched(null), []), null);
  const half = [inState("done"), inState("cancelled", "early"), inState("running")];
  assert.deepEqual(runs.searchText(searched({}), half), { what: "TPE search for the lowest loss", progress: "2 of 4 trials", state: "running", why: "trials are added as results come in" });
  assert.equal(runs.searchText(searched({}), [...half, inState("queued")]).why, "the last trials run or wait");
  assert.equal(runs.searchText(searched({}), Array(4).fill(inState("done"))).state, "done");
  assert.equal(runs.searchText(searched({ ended: "the first 3 failed" }), half).why, "ended: the first 3 failed");
});

test("a random search says what it is, and expects no further points", () => {
  const random = { ...searched({ sampler: "random", trials: 9 }), goal: "maximize", metric: "acc" };
  const half = [inState("done"), inState("running")];
  assert.deepEqual(runs.searchText(random, half), { what: "Random search for the highest acc", progress: "1 of 2 trials", state: "running", why: "all points were drawn when it was submitted" });
  assert.equal(runs.searchText({ ...random, metric: null }, half).what, "Random search");
  assert.equal(runs.searchText(random, [inState("done")]).state, "done");
  assert.equal(runs.planned(random, half), 2);
});

test("a search has as many runs as it has trials, unless it has ended", () => {
  const half = [inState("done"), inState("running")];
  assert.equal(runs.planned(searched({}), half), 4);
  assert.equal(runs.planned(searched({ ended: "cancelled" }), half), 2);
  assert.equal(runs.planned(searched(null), half), 2);
});

test("a run that its sweep stopped is called so, and one that a user cancelled is not", () => {
  assert.deepEqual([inState("cancelled", "early"), inState("cancelled"), inState("done")].map(runs.wordOf), ["stopped early", "cancelled", "done"]);
});
