// GPU usage as numbers: the stack of a day, sums of users, projects, sweeps, groups and days, and other users now. Pure.

/**
 * @typedef {import("../../core/types.js").Sum} Sum
 * @typedef {import("../../core/types.js").PersonDay} PersonDay
 * @typedef {"user" | "project" | "sweep" | "group" | "day"} By
 * @typedef {object} Group what is stacked: a user, a project, a sweep of it, a group of jobs, or a day. Hours; null: only its user knows
 * @property {string} name
 * @property {number[]} hours that it held GPUs, by day
 * @property {number} total
 * @property {number | null} used by utilization; what was watched stands for the whole time
 * @property {number} watched hours in which it was seen how busy GPUs were, and those of them in which they were idle
 * @property {number | null} idle
 * @property {number | null} waited of the jobs that began
 * @property {number | null} jobs
 */

/** Groups with a separate colour. */
export const MOST_GROUPS = 8;
export const REST = "all others";
/** @type {readonly By[]} */
export const BYS = ["user", "project", "sweep", "group", "day"];

/** The name of what a sum counts for. @param {Sum} sum @param {By} by */
function nameOf(sum, by) {
  if (by === "project") return sum.project;
  if (by === "group") return sum.group || "no group";
  if (by === "day") return sum.day;
  return sum.sweep === null ? `${sum.project}, without a sweep` : `${sum.project}/${sum.sweep}`;
}

/** @param {string} name @param {number} days @returns {Group} */
const empty = (name, days) => ({ name, hours: Array(days).fill(0), total: 0, used: 0, watched: 0, idle: 0, waited: 0, jobs: 0 });

/**
 * Return the stack, most hours first, days in their order; groups after the first few are summed as one.
 * @param {readonly Sum[]} sums @param {readonly string[]} days @param {By} by
 * @returns {Group[]}
 */
export function grouped(sums, days, by) {
  /** @type {Map<string, Group>} */
  const found = new Map();
  for (const sum of sums) {
    const name = nameOf(sum, by);
    const group = found.get(name) ?? empty(name, days.length);
    const hours = days.map((day) => (day === sum.day ? sum.gpu_s / 3600 : 0));
    const used = sum.watched_s ? (sum.gpu_s * sum.used_s) / sum.watched_s / 3600 : 0;
    add(group, { name, hours, total: sum.gpu_s / 3600, used, watched: sum.watched_s / 3600, idle: sum.idle_s / 3600, waited: sum.waited_s / 3600, jobs: sum.jobs });
    found.set(name, group);
  }
  if (by === "day") return [...found.values()].sort((a, b) => (a.name < b.name ? 1 : -1));
  return few([...found.values()], days.length);
}

/**
 * Return the users of the machine, most hours first. How busy GPUs were, and who waited, is known of our own jobs only.
 * @param {readonly PersonDay[]} people @param {readonly Sum[]} sums ours @param {readonly string[]} days @param {string | undefined} me
 * @returns {Group[]}
 */
export function users(people, sums, days, me) {
  /** @type {Map<string, Group>} */
  const found = new Map();
  for (const one of people) {
    const group = found.get(one.user) ?? { ...empty(one.user, days.length), used: null, idle: null, waited: null, jobs: null };
    group.total += one.gpu_s / 3600;
    const day = days.indexOf(one.day);
    if (day >= 0) group.hours[day] += one.gpu_s / 3600;
    found.set(one.user, group);
  }
  const mine = me === undefined ? undefined : found.get(me);
  if (mine) {
    const ours = grouped(sums, days, "project");
    const { used, watched, idle, waited, jobs } = totals(ours);
    // Both count the same GPUs: leases all of them as far as the daemon ran, jobs also those of before.
    mine.hours = mine.hours.map((one, i) => Math.max(one, ours.reduce((sum, group) => sum + group.hours[i], 0)));
    mine.total = mine.hours.reduce((sum, one) => sum + one, 0);
    Object.assign(mine, { used, watched, idle, waited, jobs });
  }
  return few([...found.values()], days.length);
}

/** The largest groups, and all others as one. @param {Group[]} all @param {number} days */
function few(all, days) {
  all.sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1));
  if (all.length <= MOST_GROUPS) return all;
  const rest = empty(REST, days);
  for (const one of all.slice(MOST_GROUPS - 1)) add(rest, one);
  return [...all.slice(0, MOST_GROUPS - 1), rest];
}

/** Add one group to another; what is not known of one is not known of both. @param {Group} group @param {Group} more */
function add(group, more) {
  const sum = (/** @type {number | null} */ a, /** @type {number | null} */ b) => (a === null || b === null ? null : a + b);
  more.hours.forEach((one, i) => void (group.hours[i] += one));
  group.total += more.total;
  group.watched += more.watched;
  group.used = sum(group.used, more.used);
  group.idle = sum(group.idle, more.idle);
  group.waited = sum(group.waited, more.waited);
  group.jobs = sum(group.jobs, more.jobs);
}

/** All groups together. @param {readonly Group[]} groups */
export function totals(groups) {
  const { total, used, watched, idle, waited, jobs } = groups.reduce((sum, one) => (add(sum, one), sum), empty("", groups[0]?.hours.length ?? 0));
  return { total, used, watched, idle, waited, jobs };
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

const HOURS = ["gpu_hours", "used_hours", "watched_hours", "idle_hours", "waited_hours", "jobs"];
/** @param {number} seconds */
const inHours = (seconds) => Number((seconds / 3600).toFixed(4));
/** @param {{day: string, gpu_s: number}} a @param {{day: string, gpu_s: number}} b */
const byDay = (a, b) => (a.day < b.day ? -1 : a.day > b.day ? 1 : b.gpu_s - a.gpu_s);

/** The sums as rows for CSV. @param {readonly Sum[]} sums @returns {unknown[][]} */
export function sheet(sums) {
  const used = (/** @type {Sum} */ one) => inHours(one.watched_s ? (one.gpu_s * one.used_s) / one.watched_s : 0);
  return [
    ["day", "project", "group", "sweep", ...HOURS],
    ...[...sums].sort(byDay).map((one) => [one.day, one.project, one.group, one.sweep, inHours(one.gpu_s), used(one), inHours(one.watched_s), inHours(one.idle_s), inHours(one.waited_s), one.jobs]),
  ];
}

/** The users as rows for CSV. @param {readonly PersonDay[]} people @returns {unknown[][]} */
export function userSheet(people) {
  return [["day", "user", "gpu_hours"], ...[...people].sort(byDay).map((one) => [one.day, one.user, inHours(one.gpu_s)])];
}
