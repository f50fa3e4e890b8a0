// The timeline without a canvas: which range is shown, where each bar is, what is under the pointer. Pure.
import { ms } from "../../core/format.js";

/**
 * @typedef {import("../../core/types.js").Timeline} Timeline
 * @typedef {import("../../core/types.js").Bar} Bar
 * @typedef {{from: number, to: number}} View milliseconds
 * @typedef {{bar: Bar, lane: number, from: number, to: number, until: number, count: number}} Piece one bar in one lane; what still runs is known up to `to`; `count` planned runs of a sweep
 * @typedef {{reservation: import("../../core/types.js").Reservation, lane: number, from: number, to: number}} Block a reservation in one lane
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
      return lane === undefined ? [] : [{ bar, lane, from, to, until: bar.expected_end ? Math.max(to, ms(bar.expected_end)) : to, count: 1 }];
    }),
  );
}

/**
 * Return the pieces with the planned runs of one sweep that follow each other in a lane as one piece.
 * @param {readonly Piece[]} all @returns {Piece[]}
 */
export function collapsed(all) {
  /** @type {Map<number, Piece>} */
  const newest = new Map();
  const planned = all.filter((one) => one.bar.is_plan).sort((a, b) => a.from - b.from);
  /** @type {Piece[]} */
  const found = all.filter((one) => !one.bar.is_plan);
  for (const piece of planned) {
    const before = newest.get(piece.lane);
    if (before && piece.bar.sweep && before.bar.sweep === piece.bar.sweep) {
      before.until = before.to = Math.max(before.to, piece.to);
      before.count += 1;
    } else {
      const own = { ...piece };
      newest.set(piece.lane, own);
      found.push(own);
    }
  }
  return found;
}

/** Return every reservation in each of its lanes. @param {Timeline} timeline @returns {Block[]} */
export function blocks(timeline) {
  const lanes = new Map(timeline.lanes.map((lane, i) => [lane.gpu_id, i]));
  return timeline.reservations.flatMap((reservation) =>
    reservation.gpu_ids.flatMap((gpu) => {
      const lane = lanes.get(gpu);
      return lane === undefined ? [] : [{ reservation, lane, from: ms(reservation.from), to: ms(reservation.to) }];
    }),
  );
}

/** Milliseconds from which on a view shows how busy each GPU was instead of single jobs. */
export const DENSE = 3 * 24 * HOUR;
/** Pixels of one column of that view. */
export const COLUMN = 6;

/**
 * Return for each lane and column of a dense view which part of its time was used, by jobs that succeeded, failed, run or are planned.
 * @param {readonly Piece[]} all @param {View} view @param {number} columns @param {number} lanes
 * @returns {{done: number, bad: number, run: number, plan: number}[][]}
 */
export function density(all, view, columns, lanes) {
  const wide = (view.to - view.from) / columns;
  const found = Array.from({ length: lanes }, () => Array.from({ length: columns }, () => ({ done: 0, bad: 0, run: 0, plan: 0 })));
  for (const piece of all) {
    for (const part of parts(piece)) {
      const kind = part.fill === "wait-soft" || part.fill === "run-soft" ? "plan" : part.fill === "bad-soft" ? "bad" : part.fill === "run" ? "run" : "done";
      const [first, last] = [Math.max(0, Math.floor((part.from - view.from) / wide)), Math.min(columns - 1, Math.floor((part.to - view.from) / wide))];
      for (let i = first; i <= last; i += 1) {
        const inside = Math.min(part.to, view.from + (i + 1) * wide) - Math.max(part.from, view.from + i * wide);
        if (inside > 0) found[piece.lane][i][kind] = Math.min(1, found[piece.lane][i][kind] + inside / wide);
      }
    }
  }
  return found;
}

/**
 * Return a text that fits, with an ellipsis where it is cut; "" if not even three letters do.
 * @param {string} text @param {number} room @param {(text: string) => number} measure
 */
export function fitted(text, room, measure) {
  if (measure(text) <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (measure(`${text.slice(0, middle)}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return low < 3 ? "" : `${text.slice(0, low)}…`;
}

/** What is written on a piece. @param {Piece} piece */
export const label = ({ bar, count }) => (count > 1 ? `${bar.sweep} × ${count}` : bar.name || `#${bar.job}`);

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

/** Return the reservation under a point. @param {Block[]} all @param {View} view @param {number} width @param {number} x @param {number} y */
export function blockUnder(all, view, width, x, y) {
  const at = momentAt(view, width, x);
  const lane = Math.floor((y - TOP) / LANE);
  return x < LEFT ? null : (all.find((one) => one.lane === lane && one.from <= at && at <= one.to) ?? null);
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

/**
 * The words below the ticks and where they begin: within the picture, and none that would touch the one before.
 * @param {View} view @param {number} width @param {(text: string) => number} measure its pixels
 */
export function tickLabels(view, width, measure) {
  const place = scale(view, width);
  const { step, found } = ticks(view, width);
  let free = 0;
  return found.flatMap((at) => {
    const text = tickText(at, step);
    const x = Math.min(place(at) + 2, width - measure(text) - 4);
    if (x < free) return [];
    free = x + measure(text) + 8;
    return [{ text, x }];
  });
}

/** A tick in words: the hour, or the day. @param {number} at @param {number} step */
export function tickText(at, step) {
  const date = new Date(at);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (step < 86_400_000 && time !== "00:00") return time;
  return date.toLocaleDateString("en-GB", { weekday: "short", day: "numeric" });
}
