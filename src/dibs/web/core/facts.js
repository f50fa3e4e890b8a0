// The summary line of the overview, and the texts on the GPU cards. Pure: the time is passed in.
import { clock, expected, gpuNames, ms, span } from "./format.js";

/**
 * @typedef {import("./types.js").Gpu} Gpu
 * @typedef {import("./types.js").Job} Job
 * @typedef {{id: number, name: string, state: import("./types.js").Word, command: string, gpus: number, priority: number, reason: string, hint: string | null, expected_start: import("./types.js").ExpectedStart | null, unknown: {why: string, hint: string | null} | null}} InLine
 */

/** Hours for which failures are counted. */
export const FAILED_FOR_H = 24;

/**
 * Return how many jobs failed lately, with "+" when the list that was counted is full.
 * @param {readonly Job[]} failures newest first @param {boolean} isMore whether there are more than these @param {number} now
 */
export function failedLately(failures, isMore, now) {
  const since = now - FAILED_FOR_H * 3600_000;
  const count = failures.filter((job) => ms(job.finished_at) >= since).length;
  return { count, text: `${count}${isMore && count === failures.length ? "+" : ""}` };
}

/**
 * Return how many GPUs are free, and when the next will be: by the first expected start, or at the latest by a time limit.
 * @param {readonly Gpu[]} gpus @param {readonly InLine[]} line @param {readonly Job[]} running @param {number} now
 * @returns {{count: number, more: string}}
 */
export function freeGpus(gpus, line, running, now) {
  const free = gpus.filter((gpu) => gpu.state === "free" && gpu.reserved_for == null && !gpu.reservation).length;
  if (free || !gpus.length) return { count: free, more: free ? "jobs start at once" : "" };
  const starts = line.flatMap((one) => (one.expected_start && one.gpus ? [one.expected_start] : []));
  if (starts.length) {
    const first = starts.reduce((a, b) => (ms(a.earliest) + ms(a.latest) <= ms(b.earliest) + ms(b.latest) ? a : b));
    return { count: 0, more: `next in ${expected(first, now)?.about}` };
  }
  const limits = running.flatMap((job) => (job.gpu_ids.length && job.time_limit_s && job.started_at ? [ms(job.started_at) + job.time_limit_s * 1000] : []));
  return { count: 0, more: limits.length ? `next in ${span((Math.min(...limits) - now) / 1000)} at the latest` : "end unknown: no time limits" };
}

/**
 * Say when the first of the waiting jobs is expected to start, else why the first of the line waits.
 * @param {readonly InLine[]} line @param {number} now
 * @returns {{value: string, more: string, job: number | null}}
 */
export function nextStart(line, now) {
  if (!line.length) return { value: "–", more: "no job is waiting", job: null };
  const known = line.filter((one) => one.expected_start);
  if (!known.length) return { value: "unknown", more: `job ${line[0].id}: ${line[0].unknown?.why ?? line[0].reason}`, job: line[0].id };
  const first = known.reduce((a, b) => (ms(a.expected_start?.earliest) <= ms(b.expected_start?.earliest) ? a : b));
  const found = expected(first.expected_start, now);
  return { value: found?.about ?? "", more: `${found?.range ? `${found.range}, ` : ""}job ${first.id}`, job: first.id };
}

/**
 * Return in how many columns cards stand: at most `most`, and never one card alone in the last row.
 * @param {number} cards @param {number} most
 */
export function columnsFor(cards, most) {
  const few = Math.min(cards, most);
  for (let columns = few; columns > 1; columns -= 1) if (cards % columns === 0) return columns;
  for (let columns = few; columns > 1; columns -= 1) if (cards % columns > 1) return columns;
  // A card alone is worse than narrow ones.
  let columns = few + 1;
  while (cards > 3 && cards % columns === 1) columns += 1;
  return cards > 3 ? columns : 1;
}

/**
 * Return the job of our queue that has a GPU, or null. Job ids of other users belong to their own queues.
 * @param {{user: string | null, job: string | null} | undefined} held @param {string | undefined} me
 */
export function ownJob(held, me) {
  return held && held.user === me && /^\d+$/.test(String(held.job)) ? Number(held.job) : null;
}

/**
 * Return who has a GPU as text, and which state its card shows.
 * @param {Gpu} gpu @param {string | undefined} me
 * @returns {{text: string, job: number | null, kind: "mine" | "leased" | "foreign" | "drained" | "unhealthy" | "blocked" | "reserved" | "free", since: string | null}}
 */
