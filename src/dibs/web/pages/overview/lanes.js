// The timeline without a canvas: which range is shown, where each bar is, what is under the pointer. Pure.
import { ms } from "../../core/format.js";

/**
 * @typedef {import("../../core/types.js").Timeline} Timeline
 * @typedef {import("../../core/types.js").Bar} Bar
 * @typedef {{from: number, to: number}} View milliseconds
 * @typedef {{bar: Bar, lane: number, from: number, to: number, until: number}} Piece one bar in one lane; what goes on is known up to `to`
 * @typedef {{from: number, to: number, fill: string, ink: string, edge: string}} Part with its colours; an expected one has an edge
 */

const HOUR = 3600_000;
/** Milliseconds shown back and ahead of now. @type {Record<string, [number, number]>} */
export const RANGES = { "1h": [HOUR, HOUR / 2], "6h": [6 * HOUR, 4 * HOUR], "24h": [24 * HOUR, 6 * HOUR], "7d": [168 * HOUR, 24 * HOUR] };
export const LANE = 24;
export const TOP = 4;
/** Pixels at the left for the names of the lanes, and below for the hours. */
export const LEFT = 62;
export const BELOW = 24;
/** Milliseconds that can be shown at least and at most. */
const NARROWEST = 2 * 60_000;
const WIDEST = 28 * 24 * HOUR;

/** @param {string} range @param {number} now @returns {View} */
export function viewOf(range, now) {
  const [back, ahead] = RANGES[range] ?? RANGES["6h"];
  return { from: now - back, to: now + ahead };
}

/** Return a view zoomed by a factor about a moment that stays where it is. @param {View} view @param {number} factor @param {number} at @returns {View} */
export function zoomed(view, factor, at) {
  const width = Math.min(WIDEST, Math.max(NARROWEST, (view.to - view.from) * factor));
  const part = (at - view.from) / (view.to - view.from);
  return { from: at - width * part, to: at + width * (1 - part) };
}

/** @param {View} view @param {number} by milliseconds @returns {View} */
export const panned = (view, by) => ({ from: view.from + by, to: view.to + by });

/** @param {View} view @param {number} width of the canvas @returns {(at: number) => number} */
export const scale = (view, width) => (at) => LEFT + ((at - view.from) / (view.to - view.from)) * (width - LEFT);

/** @param {View} view @param {number} width @param {number} x */
export const momentAt = (view, width, x) => view.from + ((x - LEFT) / (width - LEFT)) * (view.to - view.from);

/**
 * Return every bar in each of its lanes; a running job is known up to now, and drawn until its expected end.
 * @param {Timeline} timeline @param {number} now @returns {Piece[]}
 */
export function pieces(timeline, now) {
  const lanes = new Map(timeline.lanes.map((lane, i) => [lane.gpu_id, i]));
  return timeline.bars.flatMap((bar) =>
    bar.gpu_ids.flatMap((gpu) => {
      const lane = lanes.get(gpu);
      const from = ms(bar.from);
      const to = bar.to ? ms(bar.to) : Math.max(now, from);
      return lane === undefined ? [] : [{ bar, lane, from, to, until: bar.expected_end ? Math.max(to, ms(bar.expected_end)) : to }];
    }),
  );
}

/** Colours of a bar by its state: what fills it, and what is written on it. @type {Record<string, [string, string]>} */
const PAINT = { done: ["done-soft", "on-done"], failed: ["bad-soft", "on-colour"], timeout: ["bad-soft", "on-colour"], lost: ["bad-soft", "on-colour"], cancelled: ["line", "text"] };

/** Return what is drawn of a piece, from left to right. @param {Piece} piece @returns {Part[]} */
export function parts({ bar, from, to, until }) {
  if (bar.is_plan) return [{ from, to, fill: "wait-soft", ink: "on-wait", edge: "wait" }];
  const [fill, ink] = PAINT[bar.state] ?? ["run", "on-colour"];
  const known = { from, to, fill, ink, edge: "" };
  return until > to ? [known, { from: to, to: until, fill: "run-soft", ink: "text", edge: "run" }] : [known];
}

/** Return what is under a point, the topmost first. @param {Piece[]} all @param {View} view @param {number} width @param {number} x @param {number} y */
export function under(all, view, width, x, y) {
  if (x < LEFT) return null;
  const lane = Math.floor((y - TOP) / LANE);
  const at = scale(view, width);
  // A bar is at least 2 pixels wide, and a finger is less exact.
  return all.findLast((one) => one.lane === lane && at(one.from) - 2 <= x && x <= Math.max(at(one.until), at(one.from) + 2) + 2) ?? null;
}

const STEPS = [60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400].map((seconds) => seconds * 1000);

/** Return moments worth a line, at most one in 70 pixels, on round times of the local clock. @param {View} view @param {number} width */
export function ticks(view, width) {
  const most = Math.max(1, (width - LEFT) / 70);
  const step = STEPS.find((one) => (view.to - view.from) / one <= most) ?? STEPS[STEPS.length - 1];
  const zone = new Date(view.from).getTimezoneOffset() * 60_000;
  const found = [];
  for (let at = Math.ceil((view.from - zone) / step) * step + zone; at <= view.to; at += step) found.push(at);
  return { step, found };
}

/** A tick in words: the hour, or the day. @param {number} at @param {number} step */
export function tickText(at, step) {
  const date = new Date(at);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (step < 86_400_000 && time !== "00:00") return time;
  return date.toLocaleDateString("en-GB", { weekday: "short", day: "numeric" });
}
