// All GPUs: their holders, their utilization today, and which are drained.
import { Chart } from "../components/charts.js";
import { Empty, Meter, Pill, Section, Table } from "../components/common.js";
import { sizeOf } from "../core/format.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useMemo } from "../vendor/ui.js";
import { DrainButton, HolderList } from "./gpus/gpu-components.js";
import * as gpuFacts from "./gpus/gpu-facts.js";

/** @typedef {import("../core/types.js").Gpu} Gpu */

/** The charts show one day. */
const MINUTES = 24 * 60;

export default function Page() {
  const known = state.gpus.value;
  const { data } = useAnswer(`/v1/gpus/history?minutes=${MINUTES}`, { everyMs: 30_000 });
  const gpus = known?.gpus ?? [];
  const days = useMemo(
    () => gpus.map((gpu) => gpuFacts.dayOf(data?.gpus.find((/** @type {{id: string}} */ one) => one.id === gpu.id), gpu.memory_total)),
    [data, gpus.map((gpu) => gpu.id).join()],
  );
  if (!known) return null;
  return html`
    ${known.problem && html`<div class="problem" role="alert">${known.problem}</div>`}
    ${known.restriction && html`<p class="quiet">${known.restriction}</p>`}
    ${!gpus.length && html`<${Empty} title="No GPU is seen on this machine." text="What the driver says, and what to do next:" commands=${["dibs doctor", "dibs gpus"]} />`}
    <${Section} title="GPUs">
      <${Table} label="GPUs" rows=${gpus} keyOf=${(/** @type {Gpu} */ gpu) => gpu.id} columns=${COLUMNS} />
    <//>
    ${gpus.length > 0 && html`<${Section} title="The last 24 hours" aside="use and memory, in percent">
      <div class="days">${gpus.map((gpu, i) => html`<${Day} key=${gpu.id} gpu=${gpu} day=${days[i]} />`)}</div>
    <//>`}
    ${known.waiters.length > 0 && html`<${Section} title="Waiting on this machine">
      <${Table} label="Waiting on this machine" rows=${known.waiters} keyOf=${(/** @type {any} */ one) => `${one.pid}`}
        columns=${[
          { title: "user", cell: (/** @type {any} */ one) => one.user },
          { title: "pid", class: "number", cell: (/** @type {any} */ one) => one.pid },
          { title: "GPUs", class: "number", cell: (/** @type {any} */ one) => one.gpus },
        ]} /><//>`}`;
}

const percent = (/** @type {number | null} */ value) => (value === null ? "–" : `${Math.round(value)} %`);
const SERIES = [{ label: "use", text: percent }, { label: "memory", colour: "wait", text: percent }];

/** @param {{gpu: Gpu, day: import("./gpus/gpu-facts.js").Day}} props */
function Day({ gpu, day }) {
  const ys = useMemo(() => [day.use, day.memory], [day]);
  return html`<figure class="panel day"><figcaption><a href=${`/gpu/${gpu.index}`}>GPU ${gpu.index}</a></figcaption>
    <${Chart} label=${`Use and memory of GPU ${gpu.index} over the last 24 hours, in percent`} xs=${day.at} ys=${ys} series=${SERIES} low=${0} high=${100} height=${130} group="gpus" />
  </figure>`;
}

/** @type {{title: string, class?: string, cell: (gpu: Gpu) => unknown}[]} */
const COLUMNS = [
  { title: "GPU", cell: (gpu) => html`<strong><a href=${`/gpu/${gpu.index}`}>GPU ${gpu.index}</a></strong> <span class="quiet">${gpu.name}</span>` },
  { title: "state", cell: (gpu) => html`<${Pill} word=${gpu.state} />` },
  { title: "who", cell: (gpu) => html`<${HolderList} gpu=${gpu} />`, class: "wide" },
  { title: "use", class: "number", cell: (gpu) => (gpu.utilization === null ? "" : `${gpu.utilization} %`) },
  {
    title: "memory",
    class: "number",
    cell: (gpu) => html`${sizeOf(gpu.memory_used, gpu.memory_total)}<${Meter} part=${gpu.memory_used === null || !gpu.memory_total ? null : gpu.memory_used / gpu.memory_total} label=${`memory ${sizeOf(gpu.memory_used, gpu.memory_total)}`} />`,
  },
  { title: "temperature", class: "number", cell: (gpu) => (gpu.temperature === null ? "" : `${gpu.temperature} °C`) },
  { title: "power", class: "number", cell: (gpu) => (gpu.power === null ? "" : `${Math.round(gpu.power)} W`) },
  { title: "waiting", class: "number", cell: (gpu) => gpu.waiters || "" },
  { title: "actions", class: "actions", cell: (gpu) => html`<${DrainButton} gpu=${gpu} />` },
];
