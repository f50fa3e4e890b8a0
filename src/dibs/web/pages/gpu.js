// One GPU: its day in charts, its current jobs and processes, and what ran on it.
import { Chart } from "../components/charts.js";
import { Empty, JobLink, Pill, Problem, Section, Table, Time } from "../components/common.js";
import { sizeOf, took } from "../core/format.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useMemo } from "../vendor/ui.js";
import { DrainButton, HolderList } from "./gpus/gpu-components.js";
import * as gpuFacts from "./gpus/gpu-facts.js";

/** @typedef {import("../core/types.js").Gpu} Gpu */

const MINUTES = 24 * 60;
const JOBS_SHOWN = 50;

/** @param {{id: string}} props an index or the beginning of a UUID */
export default function Page({ id }) {
  const gpu = state.gpus.value?.gpus.find((one) => String(one.index) === id || one.id === id);
  if (!state.gpus.value) return null;
  if (!gpu) return html`<${Empty} title=${`There is no GPU ${id} on this machine.`} text="Those that are:" commands=${["dibs gpus"]} />`;
  return html`<${Whole} gpu=${gpu} />`;
}

/** @param {{gpu: Gpu}} props */
function Whole({ gpu }) {
  const { data } = useAnswer(`/v1/gpus/history?minutes=${MINUTES}`, { everyMs: 30_000 });
  const day = useMemo(() => gpuFacts.dayOf(data?.gpus.find((/** @type {{id: string}} */ one) => one.id === gpu.id), gpu.memory_total), [data, gpu.id, gpu.memory_total]);
  const chart = (/** @type {string} */ title, /** @type {(number | null)[]} */ values, /** @type {string} */ unit, high = /** @type {number | undefined} */ (undefined)) => {
    const text = (/** @type {number | null} */ value) => (value === null ? "–" : `${Math.round(value)} ${unit}`);
    const ys = [values];
    return html`<div class="panel"><${Chart} title=${title} label=${`${title} of GPU ${gpu.index} over the last 24 hours, in ${unit}`} xs=${day.at} ys=${ys} series=${[{ label: title, text }]} low=${0} high=${high} unit=${unit} group=${gpu.id} /></div>`;
  };
  return html`
    <div class="facts">
      <span><b>GPU ${gpu.index}</b> ${gpu.name}</span> <${Pill} word=${gpu.state} />
      <span>${sizeOf(gpu.memory_used, gpu.memory_total)}</span>
      ${gpu.temperature !== null && html`<span>${gpu.temperature} °C</span>`}
      ${gpu.power !== null && html`<span>${Math.round(gpu.power)} W</span>`}
      <span class="quiet mono">${gpu.id}</span>
      <${DrainButton} gpu=${gpu} />
    </div>
    <${Section} title="Now">
      <${HolderList} gpu=${gpu} />
      ${gpuFacts.waitersText(gpu) && html`<p>${gpuFacts.waitersText(gpu)}</p>`}
      ${gpu.processes.length > 0 && html`<ul aria-label="Processes on this GPU">${gpu.processes.map((one) => html`<li key=${one.pid}>${gpuFacts.processText(one)}</li>`)}</ul>`}
    <//>
    <div class="charts">
      ${chart("Use", day.use, "%", 100)}
      ${chart("Memory", day.memory, "%", 100)}
      ${chart("Temperature", day.temperature, "°C")}
      ${chart("Power", day.power, "W")}
    </div>
    <${Past} gpu=${gpu} />`;
}

/** @param {{gpu: Gpu}} props */
function Past({ gpu }) {
  const { data, error, reload } = useAnswer(`/v1/jobs?gpu=${encodeURIComponent(gpu.id)}&limit=${JOBS_SHOWN}&sort=-id`, { isLive: true });
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  return html`<${Section} title="Jobs on it" aside=${html`<a class="right" href=${`/jobs?gpu=${gpu.index}`}>All</a>`}>
    <${Table} label=${`Jobs on GPU ${gpu.index}`} rows=${data.jobs} keyOf=${(/** @type {import("../core/types.js").Job} */ job) => job.id} columns=${COLUMNS} />
  <//>`;
}

/** @type {{title: string, class?: string, phone?: string, cell: (job: import("../core/types.js").Job) => unknown}[]} */
const COLUMNS = [
  { title: "Job", cell: (job) => html`<${JobLink} id=${job.id} name=${job.name} />` },
  { title: "State", phone: "side", cell: (job) => html`<${Pill} word=${job.state} />` },
  { title: "Started", cell: (job) => html`<${Time} at=${job.started_at} />` },
  { title: "Ran", class: "number", cell: (job) => took(job.started_at, job.finished_at, state.now.value) },
  { title: "Command", class: "mono", cell: (job) => job.command },
];
