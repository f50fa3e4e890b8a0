// GPU usage as numbers: the stack of a day, sums of projects and sweeps, and other users now. Pure.

/**
 * @typedef {{day: string, project: string, sweep: string | null, gpu_s: number, watched_s: number, idle_s: number}} Sum one of GET /v1/usage
 * @typedef {object} Group what is stacked: a project, or a sweep of it
 * @property {string} name
 * @property {number[]} hours by day
 * @property {number} total
 * @property {number} watched hours in which it was seen how busy GPUs were, and those of them in which they were idle
 * @property {number} idle
 */

/** Groups with a separate colour. */
export const MOST_GROUPS = 8;
export const REST = "all others";

/** The name of what a sum counts for. @param {Sum} sum @param {"project" | "sweep"} by */
function nameOf(sum, by) {
  if (by === "project") return sum.project;
  return sum.sweep === null ? `${sum.project}, without a sweep` : `${sum.project}/${sum.sweep}`;
}

/**
 * Return the stack, most hours first; groups after the first few are summed as one.
 * @param {readonly Sum[]} sums @param {readonly string[]} days @param {"project" | "sweep"} by
 * @returns {Group[]}
 */
export function grouped(sums, days, by) {
  /** @type {Map<string, Group>} */
  const found = new Map();
  for (const sum of sums) {
    const name = nameOf(sum, by);
    const group = found.get(name) ?? { name, hours: days.map(() => 0), total: 0, watched: 0, idle: 0 };
    add(group, days.map((day) => (day === sum.day ? sum.gpu_s / 3600 : 0)), sum.watched_s / 3600, sum.idle_s / 3600);
    found.set(name, group);
  }
  const all = [...found.values()].sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1));
  if (all.length <= MOST_GROUPS) return all;
  const rest = { name: REST, hours: days.map(() => 0), total: 0, watched: 0, idle: 0 };
  for (const one of all.slice(MOST_GROUPS - 1)) add(rest, one.hours, one.watched, one.idle);
  return [...all.slice(0, MOST_GROUPS - 1), rest];
}

/** @param {Group} group @param {readonly number[]} hours @param {number} watched @param {number} idle */
function add(group, hours, watched, idle) {
  hours.forEach((one, i) => {
    group.hours[i] += one;
    group.total += one;
  });
  group.watched += watched;
  group.idle += idle;
}

/** All groups together. @param {readonly Group[]} groups */
export function totals(groups) {
  return groups.reduce((sum, one) => ({ total: sum.total + one.total, watched: sum.watched + one.watched, idle: sum.idle + one.idle }), { total: 0, watched: 0, idle: 0 });
}

/**
 * The end of the vertical axis: the next of 1, 2, 5, 10, 20, ... that no value exceeds.
 * @param {number} most
 */
export function ceiling(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= most) ?? 10 * power;
}

/**
 * Return the other users who hold GPUs now, and for how many hours, most first. Earlier use is in `GET /v1/usage`.
 * @param {readonly import("../../core/types.js").Gpu[]} gpus @param {string | undefined} me @param {number} now
 * @returns {{user: string, gpus: number, hours: number | null}[]}
 */
export function others(gpus, me, now) {
  /** @type {Map<string, {user: string, gpus: number, hours: number | null}>} */
  const found = new Map();
  for (const holder of gpus.flatMap((gpu) => gpu.holders)) {
    const user = holder.user ?? "somebody";
    if (user === me) continue;
    const one = found.get(user) ?? { user, gpus: 0, hours: 0 };
    one.gpus += 1;
    // The sum is unknown if one of them is.
    one.hours = one.hours === null || !holder.since ? null : one.hours + Math.max(0, now - Date.parse(holder.since)) / 3_600_000;
    found.set(user, one);
  }
  return [...found.values()].sort((a, b) => (b.hours ?? 0) - (a.hours ?? 0));
}

/** The sums as rows for CSV. @param {readonly Sum[]} sums @returns {unknown[][]} */
export function sheet(sums) {
  const hours = (/** @type {number} */ seconds) => Number((seconds / 3600).toFixed(4));
  const rows = [...sums].sort((a, b) => (a.day < b.day ? -1 : a.day > b.day ? 1 : b.gpu_s - a.gpu_s));
  return [
    ["day", "project", "sweep", "gpu_hours", "watched_hours", "idle_hours"],
    ...rows.map((one) => [one.day, one.project, one.sweep, hours(one.gpu_s), hours(one.watched_s), hours(one.idle_s)]),
  ];
}
