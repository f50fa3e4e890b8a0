// More points for a sweep: its parameter values, and which combinations have no run yet. Pure.
import * as drafts from "../../core/job-drafts.js";
import * as axes from "./axes.js";
import { keyOf, parameters } from "./runs.js";

/** @typedef {import("./runs.js").Run} Run */

/** Tell whether a value can be typed among others, separated by commas. @param {import("./axes.js").Value} value */
const isTyped = (value) => typeof value === "number" || typeof value === "boolean" || (typeof value === "string" && value !== "" && value === value.trim() && drafts.typed(value) === value && !value.includes(","));

/** With more combinations per run than this the runs are no grid: values were random, for example. */
const SPARSE = 4;

/**
 * Return the parameters that can get more values, as typed, with their values so far; where runs are no
 * grid, with those of the one run, because all combinations of the others are rarely wanted.
 * @param {readonly Run[]} runs @param {Run} model @returns {Record<string, string>}
 */
export function typedValues(runs, model) {
  const all = parameters(runs).map((name) => ({ name, values: [...new Set(runs.map((run) => run.params[name]))] }));
  const isGrid = all.reduce((product, { values }) => product * values.length, 1) <= SPARSE * runs.length;
  return Object.fromEntries(
    all
      .filter(({ values }) => values.every(isTyped))
      .map(({ name, values }) => [name, (isGrid ? values : [model.params[name]]).map(String).join(", ")]),
  );
}

/**
 * Return the combinations of these values that have no run, as changes of one run; an Error if they are too many.
 * @param {readonly Run[]} runs @param {Run} model @param {Record<string, string>} values
 * @returns {{all: number, changes: Record<string, import("./axes.js").Value>[]}}
 */
export function missing(runs, model, values) {
  const known = new Set(runs.map((run) => keyOf(run.params)));
  const all = drafts.grid(Object.keys(values), { values }).map((one) => Object.fromEntries(Object.entries(one).map(([name, text]) => [name, drafts.typed(text)])));
  return { all: all.length, changes: all.filter((one) => !known.has(keyOf({ ...model.params, ...one }))) };
}

/** What stays as it is, in words: the parameters that cannot be typed. @param {Run} model @param {Record<string, string>} values */
export function fixed(model, values) {
  return Object.entries(model.params).filter(([name]) => !(name in values)).map(([name, value]) => `${name} = ${axes.text(value)}`).join(", ");
}
