// One job: its state, its actions, and tabs for its output and everything else.
import { coded, Empty, Pill, Problem, Time } from "../components/common.js";
import * as api from "../core/api.js";
import { gpuNames, lastLine, starts, took } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import * as router from "../core/router.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useEffect, useState } from "../vendor/ui.js";
import { Actions } from "./job/actions.js";
import { Attempts, Details, Events } from "./job/details.js";
import { endText } from "./job/job-text.js";
import { Viewer } from "./job/log/viewer.js";

/** @typedef {import("./job/job-text.js").Whole} Whole */
/** @typedef {(props: {job: Whole}) => any} Tab */

/** @type {{name: string, text: string, key: string}[]} */
const TABS = [
  { name: "log", text: "Log", key: "1" },
  { name: "metrics", text: "Metrics", key: "2" },
  { name: "details", text: "Details", key: "3" },
  { name: "attempts", text: "Attempts", key: "4" },
  { name: "events", text: "Events", key: "5" },
];
/** @type {Record<string, Tab>} */
const DRAWN = { log: Output, metrics: Charts, details: Details, attempts: Attempts, events: Events };

/** @param {{id: string}} props */
export default function Job({ id }) {
  const { data: job, error, reload } = /** @type {import("../core/use-answer.js").Answer<Whole>} */ (useAnswer(`/v1/jobs/${Number(id)}`));
  // Only events of this job cause a reload; an empty batch means that anything may have changed.
  useEffect(() => state.onEvents((events) => void ((!events.length || events.some((one) => one.job === Number(id))) && reload())), [id]);
  const tab = router.query.value.get("tab") ?? "log";
  const Shown = DRAWN[tab] ?? Output;
  // Another attempt or stream is another log, loaded from scratch.
  const part = [tab, router.query.value.get("attempt") ?? job?.attempt, router.query.value.get("stream")].join(" ");
  useKeys(TABS.map((one) => ({ keys: one.key, does: one.text, group: "Job", run: () => router.go(addressOf(id, one.name)) })), [id]);
  if (!job && api.isMissing(error)) return html`<${Empty} title=${missing(error)} link=${["All jobs", "/jobs"]} />`;
  if (!job) return error ? html`<${Problem} error=${error} retry=${reload} />` : html`<p class="quiet" aria-busy="true">Loading job ${id}</p>`;
  return html`<${Head} job=${job} />
    <nav class="tabs" aria-label="Parts of the job">
      ${TABS.map((one) => html`<a key=${one.name} href=${addressOf(id, one.name)} aria-current=${one.name === tab ? "page" : null}>${one.text}${one.name === "attempts" && job.attempt > 1 ? ` (${job.attempt})` : ""}</a>`)}
    </nav>
    <${Shown} key=${part} job=${job} />`;
}

/** That there is no such job, and which is the newest, as a title. @param {unknown} error */
const missing = (error) => api.errorText(error).replace(/^./, (letter) => letter.toUpperCase()).replace(/\.$/, "");

/** @param {string} id @param {string} tab */
const addressOf = (id, tab) => `/job/${id}${tab === "log" ? "" : `?tab=${tab}`}`;

/** @param {{job: Whole}} props */
function Head({ job }) {
  const soon = starts(job.expected_start, state.now.value);
  const metrics = Object.entries(job.report ?? {}).slice(0, 5);
  const isBad = BAD.has(job.state);
  return html`<div class="job-top">
      <div class="job-head"><h2><span class="number">#${job.id}</span> ${job.name}</h2><${Pill} word=${job.state} />
        ${job.finished_at && job.state !== "done" && html`<span class="bad-text">${endText(job)}</span>`}</div>
      <${Actions} job=${job} />
    </div>
    ${isBad && html`<${LastLine} job=${job} />`}
    <div class="job-facts">
      <span>${gpuNames(job.gpu_indices) || (job.gpus ? `${job.gpus} GPU${job.gpus > 1 ? "s" : ""} requested` : "no GPU")}</span>
      <span><span class="quiet">submitted</span> <${Time} at=${job.submitted_at} /></span>
      ${job.started_at && html`<span><span class="quiet">started</span> <${Time} at=${job.started_at} isClock /></span>`}
      ${job.started_at && html`<span><span class="quiet">${job.finished_at ? "took" : "running for"}</span> ${took(job.started_at, job.finished_at, state.now.value)}</span>`}
      ${soon && html`<span><span class="quiet">starts</span> ${soon}</span>`}
      ${job.sweep !== null && html`<a href=${`/sweep/${encodeURIComponent(job.sweep)}`}>Sweep ${job.sweep}</a>`}
      ${job.attempt > 1 && html`<span><span class="quiet">attempt</span> ${job.attempt}</span>`}
      ${metrics.map(([name, value]) => html`<span key=${name}><span class="quiet">${name}</span> <span class="number">${value === null ? "nan" : Number(value.toPrecision(4))}</span></span>`)}
    </div>
    ${job.reason && html`<p class="job-facts"><span>${job.reason}${job.hint && html`. ${coded(job.hint)}`}</span></p>`}
    ${job.marks.map((mark) => html`<p key=${mark} class="job-facts warn-text">${mark}</p>`)}
    <code class="job-command" tabindex="0" aria-label="Command">${job.command}</code>`;
}

const BAD = new Set(["failed", "timeout", "lost"]);
/** Lines at the end of a log that are searched for the one that says most. */
const LOOKED_AT = 80;

/** The line of the log that says most about a failure; it leads to its traceback. @param {{job: Whole}} props */
function LastLine({ job }) {
  const [line, setLine] = useState("");
  useEffect(() => {
    const leaving = new AbortController();
    if (!job.started_at) return setLine(job.remark ?? "");
    api.request("GET", `/v1/jobs/${job.id}/log`, undefined, { query: { tail: LOOKED_AT }, signal: leaving.signal })
      .then((answer) => answer.text())
      .then((text) => setLine(lastLine(text)))
      .catch((error) => api.isAborted(error) || setLine(api.errorText(error)));
    return () => leaving.abort();
  }, [job.id, job.attempt]);
  return line ? html`<div class=${`job-cause mono${job.state === "failed" ? "" : " is-plain"}`} role="note" aria-label="Last line">${line}</div>` : null;
}

/** The log, and on a wide screen the metrics beside it. @param {{job: Whole}} props */
function Output({ job }) {
  const [isWide, setWide] = useState(() => WIDE.matches);
  useEffect(() => {
    const change = () => setWide(WIDE.matches);
    WIDE.addEventListener("change", change);
    return () => WIDE.removeEventListener("change", change);
  }, []);
  const isBeside = isWide && job.started_at !== null && (job.report !== null || job.gpu_ids.length > 0);
  return html`<div class=${isBeside ? "beside" : ""}><${Viewer} job=${job} />${isBeside && html`<${Charts} job=${job} isBeside />`}</div>`;
}

/** A screen with room for the metrics beside the log. */
const WIDE = matchMedia("(min-width: 1280px)");

/** The charts, whose library is loaded when they are first wanted. @param {{job: Whole, isBeside?: boolean}} props */
function Charts({ job, isBeside = false }) {
  const [loaded, setLoaded] = useState(/** @type {{Metrics: (props: {job: Whole, isBeside: boolean}) => any} | null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  useEffect(() => void import("./job/metrics.js").then(({ Metrics }) => setLoaded({ Metrics }), setError), []);
  if (!loaded) return html`<${Problem} error=${error} />`;
  return html`<${loaded.Metrics} job=${job} isBeside=${isBeside} />`;
}
