// Two parameters against each other: the mean of the metric in each cell. A table, so that everybody can read it.
import { number } from "../../core/format.js";
import * as router from "../../core/router.js";
import { rgb } from "../../core/viridis.js";
import { html, useMemo } from "../../vendor/ui.js";
import { heat } from "./importance.js";
import { compare } from "./runs.js";

/** @param {{runs: import("./runs.js").Run[], measure: import("./runs.js").Measure, names: string[]}} props the parameters, the most important first */
export function HeatMap({ runs, measure, names }) {
  const query = router.query.value;
  const across = names.find((name) => name === query.get("across")) ?? names[0];
  const up = names.find((name) => name === query.get("up") && name !== across) ?? names.find((name) => name !== across) ?? "";
  const map = useMemo(() => heat(runs, measure, across, up), [runs, measure, across, up]);
  const means = map.cells.flat().flatMap((cell) => cell.mean ?? []).sort((a, b) => compare(a, b, measure.goal));
  const place = (/** @type {number} */ mean) => (means.length < 2 || means[0] === means[means.length - 1] ? 1 : (mean - means[means.length - 1]) / (means[0] - means[means.length - 1]));
  const chooser = (/** @type {string} */ label, /** @type {string} */ parameter, /** @type {string} */ value) => html`<label>${label} <select value=${value} onChange=${(/** @type {any} */ event) => router.setQuery({ [parameter]: event.currentTarget.value })}>
    ${names.map((name) => html`<option key=${name} value=${name} selected=${name === value}>${name}</option>`)}</select></label>`;
  return html`<div class="panel heat">
    <div class="bar">${chooser("Across", "across", across)}${chooser("Up", "up", up)}<span class="quiet">mean ${measure.metric} of finished runs, in brackets how many</span></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Heat map"><table class="keep"><tbody>
      ${map.rows.map((row, i) => html`<tr key=${row}><th scope="row">${row}</th>${map.cells[i].map((cell, j) => {
        if (cell.mean === null) return html`<td key=${j} class="none"><span class="hidden">no run</span></td>`;
        const [red, green, blue] = rgb(place(cell.mean));
        return html`<td key=${j} style=${{ background: `rgb(${red} ${green} ${blue})`, color: inkOn(red, green, blue) }}>${number(cell.mean)} <small>(${cell.count})</small></td>`;
      })}</tr>`)}
      <tr><th scope="row">${up} ↑ ${across} →</th>${map.columns.map((column) => html`<th key=${column} scope="col">${column}</th>`)}</tr>
    </tbody></table></div>
  </div>`;
}

/** Black or white, whichever is easier to read. @param {number} red @param {number} green @param {number} blue */
export function inkOn(red, green, blue) {
  const light = [red, green, blue].map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
  return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.179 ? "#000000" : "#ffffff";
}
