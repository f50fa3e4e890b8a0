// Two to eight jobs beside each other: what differs in what was asked, their curves in one picture, the ends of their logs.
import { Chart } from "../components/charts.js";
import { Empty, JobLink, Pill, Problem, Section } from "../components/common.js";
import { options, SeriesOptions } from "../components/series-options.js";
import * as api from "../core/api.js";
import { ending, gpuNames, number, took } from "../core/format.js";
import * as router from "../core/router.js";
import { aligned, overAxis, smoothed } from "../core/series.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useEffect, useMemo, useState } from "../vendor/ui.js";
import { differences } from "./compare/differences.js";
import { Line } from "./job/log/line.js";

/** @typedef {import("./job/job-text.js").Whole} Whole */

const MOST = 8;
/** Lines at the end of each log. */
const LINES = 200;
/** Colours of the jobs, the same in the table, the charts and above the logs. */
const INKS = ["run", "warn", "done", "wait", "bad", "text", "accent", "quiet"];
const NO_SEARCH = { text: "", isCase: false, isRegex: false };

export default function Compare() {
  const ids = [...new Set((router.query.value.get("jobs") ?? "").split(",").filter((one) => /^\d{1,18}$/.test(one)).map(Number))].slice(0, MOST);
  const [typed, setTyped] = useState("");
  const add = (/** @type {Event} */ event) => {
    event.preventDefault();
    router.setQuery({ jobs: [...ids, ...typed.split(/[\s,#]+/).filter(Boolean)].join(",") }, { replace: false });
    setTyped("");
  };
  const form = html`<form class="bar" onSubmit=${add}><label>Add jobs <input type="text" size="12" placeholder="12, 15" value=${typed} onInput=${(/** @type {any} */ event) => setTyped(event.currentTarget.value)} /></label><button disabled=${!typed.trim() || ids.length >= MOST}>Add</button></form>`;
  if (ids.length < 2) {
    return html`<${Section} title="Compare jobs">${form}<${Empty} title="Choose two to eight jobs" text="Type their numbers here; or select rows in Jobs or in a sweep, and press Compare." /><//>`;
  }
  return html`<${Section} title=${`Compare ${ids.length} jobs`} aside=${form} /><${Loaded} key=${ids.join()} ids=${ids} />`;
}

/** @param {{ids: number[]}} props */
function Loaded({ ids }) {
  const [jobs, setJobs] = useState(/** @type {Whole[] | null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  useEffect(() => {
    const leaving = new AbortController();
    Promise.all(ids.map((id) => api.get(`/v1/jobs/${id}`, { signal: leaving.signal }))).then(setJobs, (wrong) => api.isAborted(wrong) || setError(wrong));
    return () => leaving.abort();
  }, []);
  if (!jobs) return html`<${Problem} error=${error} />`;
  return html`<${Differences} jobs=${jobs} /><${Curves} jobs=${jobs} /><${Logs} jobs=${jobs} />`;
}

/** @param {{jobs: Whole[]}} props */
function Differences({ jobs }) {
  const hasAll = router.query.value.get("rows") === "all";
  const rows = differences(jobs, hasAll);
  const remove = (/** @type {number} */ id) => () => router.setQuery({ jobs: jobs.filter((job) => job.id !== id).map((job) => job.id).join(",") });
  const aside = html`<button type="button" class="small" aria-pressed=${hasAll} onClick=${() => router.setQuery({ rows: hasAll ? null : "all" })}>Show equal values</button>`;
  return html`<${Section} title="What differs" aside=${aside}><div class="table" role="region" aria-label="What differs" tabindex="0"><table class="keep compare" aria-label="What differs">
    <thead><tr><th scope="col">Job</th>${jobs.map((job, i) => html`<th key=${job.id} scope="col"><span class="head"><i class=${`ink-${INKS[i]}`}></i><${JobLink} id=${job.id} name=${job.name} /> <button type="button" class="link quiet" aria-label=${`Remove job ${job.id}`} onClick=${remove(job.id)}>✕</button></span></th>`)}</tr></thead>
    <tbody>
      <tr><th scope="row">State</th>${jobs.map((job) => html`<td key=${job.id}><${Pill} word=${job.state} /> <span class="quiet">${job.state === "done" ? "" : ending(job)}</span></td>`)}</tr>
      <tr><th scope="row">Took</th>${jobs.map((job) => html`<td key=${job.id}>${took(job.started_at, job.finished_at, state.now.value)} <span class="quiet">${gpuNames(job.gpu_indices)}</span></td>`)}</tr>
      ${rows.map((row) => html`<tr key=${row.name} class=${row.isEqual ? "quiet" : ""}><th scope="row">${row.name}</th>${row.values.map((value, i) => html`<td key=${i} class=${row.isCode ? "code" : "number"}>${value}</td>`)}</tr>`)}
      ${!rows.length && html`<tr><th scope="row">All</th><td colspan=${jobs.length}>No differences: the jobs were submitted with the same options.</td></tr>`}
    </tbody></table></div><//>`;
}

/** @param {{jobs: Whole[]}} props */
function Curves({ jobs }) {
  const answers = jobs.map((job) => useAnswer(`/v1/jobs/${job.id}/numbers`, { everyMs: job.finished_at ? 0 : 10_000 }));
  const { isTime, isLog, weight } = options();
  const key = answers.map((one) => one.data);
  const charts = useMemo(() => {
    const names = [...new Set(answers.flatMap((one) => (one.data?.numbers ?? []).map((/** @type {{name: string}} */ each) => each.name)))].filter((name) => !["step", "global_step", "epoch", "iteration", "iter"].includes(name));
    return names.map((name) => {
      const all = jobs.map((job, i) => {
        const course = answers[i].data?.numbers.find((/** @type {{name: string}} */ each) => each.name === name);
        return course ? overAxis(course, isTime, job.started_at ? Date.parse(job.started_at) / 1000 : 0) : { x: [], y: [], axis: /** @type {const} */ ("step") };
      });
      const { xs, ys } = aligned(all.map(({ x, y }) => ({ x, y: smoothed(y, weight) })));
      return { name, xs, ys, axis: all.find((one) => one.x.length)?.axis ?? "step" };
    });
  }, [...key, isTime, weight]);
  const series = useMemo(() => jobs.map((job, i) => ({ label: `#${job.id}`, colour: INKS[i], text: number })), [jobs]);
  if (!charts.length) return null;
  return html`<${Section} title="Metrics" aside=${html`<${SeriesOptions} />`}><div class="charts">
    ${charts.map(({ name, xs, ys, axis }) => html`<div key=${name} class="panel"><${Chart} title=${name} label=${`${name} of ${jobs.length} jobs`} xs=${xs} ys=${ys} series=${series} axis=${axis} isLog=${isLog} height=${220} group="compare" /></div>`)}
  </div><//>`;
}

/** @param {{jobs: Whole[]}} props */
function Logs({ jobs }) {
  return html`<${Section} title="Logs" aside=${`the last ${LINES} lines of each`}><div class="logs log">${jobs.map((job, i) => html`<${Tail} key=${job.id} job=${job} ink=${INKS[i]} />`)}</div><//>`;
}

/** @param {{job: Whole, ink: string}} props */
function Tail({ job, ink }) {
  const [lines, setLines] = useState(/** @type {{text: string}[] | null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  useEffect(() => {
    const leaving = new AbortController();
    api.request("GET", `/v1/jobs/${job.id}/log`, undefined, { query: { tail: LINES }, signal: leaving.signal })
      .then((answer) => answer.text())
      .then((text) => setLines(text.replace(/\n$/, "").split("\n").map((line) => ({ text: line }))))
      .catch((wrong) => api.isAborted(wrong) || setError(wrong));
    return () => leaving.abort();
  }, [job.id]);
  return html`<div class="panel"><h3><i class=${`ink-${ink}`}></i><${JobLink} id=${job.id} name=${job.name} /></h3>
    <${Problem} error=${error} />
    <div class="tail" tabindex="0" role="region" aria-label=${`End of the log of job ${job.id}`}>${(lines ?? []).map((line, i) => html`<${Line} key=${i} line=${line} number=${null} row=${i} sought=${NO_SEARCH} choose=${() => {}} isLinked=${false} isCurrent=${false} />`)}</div>
  </div>`;
}
