// The axes of a sweep's chart: the kind of their values, the position of a value, and their labels.
import { number } from "../../core/format.js";
import * as plots from "./plots.js";

/**
 * @typedef {string | number | boolean | null | undefined | object} Value
 * @typedef {"steps" | "linear" | "log" | "words"} Kind few numbers, many, many over decades, anything else
 *
 * @typedef {object} Axis
 * @property {string} name
 * @property {Kind} kind
 * @property {number} low the least and the greatest number of `linear` and `log`
 * @property {number} high
 * @property {string[]} steps the values of `steps` and `words` as text, from the bottom to the top
 * @property {boolean} [isClamped] values beyond its ends are drawn at the ends
 *
 * @typedef {[number, number]} Brush from and to on an axis, both in 0..1
 */

/** Up to this many distinct numbers are placed at equal distances. */
const FEW = 6;
/** From this ratio on the axis is logarithmic. */
const DECADES = 100;
/** Up to this many words have a label each. */
const MOST_TEXTS = 12;

/** How a value is written. @param {Value} value */
export function text(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return number(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** @param {Value} value @returns {value is number} */
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/**
 * Return the axis for all values of one parameter or number; missing ones are null or undefined.
 * @param {string} name @param {readonly Value[]} values @param {{isMeasured?: boolean, settled?: readonly Value[]}} [options]
 *   measured numbers are never steps; `settled` are those of finished runs, which set the ends: a young run must not
 * @returns {Axis}
 */
export function axisOf(name, values, { isMeasured = false, settled = [] } = {}) {
  const there = values.filter((value) => value !== null && value !== undefined);
  const numbers = /** @type {number[]} */ (there.filter(isNumber));
  if (!there.length || numbers.length < there.length) {
    const steps = [...new Set(there.map(text))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    return { name, kind: "words", low: 0, high: 0, steps };
  }
  const distinct = [...new Set(numbers)].sort((a, b) => a - b);
  const [low, high] = [distinct[0], distinct[distinct.length - 1]];
  if (!isMeasured && distinct.length <= FEW) return { name, kind: "steps", low, high, steps: distinct.map(text) };
  if (!isMeasured) return { name, kind: low > 0 && high / low >= DECADES ? "log" : "linear", low, high, steps: [] };
  const ends = robust(settled.filter(isNumber), distinct);
  return { name, kind: ends[0] > 0 && ends[1] / ends[0] >= DECADES ? "log" : "linear", low: ends[0], high: ends[1], steps: [], isClamped: true };
}

/** Interquartile ranges beyond the quartiles up to which a value counts as one of the others. */
const FAR = 3;

/**
 * The ends of measured numbers: those of finished runs, without the ones far beyond the others.
 * @param {readonly number[]} settled @param {readonly number[]} all ascending @returns {[number, number]}
 */
function robust(settled, all) {
  const values = settled.length > 1 ? [...settled].sort((a, b) => a - b) : [...all];
  const at = (/** @type {number} */ part) => values[Math.round(part * (values.length - 1))];
  const far = FAR * (at(0.75) - at(0.25));
  const near = far > 0 ? values.filter((one) => one >= at(0.25) - far && one <= at(0.75) + far) : values;
  return [near[0], near[near.length - 1]];
}

/**
 * The position of a value, 0 at the bottom and 1 at the top; null if it has none.
 * @param {Axis} axis @param {Value} value
 */
export function placeOf(axis, value) {
  if (value === null || value === undefined) return null;
  if (axis.kind === "steps" || axis.kind === "words") {
    const at = axis.steps.indexOf(text(value));
    if (at < 0) return null;
    return axis.steps.length === 1 ? 0.5 : at / (axis.steps.length - 1);
  }
  if (!isNumber(value) || (!axis.isClamped && (value < axis.low || value > axis.high))) return null;
  if (axis.low === axis.high) return 0.5;
  const at = Math.min(axis.high, Math.max(axis.low, value));
  return axis.kind === "log" ? Math.log(at / axis.low) / Math.log(axis.high / axis.low) : (at - axis.low) / (axis.high - axis.low);
}

/**
 * The value at a position, as text: the label of a brush.
 * @param {Axis} axis @param {number} place
 */
export function textAt(axis, place) {
  const at = Math.min(1, Math.max(0, place));
  if (axis.kind === "steps" || axis.kind === "words") return axis.steps[Math.round(at * (axis.steps.length - 1))] ?? "";
  return number(axis.kind === "log" ? axis.low * (axis.high / axis.low) ** at : axis.low + at * (axis.high - axis.low));
}

/** Return the marks of an axis; those without a text are between the decades. @param {Axis} axis @returns {{at: number, text: string}[]} */
export function ticks(axis) {
  if (axis.kind === "linear" || axis.kind === "log") {
    if (axis.low === axis.high) return [{ at: 0.5, text: number(axis.low) }];
    const marks = axis.kind === "log" ? plots.logTicks(axis.low, axis.high) : plots.ticks(axis.low, axis.high, 4).map((value) => ({ value, isMajor: true }));
    return marks.map(({ value, isMajor }) => ({ at: placeOf(axis, value) ?? 0, text: isMajor ? plots.tickText(value) : "" }));
  }
  const all = axis.steps.map((one) => ({ at: placeOf(axis, one) ?? 0, text: one }));
  return all.length <= MOST_TEXTS ? all : [all[0], all[all.length - 1]];
}

/** Tell whether a value lies within a brush. @param {Axis} axis @param {Value} value @param {Brush} brush */
export function isWithin(axis, value, [from, to]) {
  const at = placeOf(axis, value);
  return at !== null && at >= from - 1e-9 && at <= to + 1e-9;
}

/**
 * Brushes as one parameter of the URL: "lr:0.25-1,acc:0.8-1"; and back, without invalid ones.
 * @param {ReadonlyMap<string, Brush>} brushes
 */
export function written(brushes) {
  return [...brushes].map(([name, [from, to]]) => `${encodeURIComponent(name)}:${short(from)}-${short(to)}`).join(",");
}

/** @param {number} value */
const short = (value) => String(Number(value.toFixed(3)));

/** @param {string | null | undefined} word @returns {Map<string, Brush>} */
export function read(word) {
  /** @type {Map<string, Brush>} */
  const found = new Map();
  for (const part of (word ?? "").split(",")) {
    const [, name, from, to] = part.match(/^([^:]+):(0|1|0?\.\d+)-(0|1|0?\.\d+)$/) ?? [];
    if (name && Number(from) <= Number(to)) found.set(decode(name), [Number(from), Number(to)]);
  }
  return found;
}

/** @param {string} name */
function decode(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/**
 * Move one end of a brush by a step, as the keyboard does; a brush that covers everything is removed.
 * @param {Brush | undefined} brush @param {"low" | "high"} end @param {number} by
 * @returns {Brush | undefined}
 */
export function nudged(brush, end, by) {
  let [from, to] = brush ?? [0, 1];
  if (end === "low") from = Math.min(to, Math.max(0, from + by));
  else to = Math.max(from, Math.min(1, to + by));
  return from <= 0 && to >= 1 ? undefined : [from, to];
}

/**
 * Return names in the dragged order: `wanted` first if they still exist, new ones before the last.
 * @param {readonly string[]} names @param {readonly string[]} wanted
 */
export function ordered(names, wanted) {
  const kept = wanted.filter((name) => names.includes(name));
  const fresh = names.filter((name) => !kept.includes(name));
  if (!kept.length) return [...names];
  return [...kept.slice(0, -1), ...fresh, ...kept.slice(-1)];
}
