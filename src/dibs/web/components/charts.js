// Series over time, by uPlot. Charts with the same `group` share one crosshair.
import { number } from "../core/format.js";
import * as themes from "../core/themes.js";
import { html, useEffect, useRef } from "../vendor/ui.js";
import uPlot from "../vendor/uplot.js";

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {string} [colour] a name of app.css
 * @property {(value: number | null) => string} [text] how a value is said
 */

/** Seconds as the clock of whoever looks. @param {number} at */
const hour = (at) => new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

const COLOURS = ["accent", "done", "wait", "warn", "bad", "quiet"];

/**
 * A chart. `xs` in seconds if `isTime`, otherwise numbers (steps); `ys` has one list per series, null if unknown.
 * `label` describes it in words.
 * @param {{label: string, xs: number[], ys: (number | null)[][], series: Series[], height?: number, low?: number, high?: number, group?: string, isTime?: boolean}} props
 */
export function Chart({ label, xs, ys, series, height = 150, low, high, group, isTime = true }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const names = series.map((one) => one.label).join("\n");
  const theme = themes.changes.value;
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const colour = themes.colours();
    const axis = { stroke: colour("quiet"), grid: { stroke: colour("faint"), width: 1 }, ticks: { stroke: colour("faint"), width: 1 } };
    const made = new uPlot(
      {
        width: element.clientWidth || 300,
        height,
        legend: { live: true },
        cursor: { sync: group ? { key: group } : undefined, drag: { x: true, y: false } },
        scales: { x: { time: isTime }, y: { range: (_, least, most) => bounds(least, most, low, high) } },
        axes: [isTime ? { ...axis, size: 28, values: (_, moments) => moments.map(hour) } : axis, { ...axis, size: 56 }],
        series: [
          isTime ? { label: "time", value: (/** @type {uPlot} */ _, /** @type {number | null} */ at) => (at === null ? "–" : hour(at)) } : { label: "step" },
          ...series.map((one, i) => ({
            label: one.label,
            stroke: colour(one.colour ?? COLOURS[i % COLOURS.length]),
            width: 1.5,
            spanGaps: false,
            points: { show: false },
            value: (/** @type {uPlot} */ _, /** @type {number | null} */ value) => (one.text ? one.text(value) : (value ?? "–")),
          })),
        ],
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
  }, [names, height, low, high, group, isTime, theme]);
  useEffect(() => plot.current?.setData(/** @type {any} */ ([xs, ...ys])), [xs, ys]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${box}></div>`;
}

const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A number at the upright axis, in the room there is: 0.25, 12K, 1e-4. @param {number | null} value */
export function tick(value) {
  if (value === null) return "";
  return Math.abs(value) >= 1000 ? SHORT.format(value) : number(value);
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
