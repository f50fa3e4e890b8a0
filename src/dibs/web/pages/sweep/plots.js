// Axes of the charts of a sweep: round ticks, logarithmic ones, and where a value is drawn. Pure, but for `frame`.
import { number } from "../../core/format.js";

/**
 * @typedef {{low: number, high: number, isLog: boolean}} Scale
 * @typedef {{left: number, top: number, width: number, height: number}} Box pixels of what is inside the axes
 */

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

/** A number at an axis, short: 12K, 0.25, 1e-4. @param {number} value */
export function tickText(value) {
  if (Math.abs(value) >= 1000 && Math.abs(value) < 1e12) return COMPACT.format(value);
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(1).replace(".0e", "e");
  return number(Number(value.toPrecision(6)));
}

/**
 * Return about `count` round numbers between two others.
 * @param {number} low @param {number} high @param {number} [count]
 */
export function ticks(low, high, count = 5) {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 2.5, 5].find((one) => one * power >= raw) ?? 10) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/**
 * Return the decades between two positive numbers, and the marks between them; with less than one decade, round numbers.
 * @param {number} low @param {number} high
 * @returns {{value: number, isMajor: boolean}[]}
 */
export function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (let digit = 1; digit < 10; digit += 1) {
      const value = Number((digit * 10 ** power).toPrecision(3));
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) found.push({ value, isMajor: digit === 1 });
    }
  }
  if (found.filter((one) => one.isMajor).length >= 2) return found;
  const halves = found.map(({ value }) => ({ value, isMajor: /^[0.]*[125]/.test(String(value)) }));
  return halves.filter((one) => one.isMajor).length >= 2 ? halves : ticks(low, high, 4).map((value) => ({ value, isMajor: true }));
}

/**
 * Return the scale of values: their range without the few that lie far beyond the others, and with all of `kept`.
 * @param {readonly number[]} values @param {{isLog?: boolean, kept?: readonly number[]}} [options]
 * @returns {Scale}
 */
export function scaleOf(values, { isLog = false, kept = [] } = {}) {
  const there = values.filter((one) => Number.isFinite(one) && (!isLog || one > 0)).sort((a, b) => a - b);
  const must = kept.filter((one) => Number.isFinite(one) && (!isLog || one > 0));
  if (!there.length) return { low: isLog ? 0.1 : 0, high: 1, isLog };
  const at = (/** @type {number} */ part) => there[Math.round(part * (there.length - 1))];
  const low = Math.min(at(0.005), ...must);
  const high = Math.max(at(0.995), ...must);
  if (low === high) return isLog ? { low: low / 2, high: high * 2, isLog } : { low: low - 0.5, high: high + 0.5, isLog };
  if (isLog) return { low, high, isLog };
  const air = (high - low) * 0.04;
  return { low: low - air, high: high + air, isLog };
}

/** The place of a value, 0 at the low end and 1 at the high one; beyond them it is outside of 0..1. @param {Scale} scale @param {number} value */
export function placeOf({ low, high, isLog }, value) {
  return isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
}

/** The value at a place. @param {Scale} scale @param {number} place */
export function valueAt({ low, high, isLog }, place) {
  return isLog ? low * (high / low) ** place : low + place * (high - low);
}

/**
 * Draw axes with ticks and grid, and return where values go.
 * @param {import("../../components/canvas.js").Board} board
 * @param {{x: Scale, y: Scale, xText?: (value: number) => string, xTicks?: number[]}} axes
 * @returns {{box: Box, across: (value: number) => number, up: (value: number) => number}}
 */
export function frame({ ctx, width, height, colour }, { x, y, xText = tickText, xTicks }) {
  ctx.clearRect(0, 0, width, height);
  ctx.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
  const marks = y.isLog ? logTicks(y.low, y.high) : ticks(y.low, y.high, Math.max(2, Math.round(height / 52))).map((value) => ({ value, isMajor: true }));
  const left = 10 + Math.max(18, ...marks.filter((one) => one.isMajor).map((one) => ctx.measureText(tickText(one.value)).width));
  const box = { left, top: 8, width: Math.max(10, width - left - 10), height: Math.max(10, height - 32) };
  const across = (/** @type {number} */ value) => box.left + placeOf(x, value) * box.width;
  const up = (/** @type {number} */ value) => box.top + (1 - placeOf(y, value)) * box.height;
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  for (const { value, isMajor } of marks) {
    const at = Math.round(up(value)) + 0.5;
    ctx.fillStyle = colour("faint");
    ctx.fillRect(box.left - (isMajor ? 0 : 3), at - 0.5, isMajor ? box.width : 3, 1);
    ctx.fillStyle = colour("quiet");
    if (isMajor) ctx.fillText(tickText(value), box.left - 6, at);
  }
  ctx.textAlign = "center";
  ctx.textBaseline = "alphabetic";
  for (const value of xTicks ?? ticks(x.low, x.high, Math.max(2, Math.round(width / 110)))) {
    const at = across(value);
    if (at < box.left - 1 || at > box.left + box.width + 1) continue;
    ctx.fillStyle = colour("faint");
    ctx.fillRect(Math.round(at), box.top, 1, box.height);
    ctx.fillStyle = colour("quiet");
    ctx.fillText(xText(value), Math.min(Math.max(at, 16), width - 16), height - 8);
  }
  ctx.fillStyle = colour("line");
  ctx.fillRect(box.left, box.top + box.height, box.width, 1);
  return { box, across, up };
}
