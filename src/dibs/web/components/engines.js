// Clusters beside this machine: their state, their nodes and free GPUs, and our jobs there.
import { useAnswer } from "../core/use-answer.js";
import { html } from "../vendor/ui.js";
import { Pill, Section, Table } from "./common.js";

/** @typedef {import("../core/types.js").Engine} Engine */
/** @typedef {import("../core/types.js").EngineNode} EngineNode */

/** A machine without clusters shows nothing. */
export function Clusters() {
  const { data } = useAnswer("/v1/engines", { everyMs: 15_000 });
  /** @type {Engine[]} */
  const clusters = (data?.engines ?? []).filter((/** @type {Engine} */ engine) => engine.kind !== "local");
  if (!clusters.length) return null;
  return html`${clusters.map((engine) => html`<${Cluster} key=${engine.name} engine=${engine} />`)}`;
}

/** @param {{engine: Engine}} props */
function Cluster({ engine }) {
  const free = engine.free_gpus === null ? "" : `, ${engine.free_gpus} free`;
  const aside = `${engine.gpus} GPUs${free}; ${engine.running} running, ${engine.waiting + engine.queued} waiting`;
  return html`<${Section} title=${`${engine.name} (${engine.kind})`} aside=${aside}>
    ${engine.problem && html`<div class="problem" role="alert">${engine.problem}</div>`}
    <${Table} label=${`Nodes of ${engine.name}`} rows=${engine.nodes} keyOf=${(/** @type {EngineNode} */ node) => node.name} columns=${COLUMNS} />
  <//>`;
}

/** @type {{title: string, class?: string, cell: (node: EngineNode) => unknown}[]} */
const COLUMNS = [
  { title: "Node", cell: (node) => html`<strong>${node.name}</strong> <span class="quiet">${node.gpu_type}</span>` },
  { title: "State", cell: (node) => html`<${Pill} word=${node.up ? "up" : "down"} />` },
  { title: "GPUs", class: "number", cell: (node) => node.gpus },
  { title: "Free", class: "number", cell: (node) => (node.free_gpus === null ? "?" : node.free_gpus) },
  { title: "CPUs", class: "number", cell: (node) => node.cpus },
  { title: "Jobs", class: "wide", cell: (node) => node.jobs.map((id, place) => html`${place ? ", " : ""}<a href=${`/job/${id}`}>${id}</a>`) },
];
