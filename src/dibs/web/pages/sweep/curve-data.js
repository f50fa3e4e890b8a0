// The curves of all runs as numbers: smoothed, as means over seeds, and which of them is under the pointer. Pure.
import { spread } from "./runs.js";

/**
 * @typedef {{index: number, job: number, x: number[], y: number[]}} Curve one of GET /v1/sweeps/{id}/curves
 * @typedef {{key: string, indices: number[], x: number[], mean: number[], low: number[], high: number[], count: number}} Band
 */

/** The value of a curve at x between its points; null outside of it. @param {Pick<Curve, "x" | "y">} curve @param {number} at */
export function valueAt({ x, y }, at) {
  const last = x.length - 1;
  if (last < 0 || at < x[0] || at > x[last]) return null;
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= at) low = middle;
    else high = middle;
  }
  if (x[high] === x[low]) return y[high];
  return y[low] + ((y[high] - y[low]) * (at - x[low])) / (x[high] - x[low]);
}

/** Points of a band. */
const GRID = 120;

/**
 * Return the mean of each group of runs over x, with one standard deviation around it.
 * @param {readonly Curve[]} curves @param {readonly {key: string, indices: number[]}[]} groups
 * @returns {Band[]}
 */
export function bands(curves, groups) {
  const byIndex = new Map(curves.map((curve) => [curve.index, curve]));
  return groups.flatMap(({ key, indices }) => {
    const own = indices.flatMap((index) => byIndex.get(index) ?? []);
    if (!own.length) return [];
    const from = Math.min(...own.map((one) => one.x[0]));
    const to = Math.max(...own.map((one) => one.x[one.x.length - 1]));
    /** @type {Band} */
    const band = { key, indices, x: [], mean: [], low: [], high: [], count: own.length };
    for (let i = 0; i <= GRID; i += 1) {
      const at = from + ((to - from) * i) / GRID;
      const { mean, sd } = spread(/** @type {number[]} */ (own.map((one) => valueAt(one, at)).filter((one) => one !== null)));
      if (mean === null) continue;
      band.x.push(at);
      band.mean.push(mean);
      band.low.push(mean - (sd ?? 0));
      band.high.push(mean + (sd ?? 0));
    }
    return [band];
  });
}

/**
 * Return what is nearest to a point of the picture, and its value there; null if nothing is near.
 * @param {readonly {index: number, xs: ArrayLike<number>, ys: ArrayLike<number>}[]} drawn in pixels
 * @param {number} x @param {number} y @param {number} within pixels
 */
export function nearest(drawn, x, y, within) {
  /** @type {{index: number, at: number, distance: number} | null} */
  let found = null;
  for (const { index, xs, ys } of drawn) {
    // Points are in order of x: only those around the pointer are looked at.
    let [low, high] = [0, xs.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle;
      else high = middle;
    }
    for (const at of [low, high]) {
      const distance = Math.hypot(xs[at] - x, ys[at] - y);
      if (distance < (found?.distance ?? within)) found = { index, at, distance };
    }
    const wide = xs[high] - xs[low];
    if (wide > 0 && x >= xs[low] && x <= xs[high]) {
      const distance = Math.abs(ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / wide - y);
      if (distance < (found?.distance ?? within)) found = { index, at: x - xs[low] < xs[high] - x ? low : high, distance };
    }
  }
  return found;
}