export function holder(gpu, me) {
  const [first, ...others] = gpu.holders;
  const since = first?.since ?? null;
  if (gpu.fault) return { text: gpu.fault, job: null, kind: "unhealthy", since };
  if (gpu.blocked && !first) return { text: blockedText(gpu.blocked), job: null, kind: "blocked", since };
  const more = others.length ? `and ${others.length} more` : "";
  const job = ownJob(first, me);
  const borrower = others.find((one) => one.loan);
  if (borrower) return lent(first, borrower, me);
  if (job !== null) return { text: more, job, kind: "mine", since };
  if (first) return { text: `leased by ${first.user ?? first.uid}${more && ` ${more}`}`, job: null, kind: first.user === me ? "mine" : "leased", since };
  if (gpu.foreign) return { text: `foreign process: ${gpu.foreign.replace(/^used without a lease by /, "")}`, job: null, kind: "foreign", since };
  if (gpu.drained) return { text: gpu.drained, job: null, kind: "drained", since };
  if (gpu.reservation) return { text: reservedText(gpu.reservation, me), job: null, kind: "reserved", since };
  if (gpu.reserved_for != null) return { text: `reserved for job ${gpu.reserved_for}`, job: null, kind: "free", since };
  if (gpu.kept_by) return { text: `free, left for others (${gpu.kept_by})`, job: null, kind: "free", since };
  return { text: "free", job: null, kind: "free", since };
}

/** Say for whom a GPU is reserved, and until when. @param {NonNullable<Gpu["reservation"]>} one @param {string | undefined} me */
export const reservedText = (one, me) => `reserved for ${one.user === me ? "you" : one.user} until ${clock(one.to, Date.parse(one.from))}`;

/**
 * Return who has leased a GPU without using it, and to whom it is lent.
 * @param {Gpu["holders"][number]} holder @param {Gpu["holders"][number]} borrower @param {string | undefined} me
 * @returns {{text: string, job: number | null, kind: "mine" | "leased", since: string | null}}
 */
function lent(holder, borrower, me) {
  const lease = `idle lease of ${holder.user ?? holder.uid}`;
  const job = ownJob(borrower, me);
  if (job !== null) return { text: `lent: ${lease}`, job, kind: "mine", since: borrower.since };
  return { text: `${lease}, lent to ${borrower.user ?? borrower.uid}`, job: null, kind: holder.user === me ? "mine" : "leased", since: holder.since };
}

/** Say who keeps a GPU from everybody, and what ends that. @param {NonNullable<Gpu["blocked"]>} blocked */
export const blockedText = (blocked) => `${blocked.text}: ${blocked.fix.replaceAll("`", "")}`;

/**
 * Return the points of a sparkline as pairs in 0..1, left to right, of the last `forMs`; a gap is null.
 * @param {readonly [string, number | null, number | null, ...unknown[]][]} samples at, memory, utilization, ...
 * @param {number} now @param {number} forMs @returns {([number, number] | null)[]}
 */
export function sparkline(samples, now, forMs) {
  /** @type {([number, number] | null)[]} */
  const points = [];
  let before = NaN;
  for (const [moment, , use] of samples) {
    const at = ms(moment);
    // One sample before the first, so that the line begins at the edge.
    if (at < now - 1.2 * forMs || use === null) continue;
    // No readings for a while: leave a gap.
    if (at - before > forMs / 5) points.push(null);
    points.push([Math.max(0, 1 - (now - at) / forMs), Math.min(1, Math.max(0, use / 100))]);
    before = at;
  }
  return points;
}

/**
 * Return the single readings of a GPU, and one sample per minute before the first of them.
 * @template {readonly [string, ...unknown[]]} T
 * @param {readonly T[]} minutes @param {readonly T[]} recent
 */
export function joined(minutes, recent) {
  const first = recent.length ? ms(recent[0][0]) : Infinity;
  return [...minutes.filter(([at]) => ms(at) < first), ...recent];
}

/** The short name of a card: without the maker. @param {string} name */
export const shortName = (name) => name.replace(/^(NVIDIA|AMD)\s+/i, "").replace(/^(GeForce|Radeon|Instinct|Tesla)\s+/i, "");

/**
 * Return the move that brings a waiting job back to its current place: before its successor, or last.
 * @param {readonly {id: number, priority: number}[]} line @param {number} index
 * @returns {{to: string, other?: number}}
 */
export function placeOf(line, index) {
  const next = line[index + 1];
  if (next && next.priority === line[index].priority) return { to: "before", other: next.id };
  const previous = line[index - 1];
  if (previous && previous.priority === line[index].priority) return { to: "after", other: previous.id };
  return { to: "last" };
}

/**
 * Return the move that puts the job at `from` to the place of the one at `to`.
 * @param {readonly {id: number}[]} line @param {number} from @param {number} to
 * @returns {{to: string, other: number} | null}
 */
export function moveTo(line, from, to) {
  if (from === to || !line[from] || !line[to]) return null;
  return { to: to < from ? "before" : "after", other: line[to].id };
}

/** How a job ran and where, for the list of failures. @param {Job} job */
export const ranOn = (job) => gpuNames(job.gpu_indices) || "no GPU";
