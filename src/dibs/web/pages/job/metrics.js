// Metrics over the run: reported by the job, and the use of its GPUs.
import { Chart } from "../../components/charts.js";
import { Empty, Problem } from "../../components/common.js";
import { options, SeriesOptions } from "../../components/series-options.js";
import { number } from "../../core/format.js";
import { overAxis, smoothed } from "../../core/series.js";
import { useAnswer } from "../../core/use-answer.js";
import { html, useMemo } from "../../vendor/ui.js";
import { lowUse, samples } from "./job-text.js";

/** @typedef {import("./job-text.js").Whole} Whole */
/** @typedef {import("./job-text.js").Sample} Sample */
/** @typedef {{numbers: {name: string, at: (string | null)[], steps: (number | null)[], values: (number | null)[]}[], cut: boolean}} Reported GET /v1/jobs/{id}/numbers */
/** @typedef {{gpus: {id: string, recent: Sample[], minutes: Sample[]}[]}} History GET /v1/gpus/history */

/** Most minutes of history to request: four weeks. */
const MOST_MINUTES = 4 * 7 * 24 * 60;
const REFRESH_MS = 10_000;
/** Names that count the progress of a run: they are the axis, not a chart. */
const STEPS = new Set(["step", "global_step", "iteration", "iter", "epoch"]);

/** @param {{job: Whole, isBeside?: boolean}} props isBeside: beside the log, where an empty state would only take room */
export function Metrics({ job, isBeside = false }) {
  return html`<div class="metrics"><${Reported} job=${job} isBeside=${isBeside} /><${Used} job=${job} isBeside=${isBeside} /></div>`;
}

/** @param {{job: Whole, isBeside: boolean}} props */
function Reported({ job, isBeside }) {
  const { data, error, reload } = /** @type {import("../../core/use-answer.js").Answer<Reported>} */ (useAnswer(`/v1/jobs/${job.id}/numbers`, { everyMs: job.finished_at ? 0 : REFRESH_MS }));
  const { isTime, isLog, weight } = options();
  const charts = useMemo(() => {
    const zero = job.started_at ? Date.parse(job.started_at) / 1000 : 0;
    const all = data?.numbers ?? [];
    const told = all.filter(({ name }) => !STEPS.has(name));
    return (told.length ? told : all).map((course) => {
      const { x, y, axis } = overAxis(course, isTime, zero);
      return { name: course.name, axis, xs: x, ys: [smoothed(y, weight)], last: course.values.findLast((value) => value !== null) };
    });
  }, [data, isTime, weight, job.started_at]);
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  if (!charts.length && job.report) return html`<p class="quiet">Only the last values are known: they were read from its output (--metric).</p>`;
  if (!charts.length) return isBeside ? null : html`<${Empty} title="This job has reported no metrics" text="In the job, from any language or from Python:" commands=${["dibs report loss=0.3 step=10", "python -c 'import dibs; dibs.report(loss=0.3)'"]} />`;
  return html`<section><div class="heading"><h2>Metrics</h2><div class="aside"><${SeriesOptions} />${data.cut ? "the latest part" : ""}</div></div>
    <div class="charts">${charts.map(({ name, axis, xs, ys, last }) => html`<div key=${name} class="panel">
      <${Chart} title=${name} label=${`${name} over ${axis === "time" ? "time" : "steps"}, last ${number(last)}`} xs=${xs} ys=${ys} series=${[{ label: name }]} axis=${axis} isLog=${isLog} group=${`job-${job.id}-${axis}`} />
    </div>`)}</div>
  </section>`;
}

/** @param {{job: Whole, isBeside: boolean}} props */
function Used({ job, isBeside }) {
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
  if (!drawn.length) return isBeside ? null : html`<p class="quiet">Its GPUs were not observed during this run: it was too short, or too long ago.</p>`;
  return drawn.map(({ id, name, seen }) => {
    const hint = lowUse(seen.xs, seen.use);
    return html`<section key=${id}><div class="heading"><h2>${name}</h2><div class="aside">${hint && html`<span class="warn-text">${name} ${hint}</span>`}</div></div>
      <div class="charts">
        <div class="panel"><${Chart} title="Use" label=${`${name}: use in percent`} xs=${seen.xs} ys=${[seen.use]} series=${[{ label: "use" }]} low=${0} high=${100} unit="%" group=${`job-${job.id}`} /></div>
        <div class="panel"><${Chart} title="Memory" label=${`${name}: memory in GB`} xs=${seen.xs} ys=${[seen.memory]} series=${[{ label: "memory", colour: "wait" }]} low=${0} unit="GB" group=${`job-${job.id}`} /></div>
      </div>
    </section>`;
  });
}
