// One GPU: its day in charts, its current jobs and processes, and what ran on it.
import { Chart } from "../components/charts.js";
import { Empty, JobLink, Pill, Problem, Section, Table, Time } from "../components/common.js";
import { reservedText } from "../core/facts.js";
import { size, sizeOf, took } from "../core/format.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useMemo } from "../vendor/ui.js";
import { DrainButton, HolderList } from "./gpus/gpu-components.js";
import * as gpuFacts from "./gpus/gpu-facts.js";

/** @typedef {import("../core/types.js").Gpu} Gpu */

const MINUTES = 24 * 60;
const JOBS_SHOWN = 20;

/** @param {{id: string}} props an index or the beginning of a UUID */
export default function Page({ id }) {
  const gpu = state.gpus.value?.gpus.find((one) => String(one.index) === id || one.id === id);
  if (!state.gpus.value) return null;
  if (!gpu) return html`<${Empty} title=${`There is no GPU ${id} on this machine`} link=${["All GPUs", "/gpus"]} />`;
  return html`<${Whole} gpu=${gpu} />`;
}

/** @param {{gpu: Gpu}} props */
function Whole({ gpu }) {
  const { data } = useAnswer(`/v1/gpus/history?minutes=${MINUTES}`, { everyMs: 30_000 });
  const { data: active } = useAnswer("/v1/jobs?limit=200&state=starting,running,paused,stopping", { isLive: true });
  const names = new Map((active?.jobs ?? []).map((/** @type {import("../core/types.js").Job} */ job) => [job.id, job.name]));
  const day = useMemo(() => gpuFacts.dayOf(data?.gpus.find((/** @type {{id: string}} */ one) => one.id === gpu.id), gpu.memory_total), [data, gpu.id, gpu.memory_total]);
  const chart = (/** @type {string} */ title, /** @type {(number | null)[]} */ values, /** @type {string} */ unit, high = /** @type {number | undefined} */ (undefined)) => {
    const text = (/** @type {number | null} */ value) => (value === null ? "–" : `${Math.round(value)} ${unit}`);
    const ys = [values];
    return html`<div class="panel"><${Chart} title=${title} label=${`${title} of GPU ${gpu.index} over the last 24 hours, in ${unit}`} xs=${day.at} ys=${ys} series=${[{ label: title, text }]} low=${0} high=${high} unit=${unit} group=${gpu.id} /></div>`;
  };
  const isEmpty = data && !day.at.length;
  return html`
    <div class="gpu-head">
      <div><h2>GPU ${gpu.index} <${Pill} word=${gpu.state} /></h2><div class="quiet">${gpu.name} · <code class="mono">${gpu.id}</code></div></div>
      <${DrainButton} gpu=${gpu} />
    </div>
    <ul class="tiles" aria-label="In short">
      <${Tile} what="Use" value=${gpu.utilization === null ? "–" : `${gpu.utilization} %`} more=${useText(gpu)} />
      <${Tile} what="Memory" value=${sizeOf(gpu.memory_used, gpu.memory_total)} more=${gpu.memory_used === null || !gpu.memory_total ? "" : `${Math.round((100 * gpu.memory_used) / gpu.memory_total)} % full`} />
      <${Tile} what="Temperature" value=${gpu.temperature === null ? "–" : `${gpu.temperature} °C`} more=${gpu.temperature === null ? "not reported" : ""} />
      <${Tile} what="Power" value=${gpu.power === null ? "–" : `${Math.round(gpu.power)} W`} more=${gpu.power === null ? "not reported" : gpu.power_limit ? `of ${Math.round(gpu.power_limit)} W` : ""} />
      <${Tile} what="Waiting" value=${gpu.waiters} more=${gpu.waiters ? html`<a href="/people">in the line</a>` : "nobody waits for it"} />
    </ul>
    <div class="now">
      <${Section} title="Now"><div class="panel"><${HolderList} gpu=${gpu} names=${names} />${gpu.reservation && html`<p class="quiet">${reservedText(gpu.reservation, state.hello.value?.user)}</p>`}</div><//>
      ${gpu.processes.length > 0 && html`<${Section} title="Processes"><${Table} label="Processes on this GPU" rows=${gpu.processes} keyOf=${(/** @type {Process} */ one) => one.pid} columns=${PROCESSES} /><//>`}
    </div>
    <${Section} title="The last 24 hours">
      ${isEmpty && html`<p class="panel quiet">No reading yet. A GPU is read while one of your jobs is unfinished, and while this page is open.</p>`}
      ${day.at.length > 0 && html`<div class="charts">
        ${chart("Use", day.use, "%", 100)}
        ${chart("Memory", day.memory, "%", 100)}
        ${isKnown(day.temperature) && chart("Temperature", day.temperature, "°C")}
        ${isKnown(day.power) && chart("Power", day.power, "W")}
      </div>`}
    <//>
    <${Past} gpu=${gpu} />`;
}

/** @param {readonly (number | null)[]} values */
const isKnown = (values) => values.some((one) => one !== null);

/** Since when a GPU is idle, if it is. @param {Gpu} gpu */
function useText(gpu) {
  const since = gpu.unused_since ?? gpu.idle_since;
  return since ? `idle for ${took(since, null, state.now.value)}` : "now";
}

/** @param {{what: string, value: unknown, more: unknown}} props */
const Tile = ({ what, value, more }) => html`<li><div class="tile"><span class="what">${what}</span> <b>${value}</b> <span class="more">${more}</span></div></li>`;

/** @typedef {Gpu["processes"][number]} Process */
/** @type {{title: string, class?: string, phone?: string, cell: (one: Process) => unknown}[]} */
const PROCESSES = [
  { title: "User", cell: (one) => one.user ?? "unknown" },
  { title: "Program", cell: (one) => one.name ?? "unknown" },
  { title: "Memory", phone: "side", class: "number", cell: (one) => (one.memory === null ? "" : size(one.memory)) },
  { title: "Pid", class: "number", cell: (one) => one.pid },
];

/** @param {{gpu: Gpu}} props */
function Past({ gpu }) {
  const { data, error, reload } = useAnswer(`/v1/jobs?gpu=${encodeURIComponent(gpu.id)}&limit=${JOBS_SHOWN}&sort=-id`, { isLive: true });
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  if (!data.jobs.length) return html`<${Empty} title="No job has used this GPU" text="Run one on exactly this GPU:" commands=${[`dibs add --gpu-ids ${gpu.index} python train.py`]} />`;
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
