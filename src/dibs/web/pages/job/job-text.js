// Texts about the events and GPU usage of a job. Pure.
import { span } from "../../core/format.js";

/** @typedef {import("../../core/types.js").Job & import("../../core/types.js").WholeJob} Whole */

/** Percent below which a GPU counts as hardly used, and the seconds after which that is reported. */
const LOW = 20;
const LONG_S = 30 * 60;

/**
 * Return a sentence about the longest stretch in which a GPU was hardly used; null if it was short.
 * @param {number[]} xs seconds
 * @param {(number | null)[]} ys percent
 */
export function lowUse(xs, ys) {
  let longest = 0;
  let until = 0;
  /** @type {number | null} */
  let from = null;
  xs.forEach((x, i) => {
    const y = ys[i];
    if (y === null || y >= LOW) {
      from = null;
      return;
    }
    from ??= x;
    if (x - from > longest) [longest, until] = [x - from, x];
  });
  if (longest < LONG_S) return null;
  const isNow = until === xs[xs.length - 1];
  return `${isNow ? "has been" : "was"} under ${LOW} % for ${span(longest)}${isNow ? " now" : ""}`;
}

/** Bytes of a GB, as graphics cards are sold. */
const GIB = 1024 ** 3;

/** @typedef {[string, number | null, number | null, number | null, number | null]} Sample at, memory, utilization, power, temperature */

/**
 * Return the samples of a GPU between two times, oldest first: single readings if any, otherwise one mean per minute.
 * @param {{recent: Sample[], minutes: Sample[]}} history @param {number} from @param {number} to both in milliseconds
 * @returns {{xs: number[], memory: (number | null)[], use: (number | null)[], power: (number | null)[]}}
 */
export function samples(history, from, to) {
  const at = (/** @type {Sample} */ sample) => Date.parse(sample[0]);
  const begin = history.recent.length ? at(history.recent[0]) : Infinity;
  // The minute in which it ended is in part of the time after it.
  const minutes = history.minutes.filter((one) => at(one) < begin - 60_000 && at(one) <= to - 60_000);
  const inside = [...minutes, ...history.recent].filter((one) => at(one) >= from - 60_000 && at(one) <= to);
  return {
    xs: inside.map((one) => at(one) / 1000),
    memory: inside.map((one) => (one[1] === null ? null : one[1] / GIB)),
    use: inside.map((one) => one[2]),
    power: inside.map((one) => one[3]),
  };
}

/** What happened, in the words of `dibs show`. @type {Record<string, string>} */
const EVENTS = {
  Submitted: "submitted",
  Ready: "joined the queue for GPUs",
  NotReady: "left the queue for GPUs",
  Placed: "placed",
  GivenUp: "start abandoned",
  Started: "started",
  Ended: "ended",
  LostTrack: "lost",
  Orphaned: "lost its runner",
  CannotStart: "could not be started",
  CancelAsked: "cancel requested",
  NeedFailed: "dependency failed",
  NeedRetried: "dependency retried",
  HoldAsked: "held",
  UnholdAsked: "released",
  Paused: "paused",
  Resumed: "resumed",
  RetryAsked: "retry requested",
  Moved: "moved",
  Edited: "edited",
  Signalled: "received a signal",
  Stuck: "could not be stopped",
  Leftovers: "cleaned up",
  NoticeFailed: "notification failed",
  Misused: "used an unassigned GPU",
  Stray: "strayed",
  Exceeds: "exceeded --vram",
  Foreign: "foreign process on GPU",
  Unwell: "GPU unhealthy",
  Sent: "sent to its engine",
  StoppedEarly: "stopped early",
  Evictable: "became evictable",
  Idle: "GPU idle",
  EvictAsked: "evicted",
  Evicted: "gave up its GPUs",
  Rediscovered: "found in its folder",
};

/** Causes of a bad end, in words. @type {Record<string, string>} */
const CAUSES = { oom: "out of memory", gpu: "a GPU fault", dependency: "a job that it needs failed", start: "could not be started", early: "stopped early" };

/**
 * How an attempt ended, in words: "exit code 1, out of memory", "killed by signal 9", "time limit reached".
 * @param {{exit_code: number | null, signal: number | string | null, cause: string | null}} end
 */
export function endText({ exit_code: code, signal, cause }) {
  if (cause === "timeout") return "time limit reached";
  // The signal was the rule's.
  if (cause === "early") return CAUSES.early;
  const how = signal != null ? `killed by signal ${signal}` : code != null ? `exit code ${code}` : "";
  const why = cause && cause !== "exit" && cause !== "signal" ? (CAUSES[cause] ?? cause) : "";
  return [how, why].filter(Boolean).join(", ");
}

/**
 * Return events with their details in words: GPUs by number, exit codes of the attempt that ended.
 * @template {{kind: string, detail: string | null}} T
 * @param {readonly T[]} events @param {Pick<Whole, "attempts">} job @param {ReadonlyMap<string, number>} indices of GPUs by id
 * @returns {(T & {detail: string})[]}
 */
export function explained(events, job, indices) {
  let ended = 0;
  return events.map((event) => {
    const text = (event.detail ?? "").replace(/\b(?:GPU|MIG|FAKE)-[\w-]+/g, (id) => (indices.has(id) ? `GPU ${indices.get(id)}` : id));
    if (event.kind === "Placed") return { ...event, detail: text && `on ${text}` };
    if (event.kind !== "Ended") return { ...event, detail: text };
    const attempt = job.attempts[ended];
    ended += 1;
    const how = attempt ? [attempt.outcome, endText(attempt)].filter(Boolean).join(": ") : "";
    return { ...event, detail: [how, text].filter(Boolean).join("; ") };
  });
}

/** @param {string} kind */
export const eventWords = (kind) => EVENTS[kind] ?? kind;
