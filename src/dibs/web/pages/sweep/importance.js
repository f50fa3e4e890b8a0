// How much each parameter says about the metric, the best value so far, and means for two parameters. Pure.
import * as axes from "./axes.js";
import { compare, scored, seeds, spread, varying } from "./runs.js";

/**
 * @typedef {import("./runs.js").Run} Run
 * @typedef {import("./runs.js").Measure} Measure
 * @typedef {{name: string, share: number, trend: number | null}} Importance share of the variance, 0..1; trend: rank correlation, null for words
 * @typedef {{text: string, runs: Run[]}} Bin
 * @typedef {{mean: number | null, count: number}} Cell
 */

/** Bins of a parameter with many values. */
const BINS = 5;
/** Most columns and rows of a heat map. */
const MOST_BINS = 8;
/** Fewer runs than this say nothing about a parameter. */
export const FEWEST = 6;

/** @param {readonly Run[]} runs @param {string} name @param {number} most @returns {Bin[]} in the order of the axis */
export function bins(runs, name, most = BINS) {
  const axis = axes.axisOf(name, runs.map((run) => run.params[name]));
  if (axis.kind === "words" || axis.kind === "steps") {
    return axis.steps.map((text) => ({ text, runs: runs.filter((run) => axes.text(run.params[name]) === text) })).filter((bin) => bin.runs.length);
  }
  const known = runs.filter((run) => typeof run.params[name] === "number").sort((a, b) => Number(a.params[name]) - Number(b.params[name]));
  const many = Math.min(most, known.length);
  return Array.from({ length: many }, (_, i) => {
    const own = known.slice(Math.round((i * known.length) / many), Math.round(((i + 1) * known.length) / many));
    const [low, high] = [own[0].params[name], own[own.length - 1].params[name]];
    return { text: low === high ? axes.text(low) : `${axes.text(low)}–${axes.text(high)}`, runs: own };
  });
}

/**
 * Return the parameters with the part of the metric's variance that each explains alone, most first. Chance alone would
 * explain some of it too, so that is subtracted.
 * @param {readonly Run[]} runs @param {Measure} measure @returns {Importance[]}
 */
export function importance(runs, measure) {
  const known = runs.filter((run) => run.state === "done" && scored(run, measure) !== null);
  if (known.length < FEWEST) return [];
  const value = (/** @type {Run} */ run) => /** @type {number} */ (scored(run, measure));
  const mean = spread(known.map(value)).mean ?? 0;
  const total = known.reduce((sum, run) => sum + (value(run) - mean) ** 2, 0);
  const repeats = seeds(known);
  return varying(known)
    .filter((name) => !repeats.includes(name))
    .map((name) => {
      const groups = bins(known, name);
      const between = groups.reduce((sum, bin) => sum + bin.runs.length * ((spread(bin.runs.map(value)).mean ?? 0) - mean) ** 2, 0);
      const within = (total - between) / Math.max(1, known.length - groups.length);
      const share = total > 0 ? Math.min(1, Math.max(0, (between - (groups.length - 1) * within) / total)) : 0;
      return { name, share, trend: trend(known, name, value) };
    })
    .sort((a, b) => b.share - a.share);
}

/** The rank correlation of a parameter and the metric; null if it is no number. @param {readonly Run[]} runs @param {string} name @param {(run: Run) => number} value */
function trend(runs, name, value) {
  if (!runs.every((run) => typeof run.params[name] === "number")) return null;
  const a = ranks(runs.map((run) => Number(run.params[name])));
  const b = ranks(runs.map(value));
  const middle = (runs.length - 1) / 2;
  const [ab, aa, bb] = a.reduce(([ab0, aa0, bb0], one, i) => [ab0 + (one - middle) * (b[i] - middle), aa0 + (one - middle) ** 2, bb0 + (b[i] - middle) ** 2], [0, 0, 0]);
  return aa && bb ? ab / Math.sqrt(aa * bb) : 0;
}

/** Ranks from 0; equal values share the mean of theirs. @param {readonly number[]} values */
function ranks(values) {
  const order = values.map((value, i) => ({ value, i })).sort((a, b) => a.value - b.value);
  const found = new Array(values.length);
  for (let from = 0; from < order.length; ) {
    let to = from;
    while (to + 1 < order.length && order[to + 1].value === order[from].value) to += 1;
    for (let i = from; i <= to; i += 1) found[order[i].i] = (from + to) / 2;
    from = to + 1;
  }
  return /** @type {number[]} */ (found);
}

/**
 * Return finished runs in the order in which they ended, each with the best value until then.
 * @param {readonly Run[]} runs @param {Measure} measure
 * @returns {{run: Run, value: number, best: number}[]}
 */
export function bestSoFar(runs, measure) {
  const ended = runs.filter((run) => run.state === "done" && run.finished_at && scored(run, measure) !== null);
  ended.sort((a, b) => Date.parse(a.finished_at ?? "") - Date.parse(b.finished_at ?? "") || a.index - b.index);
  /** @type {number | null} */
  let best = null;
  return ended.map((run) => {
    const value = /** @type {number} */ (scored(run, measure));
    if (best === null || compare(value, best, measure.goal) < 0) best = value;
    return { run, value, best };
  });
}

/**
 * Return the mean metric for each pair of values of two parameters.
 * @param {readonly Run[]} runs @param {Measure} measure @param {string} across @param {string} up
 * @returns {{columns: string[], rows: string[], cells: Cell[][]}} rows from the top, the largest value first
 */
export function heat(runs, measure, across, up) {
  const known = runs.filter((run) => run.state === "done" && scored(run, measure) !== null);
  const columns = bins(known, across, MOST_BINS);
  const rows = bins(known, up, MOST_BINS).toReversed();
  const cells = rows.map((row) =>
    columns.map((column) => {
      const own = row.runs.filter((run) => column.runs.includes(run)).map((run) => /** @type {number} */ (scored(run, measure)));
      return { mean: spread(own).mean, count: own.length };
    }),
  );
  return { columns: columns.map((one) => one.text), rows: rows.map((one) => one.text), cells };
}
