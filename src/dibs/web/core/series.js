// Series for charts: smoothed, over steps or time, and several of them over one axis. Pure.

/** @typedef {{x: number[], y: (number | null)[]}} Series */

/**
 * Return values as their exponential mean, without the pull of the first one to itself; 0 changes nothing.
 * @template {number | null} T
 * @param {readonly T[]} values @param {number} weight 0..1 @returns {T[]}
 */
export function smoothed(values, weight) {
  if (!weight) return [...values];
  let [sum, total] = [0, 0];
  return values.map((value) => {
    if (value === null) return value;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return /** @type {T} */ (sum / total);
  });
}

/**
 * Return several series over the union of their places, null where one has none.
 * @param {readonly Series[]} all @returns {{xs: number[], ys: (number | null)[][]}}
 */
export function aligned(all) {
  const xs = [...new Set(all.flatMap((one) => one.x))].sort((a, b) => a - b);
  const places = new Map(xs.map((x, i) => [x, i]));
  const ys = all.map((one) => {
    /** @type {(number | null)[]} */
    const values = new Array(xs.length).fill(null);
    one.x.forEach((x, i) => (values[/** @type {number} */ (places.get(x))] = one.y[i]));
    return values;
  });
  return { xs, ys };
}

/**
 * Return a reported metric over its steps, over time in seconds, or, where it has neither, over its own count.
 * @param {{at: (string | null)[], steps: (number | null)[], values: (number | null)[]}} course one of GET /v1/jobs/{id}/numbers
 * @param {boolean} isTime @param {number} [zero] seconds to begin from: the start of the run
 * @returns {Series & {axis: "step" | "time" | "count"}}
 */
export function overAxis({ at, steps, values }, isTime, zero = 0) {
  const hasTimes = at.every((one) => one !== null);
  const hasSteps = steps.every((one) => one !== null);
  const axis = isTime && hasTimes ? "time" : hasSteps ? "step" : hasTimes ? "time" : "count";
  const places = values.map((_, i) => (axis === "time" ? Date.parse(at[i] ?? "") / 1000 - zero : axis === "step" ? /** @type {number} */ (steps[i]) : i + 1));
  /** @type {Series} */
  const found = { x: [], y: [] };
  places.forEach((x, i) => {
    // After a restart from a checkpoint steps come again: what follows counts.
    while (found.x.length && found.x[found.x.length - 1] >= x) {
      found.x.pop();
      found.y.pop();
    }
    found.x.push(x);
    found.y.push(values[i]);
  });
  return { ...found, axis };
}
