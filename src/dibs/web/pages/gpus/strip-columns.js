// The readings of a day as columns of a strip. Pure.

/** @typedef {import("./gpu-facts.js").Day} Day */

/** Pixels of a column. */
export const COLUMN = 3;
/** Seconds from the last reading up to which it counts. */
const NEAR_S = 180;

/**
 * Return the mean of the readings in each column of a view; null without any.
 * @param {readonly number[]} at seconds @param {readonly (number | null)[]} values @param {{from: number, to: number}} view milliseconds @param {number} many
 * @returns {(number | null)[]}
 */
export function columns(at, values, view, many) {
  const wide = (view.to - view.from) / many;
  const sums = new Array(many).fill(0);
  const counts = new Array(many).fill(0);
  at.forEach((second, i) => {
    const value = values[i];
    const column = Math.floor((second * 1000 - view.from) / wide);
    if (value === null || column < 0 || column >= many) return;
    sums[column] += value;
    counts[column] += 1;
  });
  // A reading a minute may be wider than a column: the one before counts on.
  let last = /** @type {number | null} */ (null);
  let age = 0;
  return sums.map((sum, i) => {
    age += wide / 1000;
    if (counts[i]) {
      last = sum / counts[i];
      age = 0;
    }
    return age <= NEAR_S ? last : null;
  });
}

/** The readings nearest to a moment. @param {Day | undefined} day @param {number} second */
export function near(day, second) {
  if (!day) return { use: null, memory: null };
  let best = -1;
  day.at.forEach((at, i) => {
    if (Math.abs(at - second) <= NEAR_S && (best < 0 || Math.abs(at - second) < Math.abs(day.at[best] - second))) best = i;
  });
  return best < 0 ? { use: null, memory: null } : { use: day.use[best], memory: day.memory[best] };
}
