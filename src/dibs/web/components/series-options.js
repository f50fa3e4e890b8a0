// How metrics are drawn, on every page that draws them: over steps or time, smoothed, on a log scale; kept in the address.
import * as router from "../core/router.js";
import { html } from "../vendor/ui.js";
import { Choice } from "./common.js";

/** Weights of the values before, and their words. */
const SMOOTH = [["0", "none"], ["0.6", "light"], ["0.9", "medium"], ["0.97", "strong"]];

/** What the address says. @returns {{isTime: boolean, isLog: boolean, weight: number}} */
export function options() {
  const query = router.query.value;
  return { isTime: query.get("x") === "time", isLog: query.get("y") === "log", weight: Number(query.get("smooth")) || 0 };
}

export function SeriesOptions() {
  const { isTime, isLog, weight } = options();
  return html`<${Choice} label="Horizontal axis" value=${isTime ? "time" : "step"} choose=${(/** @type {string} */ x) => router.setQuery({ x: x === "time" ? x : null })}
      options=${[{ value: "step", text: "step" }, { value: "time", text: "time" }]} />
    <label class="smooth">Smoothing <select value=${String(weight)} onChange=${(/** @type {any} */ event) => router.setQuery({ smooth: event.currentTarget.value === "0" ? null : event.currentTarget.value })}>
      ${SMOOTH.map(([value, text]) => html`<option key=${value} value=${value} selected=${value === String(weight)}>${text}</option>`)}
    </select></label>
    <button type="button" class="small" aria-pressed=${isLog} onClick=${() => router.setQuery({ y: isLog ? null : "log" })}>Log scale</button>`;
}
