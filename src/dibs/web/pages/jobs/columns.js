// The columns of the table of jobs: what each shows, how it is sorted, and which are shown, remembered in this browser.
import { JobLink, Menu, Pill, Time } from "../../components/common.js";
import { gpuNames, number, took, why } from "../../core/format.js";
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
  { name: "number", title: "Id", width: "64px", sort: "id", class: "number", cell: (job) => html`<a class="job" href=${`/job/${job.id}`} tabindex="-1">${job.id}</a>` },
  { name: "id", title: "Job", width: "minmax(172px, 2fr)", sort: "id", isUsual: true, class: "name", cell: (job) => html`<${JobLink} id=${job.id} name=${job.name} />` },
  { name: "state", title: "State", width: "96px", isUsual: true, class: "state", cell: (job) => html`<${Pill} word=${job.state} />` },
  { name: "gpus", title: "GPUs", width: "116px", isUsual: true, class: "gpus", cell: (job) => gpuNames(job.gpu_indices) || (job.gpus || "none") },
  { name: "submitted", title: "Submitted", width: "106px", sort: "submitted", isUsual: true, class: "when", cell: (job) => html`<${Time} at=${job.submitted_at} />` },
  { name: "started", title: "Started", width: "106px", sort: "started", cell: (job) => html`<${Time} at=${job.started_at} />` },
  { name: "finished", title: "Finished", width: "106px", sort: "finished", cell: (job) => html`<${Time} at=${job.finished_at} />` },
  { name: "took", title: "Took", width: "78px", sort: "duration", isUsual: true, class: "took", cell: (job) => took(job.started_at, job.finished_at, state.now.value) },
  { name: "why", title: "Why", width: "minmax(110px, 5fr)", isUsual: true, class: "quiet why", cell: (job) => html`<span title=${why(job)}>${why(job)}</span>` },
  { name: "priority", title: "Priority", width: "70px", sort: "priority", class: "number", cell: (job) => job.priority },
  { name: "project", title: "Project", width: "minmax(70px, 1fr)", cell: (job) => job.project },
  { name: "tags", title: "Tags", width: "minmax(70px, 1fr)", cell: (job) => job.tags.join(", ") },
  { name: "sweep", title: "Sweep", width: "minmax(80px, 1fr)", cell: (job) => (job.sweep === null ? "" : html`<a href=${`/sweep/${encodeURIComponent(job.sweep)}`} tabindex="-1">${job.sweep}</a>`) },
  { name: "attempt", title: "Attempt", width: "70px", class: "number", cell: (job) => job.attempt },
  { name: "numbers", title: "Metrics", width: "minmax(120px, 2fr)", class: "number", cell: (job) => numbers(job) },
  { name: "command", title: "Command", width: "minmax(120px, 4fr)", isUsual: true, class: "mono command-cell", cell: (job) => job.command },
];

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
  choose(chosen.value.includes(name) ? chosen.value.filter((one) => one !== name) : [...chosen.value, name]);
}

/** @param {string[]} names */
export function choose(names) {
  chosen.value = names;
  localStorage.setItem(KEY, JSON.stringify(names));
}

/** The columns that are shown, in their order; metrics that were chosen come before the command. @returns {Column[]} */
export function shown() {
  const metrics = chosen.value.filter((name) => name.startsWith(METRIC)).map((name) => ofMetric(name.slice(METRIC.length)));
  const usualOnes = COLUMNS.filter((one) => chosen.value.includes(one.name));
  const at = usualOnes.findIndex((one) => one.name === "command");
  return at < 0 ? [...usualOnes, ...metrics] : [...usualOnes.slice(0, at), ...metrics, ...usualOnes.slice(at)];
}

/** Before the name of a metric that is a column. */
const METRIC = "metric:";

/** @param {string} name @returns {Column} */
function ofMetric(name) {
  return {
    name: METRIC + name,
    title: name,
    width: "84px",
    class: "number",
    cell: (job) => {
      const value = job.report?.[name];
      return value === undefined ? "" : value === null ? "nan" : number(value);
    },
  };
}

/** The menu that chooses them. @param {{metrics: string[]}} props metrics of jobs on the screen */
export function Chooser({ metrics }) {
  const box = (/** @type {string} */ name, /** @type {string} */ title) => html`<label key=${name}><input type="checkbox" checked=${chosen.value.includes(name)} onChange=${() => toggle(name)} /> ${title}</label>`;
  const names = [...new Set([...metrics, ...chosen.value.filter((name) => name.startsWith(METRIC)).map((name) => name.slice(METRIC.length))])];
  return html`<${Menu} label="Columns" text="Columns" icon="table" class="small" isKept>
    ${COLUMNS.filter((one) => one.name !== "id").map((one) => box(one.name, one.title))}
    ${names.length > 0 && html`<div class="said">Metrics</div>`}
    ${names.map((name) => box(METRIC + name, name))}
  </${Menu}>`;
}
