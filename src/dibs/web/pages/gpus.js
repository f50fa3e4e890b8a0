// All GPUs: their holders, their utilization today, and which are drained.
import { Empty, Meter, Pill, Section, Table } from "../components/common.js";
import { Clusters } from "../components/engines.js";
import { ReservationList } from "../components/reservations.js";
import { plural, size, sizeOf } from "../core/format.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useMemo } from "../vendor/ui.js";
import { DrainButton, HolderList } from "./gpus/gpu-components.js";
import * as gpuFacts from "./gpus/gpu-facts.js";
import { HeatStrips } from "./gpus/heat-strips.js";

/** @typedef {import("../core/types.js").Gpu} Gpu */

/** The strips show one day. */
const MINUTES = 24 * 60;
const DAY_MS = MINUTES * 60_000;
/** Milliseconds after which the strips move on. */
const STEP_MS = 300_000;

export default function Page() {
  const known = state.gpus.value;
  const { data } = useAnswer(`/v1/gpus/history?minutes=${MINUTES}`, { everyMs: 30_000 });
  const { data: timeline } = useAnswer("/v1/timeline?since=24h", { isLive: true, restMs: 10_000 });
  const { data: active } = useAnswer("/v1/jobs?limit=200&state=starting,running,paused,stopping", { isLive: true });
  const names = new Map((active?.jobs ?? []).map((/** @type {{id: number, name: string}} */ job) => [job.id, job.name]));
  const gpus = known?.gpus ?? [];
  const days = useMemo(
    () => gpus.map((gpu) => gpuFacts.dayOf(data?.gpus.find((/** @type {{id: string}} */ one) => one.id === gpu.id), gpu.memory_total)),
    [data, gpus.map((gpu) => gpu.id).join()],
  );
  if (!known) return null;
  const to = Math.ceil(state.now.value / STEP_MS) * STEP_MS;
  const foreign = gpus.filter((gpu) => gpu.foreign).flatMap((gpu) => gpu.processes.map((process) => ({ gpu, process })));
  return html`
    ${known.problem && html`<div class="problem" role="alert">${known.problem}</div>`}
    ${known.restriction && html`<p class="quiet">${known.restriction}</p>`}
    ${!gpus.length && html`<${Empty} title="No GPU was found on this machine" text="See what the driver reports, and what helps:" commands=${["dibs doctor", "dibs gpus"]} />`}
    ${gpus.length > 0 && html`<${Section} title="The last 24 hours" aside=${html`<div class="legend" aria-hidden="true"><span><i class="is-running"></i>use</span><span><i class="is-memory"></i>memory</span><span><i class="is-done"></i>done</span><span><i class="is-failed"></i>failed</span><span><i class="is-running"></i>running</span></div>`}>
      <${HeatStrips} gpus=${gpus} days=${days} timeline=${timeline} view=${{ from: to - DAY_MS, to }} />
    <//>`}
    <${Section} title="GPUs">
      <${Table} label="GPUs" rows=${gpus} keyOf=${(/** @type {Gpu} */ gpu) => gpu.id} columns=${columnsOf(names, gpus)} />
    <//>
    ${gpus.length > 0 && html`<${ReservationList} />`}
    <${Clusters} />
    ${foreign.length > 0 && html`<${Section} title="Foreign processes" aside="They use a GPU without a lease; jobs wait until they have ended">
      <${Table} label="Foreign processes" rows=${foreign} keyOf=${(/** @type {any} */ one) => `${one.gpu.id} ${one.process.pid}`} columns=${[
        { title: "User", cell: (/** @type {any} */ one) => one.process.user ?? "unknown" },
        { title: "Program", cell: (/** @type {any} */ one) => one.process.name ?? "unknown" },
        { title: "GPU", phone: "side", cell: (/** @type {any} */ one) => `GPU ${one.gpu.index}` },
        { title: "Memory", class: "number", cell: (/** @type {any} */ one) => (one.process.memory === null ? "" : size(one.process.memory)) },
        { title: "Pid", class: "number", cell: (/** @type {any} */ one) => one.process.pid },
      ]} /><//>`}
    ${known.waiters.length > 0 && html`<p><a href="/people">${plural(known.waiters.length, "ticket")} of all users in the machine-wide line</a></p>`}`;
}

/** Its state says already that it is free. @param {Gpu} gpu */
const isUnheld = (gpu) => gpu.state === "free" && !gpu.holders.length && gpuFacts.statusText(gpu, 0).startsWith("free");

/** @param {Gpu} gpu */
const idleText = (gpu) => gpuFacts.statusText(gpu, state.now.value).replace(/^free(, )?/, "");

/** Without what no GPU of this machine reports. @param {ReadonlyMap<number, string>} names of running jobs @param {readonly Gpu[]} gpus @returns {{title: string, class?: string, phone?: string, cell: (gpu: Gpu) => unknown}[]} */
const columnsOf = (names, gpus) => [
  { title: "GPU", cell: (gpu) => html`<strong><a href=${`/gpu/${gpu.index}`}>GPU ${gpu.index}</a></strong> <span class="quiet">${gpu.name}</span>` },
  { title: "State", phone: "side", cell: (gpu) => html`<${Pill} word=${gpu.state} />` },
  { title: "Who", phone: "text", cell: (gpu) => (isUnheld(gpu) ? html`<span class="quiet">${idleText(gpu)}</span>` : html`<${HolderList} gpu=${gpu} names=${names} />`), class: "wide" },
  { title: "Use", class: "number", cell: (gpu) => (gpu.utilization === null ? "" : `${gpu.utilization} %`) },
  {
    title: "Memory",
    class: "number",
    cell: (gpu) => html`${sizeOf(gpu.memory_used, gpu.memory_total)}<${Meter} part=${gpu.memory_used === null || !gpu.memory_total ? null : gpu.memory_used / gpu.memory_total} label=${`memory ${sizeOf(gpu.memory_used, gpu.memory_total)}`} />`,
  },
  ...(gpus.every((gpu) => gpu.temperature === null) ? [] : [{ title: "Temperature", phone: "nothing", class: "number", cell: (/** @type {Gpu} */ gpu) => (gpu.temperature === null ? "" : `${gpu.temperature} °C`) }]),
  ...(gpus.every((gpu) => gpu.power === null) ? [] : [{ title: "Power", phone: "nothing", class: "number", cell: (/** @type {Gpu} */ gpu) => (gpu.power === null ? "" : `${Math.round(gpu.power)} W`) }]),
  ...(gpus.every((gpu) => !gpu.waiters) ? [] : [{ title: "Waiting", phone: "nothing", class: "number", cell: (/** @type {Gpu} */ gpu) => gpu.waiters || "" }]),
  { title: "Actions", class: "actions", cell: (gpu) => html`<${DrainButton} gpu=${gpu} />` },
];
