// Metrics over the run: reported by the job, and its GPU usage, under one crosshair.
import { Chart } from "../../components/charts.js";
import { Empty, Problem } from "../../components/common.js";
import { number } from "../../core/format.js";
import { useAnswer } from "../../core/use-answer.js";
import { html, useMemo } from "../../vendor/ui.js";
import { lowUse, samples } from "./job-text.js";

/** @typedef {import("./job-text.js").Whole} Whole */
/** @typedef {import("./job-text.js").Sample} Sample */
/** @typedef {{numbers: {name: string, at: (string | null)[], values: (number | null)[]}[], cut: boolean}} Reported GET /v1/jobs/{id}/numbers */
/** @typedef {{gpus: {id: string, recent: Sample[], minutes: Sample[]}[]}} History GET /v1/gpus/history */

/** Most minutes of history to request: four weeks. */
const MOST_MINUTES = 4 * 7 * 24 * 60;
const REFRESH_MS = 10_000;

/** @param {{job: Whole}} props */
export function Numbers({ job }) {
  return html`<${Reported} job=${job} /><${Used} job=${job} />`;
}

/** @param {{job: Whole}} props */
function Reported({ job }) {
  const { data, error, reload } = /** @type {import("../../core/use-answer.js").Answer<Reported>} */ (useAnswer(`/v1/jobs/${job.id}/numbers`, { everyMs: job.finished_at ? 0 : REFRESH_MS }));
  const charts = useMemo(
    () => (data?.numbers ?? []).map(({ name, at, values }) => {
      // Lines of other programs may have no time; then they are numbered.
      const isTime = at.every((moment) => moment !== null);
      return { name, isTime, xs: at.map((moment, i) => (isTime ? Date.parse(moment ?? "") / 1000 : i)), ys: [values], last: values.findLast((value) => value !== null) };
    }),
    [data],
  );
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  if (!charts.length && job.report) return html`<p class="quiet">Only the last numbers are known: they were read from its output (--metric).</p>`;
  if (!charts.length) return html`<${Empty} title="This job has reported no numbers." text="In the job, from any language or from Python:" commands=${["dibs report loss=0.3 step=10", "python -c 'import dibs; dibs.report(loss=0.3)'"]} />`;
  return html`<section><div class="heading"><h2>Reported</h2><div class="aside">${data.cut ? "the latest part" : ""}</div></div>
    <div class="charts">${charts.map(({ name, isTime, xs, ys, last }) => html`<div key=${name}>
      <h3>${name} <span class="quiet">${number(last)}</span></h3>
      <${Chart} label=${`${name} over time, last ${number(last)}`} xs=${xs} ys=${ys} series=${[{ label: name, text: number }]} isTime=${isTime} group=${isTime ? `job-${job.id}` : undefined} />
    </div>`)}</div>
  </section>`;
}

/** @param {{job: Whole}} props */
function Used({ job }) {
  const from = job.started_at ? Date.parse(job.started_at) : null;
  const to = job.finished_at ? Date.parse(job.finished_at) : Infinity;
  // Requested once, back to the start of the run; later requests are the same.
  const minutes = useMemo(() => (from === null ? 0 : Math.min(MOST_MINUTES, Math.ceil((Date.now() - from) / 60_000) + 1)), [from]);
  const path = from === null || !job.gpu_ids.length ? null : `/v1/gpus/history?minutes=${minutes}`;
  const { data, error } = /** @type {import("../../core/use-answer.js").Answer<History>} */ (useAnswer(path, { everyMs: job.finished_at ? 0 : REFRESH_MS }));
  const gpus = useMemo(
    () => job.gpu_ids.map((id, i) => {
      const history = data?.gpus.find((gpu) => gpu.id === id) ?? { recent: [], minutes: [] };
      return { id, name: `GPU ${job.gpu_indices[i] ?? id}`, seen: samples(history, from ?? 0, to) };
    }),
    [data, job.id, from, to],
  );
  if (path === null) return null;
  if (!data) return html`<${Problem} error=${error} />`;
  const drawn = gpus.filter((gpu) => gpu.seen.xs.length > 1);
  if (!drawn.length) return html`<p class="quiet">Nothing was seen of its GPUs during this run: it was too short, or too long ago.</p>`;
  const percent = (/** @type {number | null} */ value) => (value === null ? "–" : `${Math.round(value)} %`);
  return drawn.map(({ id, name, seen }) => {
    const hint = lowUse(seen.xs, seen.use);
    return html`<section key=${id}><div class="heading"><h2>${name}</h2><div class="aside">${hint && html`<span class="warn-text">${name} ${hint}</span>`}</div></div>
      <div class="charts">
        <div><h3>Use</h3><${Chart} label=${`${name}: use in percent`} xs=${seen.xs} ys=${[seen.use]} series=${[{ label: "use", text: percent }]} low=${0} high=${100} group=${`job-${job.id}`} /></div>
        <div><h3>Memory in GB</h3><${Chart} label=${`${name}: memory in GB`} xs=${seen.xs} ys=${[seen.memory]} series=${[{ label: "memory", colour: "wait", text: number }]} low=${0} group=${`job-${job.id}`} /></div>
      </div>
    </section>`;
  });
}
