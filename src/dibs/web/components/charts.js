// Series over steps or time, by uPlot. Charts with the same `group` share one crosshair; the line above a chart has the
// values at the crosshair, or the last ones.
import { number, span } from "../core/format.js";
import * as themes from "../core/themes.js";
import { html, useEffect, useRef } from "../vendor/ui.js";
import uPlot from "../vendor/uplot.js";

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {string} [colour] a name of app.css, or a colour
 * @property {(value: number | null) => string} [text] how a value is said
 */

/** Seconds as the reader's clock. @param {number} at */
const hour = (at) => new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

/** Seconds between two ticks of a time: as clocks are read. */
const TIMES = [1, 2, 5, 10, 15, 30].flatMap((one) => [one, one * 60]).concat([1, 2, 3, 6, 12, 24, 48, 168].map((one) => one * 3600)).sort((a, b) => a - b);

const COLOURS = ["run", "done", "wait", "warn", "bad", "quiet", "accent", "text"];

/** How places are said: the clock, steps, or the time since the start. */
const PLACES = {
  clock: { label: "time", text: hour },
  step: { label: "step", text: (/** @type {number} */ value) => tick(value) },
  count: { label: "report", text: (/** @type {number} */ value) => tick(value) },
  time: { label: "after", text: (/** @type {number} */ value) => (value ? span(value) : "0") },
};

/**
 * A chart. `xs` in seconds for `clock` and `time`, otherwise numbers; `ys` has one list per series, null if unknown.
 * `label` describes it in words, `title` stands above it.
 * @param {{label: string, title?: string, xs: number[], ys: (number | null)[][], series: Series[], height?: number, low?: number, high?: number, group?: string, axis?: keyof typeof PLACES, isLog?: boolean, unit?: string}} props
 */
export function Chart({ label, title, xs, ys, series, height = 150, low, high, group, axis = "clock", isLog = false, unit = "" }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const line = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const names = series.map((one) => `${one.label} ${one.colour}`).join("\n");
  const theme = themes.changes.value;
  const place = PLACES[axis];
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const colour = themes.colours();
    const look = { stroke: colour("quiet"), grid: { stroke: colour("faint"), width: 1 }, ticks: { stroke: colour("faint"), width: 1 }, font: "11.5px system-ui, 'DejaVu Sans', sans-serif" };
    const made = new uPlot(
      {
        width: element.clientWidth || 300,
        height,
        legend: { show: false },
        cursor: { sync: group ? { key: group } : undefined, drag: { x: true, y: false } },
        scales: { x: { time: false }, y: isLog ? { distr: 3 } : { range: (/** @type {uPlot} */ _, /** @type {number} */ least, /** @type {number} */ most) => bounds(least, most, low, high) } },
        axes: [
          { ...look, size: 28, space: 70, ...(axis === "clock" && { incrs: TIMES.filter((one) => one >= 60) }), ...(axis === "time" && { incrs: TIMES }), values: (/** @type {uPlot} */ _, /** @type {number[]} */ all) => all.map(place.text) },
          { ...look, size: 58, values: (/** @type {uPlot} */ _, /** @type {(number | null)[]} */ all) => all.map((value) => (value === null ? "" : `${tick(value)}${unit && ` ${unit}`}`)) },
        ],
        series: [
          {},
          ...series.map((one, i) => ({ label: one.label, stroke: inkOf(one, i, colour), width: 1.5, spanGaps: series.length > 1, points: { show: false } })),
        ],
        hooks: { setCursor: [(/** @type {uPlot} */ one) => say(one.cursor.idx ?? null)] },
      },
      /** @type {any} */ ([xs, ...ys]),
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [names, height, low, high, group, axis, isLog, unit, theme]);
  /** Write the values at a place of the data into the line above. @param {number | null} index */
  const say = (index) => {
    const data = /** @type {(number | null)[][]} */ (/** @type {unknown} */ (plot.current?.data ?? [xs, ...ys]));
    const values = [...(line.current?.querySelectorAll("b") ?? [])];
    values.forEach((one, i) => {
      const value = index === null ? (data[i + 1]?.findLast((each) => each != null) ?? null) : near(data[i + 1] ?? [], index);
      one.textContent = value === null ? "–" : (series[i].text ?? ((/** @type {number} */ each) => `${number(each)}${unit && ` ${unit}`}`))(value);
    });
    const at = line.current?.querySelector(".at");
    if (at) at.textContent = index === null || data[0]?.[index] == null ? "" : `${place.label} ${place.text(/** @type {number} */ (data[0][index]))}`;
  };
  useEffect(() => {
    plot.current?.setData(/** @type {any} */ ([xs, ...ys]));
    say(null);
  }, [xs, ys, names, theme]);
  const colour = themes.colours();
  return html`<div class="chart">
    <div class="chart-line" ref=${line}>${title && html`<strong class="clip" title=${title}>${title}</strong>`}
      ${series.map((one, i) => html`<span key=${one.label}><i style=${{ background: inkOf(one, i, colour) }}></i>${series.length > 1 || !title ? `${one.label} ` : ""}<b class="number"></b></span>`)}<span class="at quiet"></span></div>
    <div role="img" aria-label=${label} ref=${box}></div>
  </div>`;
}

/** @param {Series} one @param {number} i @param {(name: string) => string} colour */
function inkOf(one, i, colour) {
  const name = one.colour ?? COLOURS[i % COLOURS.length];
  return /^[a-z-]+$/.test(name) ? colour(name) : name;
}

/** The value at a place, or the nearest one before it. @param {readonly (number | null)[]} values @param {number} index */
export function near(values, index) {
  for (let i = index; i >= 0; i -= 1) if (values[i] != null) return values[i];
  return null;
}

const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

/** A number at the upright axis, in the room there is: 0.25, 12K, 1e-4. @param {number | null} value */
export function tick(value) {
  if (value === null) return "";
  return Math.abs(value) >= 1000 ? SHORT.format(value) : number(Number(value.toPrecision(6)));
}

/**
 * The ends of the vertical axis: as requested, otherwise the data with a small margin.
 * @param {number} least @param {number} most @param {number} [low] @param {number} [high]
 * @returns {[number, number]}
 */
export function bounds(least, most, low, high) {
  const from = low ?? least ?? 0;
  const to = high ?? most ?? 1;
  if (from === to) return [from - 1, to + 1];
  const air = (to - from) * 0.05;
  return [low ?? from - air, high ?? to + air];
}
