// When the lines of a log were written, as far as that is known: between two moments at which its size was noted. Pure.
import { lastAtMostBy } from "../../../core/id-ranges.js";

/** @typedef {{at: number, size: number}} Mark the size of the log at a moment, in milliseconds */
/** @typedef {{after: number | null, before: number | null}} Range null: not known */

/** Milliseconds up to which a range counts as one moment. */
const EXACT_MS = 2500;
const DAY_MS = 86_400_000;

/** How many marks a browser remembers itself. */
const MOST_SEEN = 5000;

/**
 * Return marks with one look more at a log: of each size the first moment and the last one. Sizes grow.
 * @param {readonly Mark[]} seen @param {number} size @param {number} asked the moment of the question @param {number} at that of the answer
 * @returns {Mark[]}
 */
export function see(seen, size, asked, at) {
  const last = seen.at(-1);
  if (last?.size !== size) return [...(last && last.size > size ? [] : seen.slice(-MOST_SEEN)), { at, size }];
  // Still the same: it had not grown when this was asked.
  const isSecond = seen.at(-2)?.size === size;
  return [...(isSecond ? seen.slice(0, -1) : seen), { at: Math.max(last.at, asked), size }];
}

/**
 * Return two lists of marks as one, in their order. Both hold for the same file, so sizes never shrink.
 * @param {readonly Mark[]} some @param {readonly Mark[]} more @returns {Mark[]}
 */
export function merged(some, more) {
  return [...some, ...more].sort((a, b) => a.size - b.size || a.at - b.at);
}

/**
 * Return between which moments bytes were written.
 * @param {Mark[]} marks by size @param {number} start @param {number} end the byte after the last
 * @returns {Range}
 */
export function rangeOf(marks, start, end) {
  // The last moment at which the log was not larger than where they begin, and the first at which it had all of them.
  const after = marks[lastAtMostBy(marks, (mark) => mark.size, start)];
  const before = marks[lastAtMostBy(marks, (mark) => mark.size, end - 1) + 1];
  return { after: after?.at ?? null, before: before?.at ?? null };
}

/** @param {number} at @param {boolean} [hasSeconds] */
const time = (at, hasSeconds = false) => new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(hasSeconds && { second: "2-digit" }) });

/** @param {number} at @param {number} now */
const day = (at, now) => (now - at < DAY_MS / 2 ? "" : `${new Date(at).toLocaleDateString("en-GB", { day: "numeric", month: "short" })} `);

/** Return a range as the column shows it: "14:02:31", "14:02–14:03", "before 14:02"; "" if nothing is known. @param {Range} range @param {number} now */
export function shortText({ after, before }, now) {
  if (after === null || before === null) {
    if (before !== null) return `${day(before, now)}before ${time(before)}`;
    return after === null ? "" : `${day(after, now)}after ${time(after)}`;
  }
  if (before - after <= EXACT_MS) return `${day(before, now)}${time(before, true)}`;
  const [first, last] = [time(after), time(before)];
  return `${day(after, now)}${first === last ? `${first} ` : `${first}–${last}`}`.trim();
}

/** Return a range in words. @param {Range} range */
export function longText({ after, before }) {
  const at = (/** @type {number} */ moment) => new Date(moment).toLocaleString("en-GB");
  if (after !== null && before !== null) return `Written between ${at(after)} and ${at(before)}`;
  if (before !== null) return `Written before ${at(before)}`;
  return after === null ? "Time unknown" : `Written after ${at(after)}`;
}
