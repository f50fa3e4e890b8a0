// The columns of the table of jobs: what each shows, how it is sorted, and which are shown, remembered in this browser.
import { JobLink, Pill, Time } from "../../components/common.js";
import { ending, gpuNames, number, took } from "../../core/format.js";
import * as state from "../../core/state.js";
import { html, signal } from "../../vendor/ui.js";

/** @typedef {import("../../core/types.js").Job} Job */
/** @typedef {import("../../vendor/ui.js").ComponentChildren} Children */
/**
 * @typedef {object} Column
 * @property {string} name
 * @property {string} title
 * @property {string} width as a track of a CSS grid
 * @property {(job: Job) => Children} cell
 * @property {string} [sort] the word of the daemon's sort
 * @property {string} [class]
 * @property {boolean} [isUsual] shown unless somebody chose otherwise
 */

/** @type {Column[]} */
export const COLUMNS = [
  { name: "id", title: "job", width: "minmax(150px, 2fr)", sort: "id", isUsual: true, class: "name", cell: (job) => html`<${JobLink} id=${job.id} name=${job.name} />` },
  { name: "state", title: "state", width: "96px", isUsual: true, class: "state", cell: (job) => html`<${Pill} word=${job.state} />` },
  { name: "gpus", title: "GPUs", width: "84px", isUsual: true, class: "gpus", cell: (job) => gpuNames(job.gpu_indices) || (job.gpus ? `${job.gpus} ×` : "none") },
  { name: "submitted", title: "submitted", width: "106px", sort: "submitted", isUsual: true, class: "when", cell: (job) => html`<${Time} at=${job.submitted_at} />` },
  { name: "started", title: "started", width: "106px", sort: "started", cell: (job) => html`<${Time} at=${job.started_at} />` },
  { name: "finished", title: "finished", width: "106px", sort: "finished", cell: (job) => html`<${Time} at=${job.finished_at} />` },
  { name: "took", title: "took", width: "78px", sort: "duration", isUsual: true, class: "took", cell: (job) => took(job.started_at, job.finished_at, state.now.value) },
  { name: "why", title: "why", width: "minmax(110px, 2fr)", isUsual: true, class: "quiet why", cell: (job) => why(job) },
  { name: "priority", title: "priority", width: "70px", sort: "priority", class: "number", cell: (job) => job.priority },
  { name: "project", title: "project", width: "minmax(70px, 1fr)", cell: (job) => job.project },
  { name: "tags", title: "tags", width: "minmax(70px, 1fr)", cell: (job) => job.tags.join(", ") },
  { name: "sweep", title: "sweep", width: "70px", cell: (job) => (job.sweep === null ? "" : html`<a href=${`/sweep/${job.sweep}`} tabindex="-1">${job.sweep}</a>`) },
  { name: "attempt", title: "attempt", width: "70px", class: "number", cell: (job) => job.attempt },
  { name: "numbers", title: "numbers", width: "minmax(120px, 2fr)", class: "number", cell: (job) => numbers(job) },
  { name: "command", title: "command", width: "minmax(140px, 4fr)", isUsual: true, class: "mono command-cell", cell: (job) => job.command },
];

/** Why it waits, or how it ended; nothing where the state says all. @param {Job} job */
export function why(job) {
  if (job.state === "done") return "";
  return job.finished_at ? [job.cause, ending(job)].filter((word, i, all) => word && all.indexOf(word) === i).join(", ") : job.reason ?? "";
}

/** @param {Job} job */
function numbers(job) {
  return Object.entries(job.report ?? {}).map(([name, value]) => `${name} ${value === null ? "nan" : number(value)}`).join("  ");
}

const KEY = "dibs.columns";
const usual = () => COLUMNS.filter((one) => one.isUsual).map((one) => one.name);

/** @returns {string[]} */
function remembered() {
  try {
    const names = JSON.parse(localStorage.getItem(KEY) ?? "null");
    return Array.isArray(names) && names.includes("id") ? names : usual();
  } catch {
    return usual();
  }
}

/** The names of the columns that are shown. */
export const chosen = signal(remembered());

/** @param {string} name */
export function toggle(name) {
  const names = chosen.value.includes(name) ? chosen.value.filter((one) => one !== name) : [...chosen.value, name];
  chosen.value = names;
  localStorage.setItem(KEY, JSON.stringify(names));
}

/** The menu that chooses them. */
export function Chooser() {
  return html`<details class="menu"><summary class="button">Columns</summary>
    <div class="menu-body" role="group" aria-label="Columns">
      ${COLUMNS.filter((one) => one.name !== "id").map(
        (one) => html`<label key=${one.name}><input type="checkbox" checked=${chosen.value.includes(one.name)} onChange=${() => toggle(one.name)} /> ${one.title}</label>`,
      )}
    </div>
  </details>`;
}
