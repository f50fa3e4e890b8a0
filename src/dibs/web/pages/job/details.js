// Everything about one job that is not its output or a chart: its options, attempts and events.
import { Command, Empty, JobLink, Pill, Problem, Table, Time } from "../../components/common.js";
import { gpuNames, size, took } from "../../core/format.js";
import { limit } from "../../core/job-drafts.js";
import * as state from "../../core/state.js";
import { useAnswer } from "../../core/use-answer.js";
import { html } from "../../vendor/ui.js";
import { endText, eventWords, explained } from "./job-text.js";

/** @typedef {import("./job-text.js").Whole} Whole */
/** @typedef {import("../../vendor/ui.js").ComponentChildren} Children */

/** Facts by name; one without anything to say is left out. @param {{facts: [string, Children][]}} props */
function Facts({ facts }) {
  const told = facts.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return html`<dl class="facts-list">${told.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** @param {{job: Whole}} props */
export function Details({ job }) {
  const env = Object.entries(job.env ?? {});
  const params = Object.entries(job.params ?? {});
  const peaks = (job.use ?? []).map((one) => `${gpuOf(job, one.id)}: ${size(one.peak_memory)}${one.mean_utilization == null ? "" : `, used ${Math.round(one.mean_utilization)} %`}`);
  return html`<${Facts} facts=${[
    ["Command", html`<pre>${job.command}</pre>`],
    ["Words", job.argv && html`<pre>${job.argv.map((word) => JSON.stringify(word)).join("\n")}</pre>`],
    ["Folder", html`<code>${job.cwd}</code>`],
    ["Environment", env.length > 0 && html`<pre>${env.map(([name, value]) => `${name}=${value}`).join("\n")}</pre>`],
    ["GPUs", `${job.gpus}${job.gpu_indices.length ? `, got ${gpuNames(job.gpu_indices)}` : ""}`],
    ["Memory of each GPU", job.vram && `${size(job.vram)}, shared with others`],
    ["CPUs", job.cpus],
    ["Memory", job.mem && size(job.mem)],
    ["Time limit", limit(job.time_limit_s)],
    ["Begins at", job.begin_at && html`<${Time} at=${job.begin_at} isClock />`],
    ["Retries", job.retries > 0 && `up to ${job.retries}`],
    ["Priority", String(job.priority)],
    ["Waits for", job.after.length > 0 && job.after.map((need) => html`<span key=${need.id}><${JobLink} id=${need.id} /> (${WHEN[need.when] ?? need.when}) </span>`)],
    ["Sweep", job.sweep !== null && html`<a href=${`/sweep/${encodeURIComponent(job.sweep)}`}>${job.sweep}</a>, run ${job.index}`],
    ["Parameters", params.length > 0 && html`<pre>${params.map(([name, value]) => `${name} = ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n")}</pre>`],
    ["Project", job.project],
    ["Engine", job.engine !== "local" && [job.engine, job.engine_ref, job.node].filter(Boolean).join(", ")],
    ["Evictable", job.evictable && (job.evictable === true ? "yes" : job.evictable)],
    ["Evicted", job.evictions > 0 && `${job.evictions} times`],
    ["Tags", job.tags.join(", ")],
    ["Comment", job.comment],
    ["Group", job.group === "default" ? null : job.group],
    ["Ended", job.finished_at && [job.state, endText(job)].filter(Boolean).join(", ")],
    ["Peak memory", peaks.length > 0 && peaks.map((peak) => html`<div key=${peak}>${peak}</div>`)],
    ["Remark", job.remark],
    ["Log", html`<code>${job.log}</code>`],
    ["Command line", job.cli && html`<${Command} text=${job.cli} />`],
  ]} />`;
}

/** @type {Record<string, string>} */
const WHEN = { done: "must succeed", any: "one of them must succeed", end: "must have ended" };

/** @param {Whole} job @param {string} id */
function gpuOf(job, id) {
  const place = job.gpu_ids.indexOf(id);
  return place >= 0 && job.gpu_indices[place] !== undefined ? `GPU ${job.gpu_indices[place]}` : id;
}

/** @param {{job: Whole}} props */
export function Attempts({ job }) {
  const past = job.attempts.map((one) => ({ ...one, word: one.outcome, why: endText(one) }));
  const isPast = past.some((one) => one.attempt === job.attempt);
  const now = { attempt: job.attempt, word: job.state, why: job.reason ?? "", gpu_indices: job.gpu_indices, started_at: job.started_at, finished_at: job.finished_at };
  const rows = isPast ? past : [...past, now];
  return html`<${Table} label="Attempts" keyOf=${(/** @type {typeof now} */ row) => row.attempt} rows=${rows.toReversed()} columns=${[
    { title: "Attempt", class: "number", cell: (/** @type {typeof now} */ row) => row.attempt },
    { title: "State", phone: "side", cell: (/** @type {typeof now} */ row) => html`<${Pill} word=${row.word} />` },
    { title: "GPUs", phone: "plain", cell: (/** @type {typeof now} */ row) => gpuNames(row.gpu_indices) },
    { title: "Started", cell: (/** @type {typeof now} */ row) => html`<${Time} at=${row.started_at} isClock />` },
    { title: "Took", cell: (/** @type {typeof now} */ row) => took(row.started_at, row.finished_at, state.now.value) },
    { title: "How it ended", phone: "plain", cell: (/** @type {typeof now} */ row) => row.why },
    { title: "Log", phone: "plain", cell: (/** @type {typeof now} */ row) => html`<a href=${`/job/${job.id}?attempt=${row.attempt}`}>log</a>` },
  ]} />`;
}

/** @typedef {{at: string, kind: string, detail: string | null}} Happened */

/** @param {{job: Whole}} props */
export function Events({ job }) {
  const { data, error, reload } = /** @type {import("../../core/use-answer.js").Answer<{events: Happened[]}>} */ (useAnswer(`/v1/jobs/${job.id}/events`, { isLive: true }));
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  if (!data.events.length) return html`<${Empty} title="No events are kept for this job" />`;
  const indices = new Map((state.gpus.value?.gpus ?? []).map((gpu) => [gpu.id, gpu.index]));
  const rows = explained(data.events, job, indices).map((event, i) => ({ ...event, i }));
  return html`<${Table} label="Events" keyOf=${(/** @type {typeof rows[0]} */ row) => row.i} rows=${rows} columns=${[
    { title: "When", cell: (/** @type {Happened} */ row) => html`<${Time} at=${row.at} isClock />` },
    { title: "What", phone: "side", cell: (/** @type {Happened} */ row) => eventWords(row.kind) },
    { title: "Details", phone: "text", cell: (/** @type {Happened} */ row) => row.detail ?? "" },
  ]} />`;
}
