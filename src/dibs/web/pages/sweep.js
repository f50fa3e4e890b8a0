// One sweep: its progress, its parameters, its best run.
import { Choice, Empty, JobLink, Pill, Problem, Section, Table } from "../components/common.js";
import * as dialogs from "../components/dialogs.js";
import * as jobActions from "../components/job-actions.js";
import * as lazy from "../components/lazy.js";
import * as toasts from "../components/toasts.js";
import * as api from "../core/api.js";
import { csv, download } from "../core/csv.js";
import { count, number, plural, span, took } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import * as router from "../core/router.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { viridis } from "../core/viridis.js";
import { html, useMemo, useState } from "../vendor/ui.js";
import * as axes from "./sweep/axes.js";
import { Parallel } from "./sweep/parallel.js";
import * as runsOf from "./sweep/runs.js";
import { Scatter } from "./sweep/scatter.js";
import { Strip } from "./sweep/strip.js";

/**
 * @typedef {import("./sweep/runs.js").Run} Run
 * @typedef {{id: number, name: string, project: string, command: string, metric: string | null, goal: string | null}} Sweep
 * @typedef {{sweep: Sweep, runs: Run[]}} Results
 */

/** With more runs than this the page reloads periodically instead of at every event. */
const MANY = 2000;
/** Axes beside the metric, and rows of the table before "show more". */
const MOST_AXES = 12;
const ROWS = 100;
const BY = /** @type {const} */ (["last", "best", "mean"]);
/** New seeds for the best run. */
const SEEDS = 5;
const UNFINISHED = ["held", "queued", "starting", "running", "paused"];

/** @param {{id: string}} props */
export default function Page({ id }) {
  const [isLarge, setLarge] = useState(false);
  /** @type {import("../core/use-answer.js").Answer<Results>} */
  const { data, error, reload } = useAnswer(`/v1/sweeps/${encodeURIComponent(id)}/results`, isLarge ? { everyMs: 10_000 } : { isLive: true });
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  if (data.runs.length > MANY !== isLarge) setLarge(!isLarge);
  if (!data.runs.length) return html`<${Empty} title=${`Sweep ${data.sweep.name} has no runs.`} />`;
  return html`<${Whole} sweep=${data.sweep} runs=${data.runs} />`;
}

/** @param {Results} props */
function Whole({ sweep, runs }) {
  const query = router.query.value;
  const names = runsOf.metrics(runs);
  const metric = names.find((name) => name === query.get("metric")) ?? names.find((name) => name === sweep.metric) ?? names[0];
  const goal = runsOf.goalOf(sweep, metric);
  const by = BY.find((one) => one === query.get("by")) ?? "last";
  const measure = useMemo(() => ({ metric, goal, by }), [metric, goal, by]);
  const view = useMemo(() => viewOf(runs, measure, query.get("order") ?? ""), [runs, measure, query.get("order")]);
  const lastOnly = runsOf.lastOnly(runs, measure);
  const word = query.get("brush") ?? "";
  const brushes = useMemo(() => axes.read(word), [word]);
  const chosen = useMemo(() => within(view, runs, brushes), [view, runs, brushes]);
  const [pointed, point] = useState(/** @type {number | null} */ (null));
  /** @param {string} name @param {import("./sweep/axes.js").Brush | undefined} held */
  const brush = (name, held) => {
    const next = axes.read(router.query.value.get("brush"));
    if (held) next.set(name, held);
    else next.delete(name);
    router.setQuery({ brush: axes.written(next) });
  };
  const open = (/** @type {number} */ index) => {
    const job = runs.find((run) => run.index === index)?.job;
    if (job) router.go(`/job/${job}`);
  };
  const best = view.best?.index ?? null;
  useKeys([{ keys: "x", does: "Clear the brushes", group: "Sweep", run: () => router.setQuery({ brush: null }) }], []);
  const kept = view.ranked.filter((run) => chosen.has(run.index));
  const isScatter = query.get("tab") === "scatter";
  return html`
    <${Facts} sweep=${sweep} runs=${runs} view=${view} measure=${measure} />
    <${Section} title=${`Sweep ${sweep.id} · ${sweep.name}`} aside=${html`<${Actions} sweep=${sweep} runs=${runs} best=${view.best} />`}>
      <div class="bar">
        <label>metric <select value=${metric} onChange=${(/** @type {any} */ event) => router.setQuery({ metric: event.currentTarget.value })}>
          ${names.map((name) => html`<option key=${name} value=${name}>${name} (${runsOf.goalOf(sweep, name) === "minimize" ? "less is better" : "more is better"})</option>`)}
        </select></label>
        ${runsOf.hasSummaries(runs, metric) && html`<${Choice} label="Of each run" value=${by} choose=${(/** @type {string} */ one) => router.setQuery({ by: one === "last" ? null : one })}
          options=${BY.map((one) => ({ value: one, text: one }))} />`}
        ${lastOnly > 0 && html`<span class="quiet">${plural(lastOnly, "run")} ${lastOnly === 1 ? "shows its" : "show their"} last: ${by} not known (yet)</span>`}
        <${Choice} label="Picture" value=${isScatter ? "scatter" : "lines"} choose=${(/** @type {string} */ tab) => router.setQuery({ tab: tab === "scatter" ? tab : null })}
          options=${[{ value: "lines", text: "lines" }, { value: "scatter", text: "each parameter" }]} />
        ${brushes.size > 0 && html`<span>${plural(kept.length, "run")} of ${count(runs.length)} within the brushes</span>
          <button type="button" class="small" onClick=${() => router.setQuery({ brush: null })}>clear</button>`}
      </div>
      ${isScatter
        ? html`<div class="scatters">${view.shown.slice(0, -1).map((axis, i) => html`<${Scatter} key=${axis.name} across=${axis} up=${view.shown[view.shown.length - 1]} best=${best} chosen=${chosen}
            dots=${view.lines.map((line) => ({ key: line.key, x: line.values[i], y: line.values[view.shown.length - 1], colour: line.colour }))} />`)}</div>`
        : html`<${Parallel} shown=${view.shown} lines=${view.lines} brushes=${brushes} brush=${brush} chosen=${chosen} pointed=${pointed} best=${best} point=${point} open=${open}
            order=${(/** @type {string[]} */ order) => router.setQuery({ order: order.map(encodeURIComponent).join(",") })} />`}
    <//>
    <${Runs} runs=${kept} all=${runs} measure=${measure} best=${best} pointed=${pointed} point=${point} />`;
}

/**
 * Everything the chart and the table are made of.
 * @param {Run[]} runs @param {import("./sweep/runs.js").Measure} measure @param {string} order
 */
function viewOf(runs, measure, order) {
  const { metric, goal } = measure;
  const varying = runsOf.varying(runs);
  const names = axes.ordered([...(varying.length ? varying : runsOf.parameters(runs)).slice(0, MOST_AXES), metric], order.split(",").filter(Boolean).map(decodeURIComponent));
  const valueOf = (/** @type {Run} */ run, /** @type {string} */ name) => (name === metric ? runsOf.scored(run, measure) : run.params[name]);
  const shown = names.map((name) => axes.axisOf(name, runs.map((run) => valueOf(run, name)), { isMeasured: name === metric }));
  const scale = shown[names.indexOf(metric)];
  const ranked = runsOf.ranked(runs, measure);
  const best = ranked.length && runsOf.scored(ranked[0], measure) !== null ? ranked[0] : null;
  // Better runs are lighter and drawn last, so that they are on top.
  const lines = ranked.toReversed().map((run) => {
    const place = axes.placeOf(scale, runsOf.scored(run, measure));
    return {
      key: run.index,
      values: names.map((name) => valueOf(run, name)),
      colour: place === null ? null : viridis(goal === "minimize" ? 1 - place : place),
      isOpen: UNFINISHED.includes(run.state),
    };
  });
  return { shown, lines, ranked, best };
}

/**
 * The runs within all brushes; a brush of a hidden axis filters nothing.
 * @param {ReturnType<typeof viewOf>} view @param {Run[]} runs @param {ReadonlyMap<string, import("./sweep/axes.js").Brush>} brushes
 */
function within(view, runs, brushes) {
  const held = view.shown.flatMap((axis, i) => {
    const brush = brushes.get(axis.name);
    return brush ? [{ axis, i, brush }] : [];
  });
  if (!held.length) return new Set(runs.map((run) => run.index));
  return new Set(view.lines.filter((line) => held.every(({ axis, i, brush }) => axes.isWithin(axis, line.values[i], brush))).map((line) => line.key));
}

/** @param {{sweep: Sweep, runs: Run[], view: ReturnType<typeof viewOf>, measure: import("./sweep/runs.js").Measure}} props */
function Facts({ runs, view, measure }) {
  const states = runsOf.tally(runs);
  const left = runsOf.remaining(runs, state.now.value);
  const bad = (states.failed ?? 0) + (states.timeout ?? 0) + (states.lost ?? 0);
  return html`<div class="facts">
    <span><b>${count(states.done ?? 0)}</b> / ${count(runs.length)} done</span>
    ${states.running ? html`<span><b>${count(states.running)}</b> running</span>` : null}
    ${states.queued ? html`<span><b>${count(states.queued)}</b> queued</span>` : null}
    ${bad ? html`<span class="bad-text"><b>${count(bad)}</b> failed</span>` : null}
    ${view.best && html`<span class="done-text"><b>${number(runsOf.scored(view.best, measure))}</b> best ${measure.metric}${view.best.job ? html` (<${JobLink} id=${view.best.job} />)` : null}</span>`}
    ${left !== null && html`<span class="quiet">~${span(left)} left</span>`}
    <${Strip} states=${states} />
  </div>`;
}

/** @param {{sweep: Sweep, runs: Run[], best: Run | null}} props */
function Actions({ sweep, runs, best }) {
  const open = runs.filter((run) => run.job !== null && UNFINISHED.includes(run.state)).map((run) => /** @type {number} */ (run.job));
  const failed = runs.filter((run) => run.job !== null && ["failed", "timeout", "lost"].includes(run.state)).map((run) => /** @type {number} */ (run.job));
  const copyBest = async () => {
    try {
      const job = await api.get(`/v1/jobs/${best?.job}`);
      await navigator.clipboard.writeText(job.command);
      toasts.show(`Copied the command of job ${job.id}.`);
    } catch (error) {
      toasts.show(api.errorText(error), { kind: "bad" });
    }
  };
  const seed = runsOf.freeSeed(runs);
  // New runs copy its request: that of the best run if there is one.
  const model = best?.job ? best : runs.find((run) => run.job !== null);
  const repeat = async () => {
    const changes = runsOf.freshSeeds(runs, seed ?? "", SEEDS).map((value) => ({ [seed ?? ""]: value }));
    try {
      const { counts } = await api.post(`/v1/sweeps/${sweep.id}/runs`, { like: best?.job, changes });
      toasts.show(`Queued ${plural(counts.new, "run")} like job ${best?.job}, with ${seed} ${changes[0][seed ?? ""]} to ${changes[SEEDS - 1][seed ?? ""]}.`);
    } catch (error) {
      toasts.show(api.errorText(error), { kind: "bad" });
    }
  };
  const stop = async () => {
    const isMeant = await dialogs.confirm({ title: "Stop the rest", text: `${plural(open.length, "run")} that ${open.length === 1 ? "has" : "have"} not ended will be cancelled.`, yes: "Stop them" });
    if (isMeant) jobActions.cancel(open);
  };
  return html`
    <button type="button" class="small" disabled=${!best?.job} onClick=${copyBest}>copy best command</button>
    <button type="button" class="small" disabled=${!best?.job || seed === null} onClick=${repeat}>rerun best × ${SEEDS} seeds${seed === null ? " (it has no seed parameter)" : ""}</button>
    <button type="button" class="small" disabled=${!model} onClick=${() => model && void lazy.extend(sweep, runs, model)}>extend the grid</button>
    <button type="button" class="small" disabled=${!failed.length} onClick=${() => void jobActions.act("retry", failed)}>retry failed (${failed.length})</button>
    <button type="button" class="small" disabled=${!open.length} onClick=${stop}>stop the rest (${open.length})</button>
    <button type="button" class="small" onClick=${() => download(`${sweep.name}.csv`, csv(runsOf.sheet(runs)))}>download CSV</button>`;
}

/** @param {{runs: Run[], all: Run[], measure: import("./sweep/runs.js").Measure, best: number | null, pointed: number | null, point: (index: number | null) => void}} props */
function Runs({ runs, all, measure, best, pointed, point }) {
  const { metric, goal, by } = measure;
  const [rows, setRows] = useState(ROWS);
  const query = router.query.value;
  const hasAll = query.get("columns") === "all";
  const canGroup = runsOf.seeds(all).length > 0;
  const isGrouped = canGroup && query.get("seeds") === "1";
  const params = hasAll ? runsOf.parameters(all) : runsOf.varying(all);
  const others = runsOf.metrics(all).filter((name) => name !== metric && (hasAll || name !== runsOf.TIME));
  const aside = html`best first
    <button type="button" class="small" aria-pressed=${hasAll} onClick=${() => router.setQuery({ columns: hasAll ? null : "all" })}>all columns</button>
    ${canGroup && html`<button type="button" class="small" aria-pressed=${isGrouped} onClick=${() => router.setQuery({ seeds: isGrouped ? null : "1" })}>seeds together</button>`}`;
  const arrow = `${goal === "minimize" ? "min" : "max"}${by === "last" ? "" : `, ${by} of each run`}`;
  if (isGrouped) {
    const names = params.filter((name) => !runsOf.seeds(all).includes(name));
    return html`<${Section} title="Runs" aside=${aside}><${Table} label="Runs, seeds together" rows=${runsOf.grouped(runs, measure).slice(0, rows)}
      keyOf=${(/** @type {import("./sweep/runs.js").Group} */ one) => one.runs[0].index}
      columns=${[
        { title: "runs", class: "number", cell: (/** @type {any} */ one) => plural(one.runs.length, "run") },
        ...names.map((name) => ({ title: name, class: "number", cell: (/** @type {any} */ one) => axes.text(one.params[name]) })),
        { title: `${metric} (${arrow}), mean ± sd`, class: "number", cell: (/** @type {any} */ one) => (one.mean === null ? "" : `${number(one.mean)}${one.sd === null ? "" : ` ± ${number(one.sd)}`}`) },
      ]} /><//>`;
  }
  return html`<${Section} title="Runs" aside=${aside}>
    <${Table} label="Runs" rows=${runs.slice(0, rows)} keyOf=${(/** @type {Run} */ run) => run.index}
      rowProps=${(/** @type {Run} */ run) => ({
        class: `${run.index === pointed ? "pointed" : ""} ${run.job !== null && jobActions.cancelling.value.has(run.job) ? "leaving" : ""}`,
        onMouseEnter: () => point(run.index),
        onMouseLeave: () => point(null),
      })}
      columns=${[
        { title: "run", cell: (/** @type {Run} */ run) => html`${run.index === best ? html`<span role="img" aria-label="best">★</span> ` : ""}${run.job === null ? `${run.index} (forgotten)` : html`<${JobLink} id=${run.job} />`}` },
        { title: "state", cell: (/** @type {Run} */ run) => html`<${Pill} word=${run.state} />` },
        ...params.map((name) => ({ title: name, class: "number", cell: (/** @type {Run} */ run) => axes.text(run.params[name]) })),
        { title: metric === runsOf.TIME ? "took" : `${metric} (${arrow})`, class: "number", cell: (/** @type {Run} */ run) => (metric === runsOf.TIME ? took(run.started_at, run.finished_at, state.now.value) : number(runsOf.scored(run, measure))) },
        ...others.map((name) => ({ title: name, class: "number", cell: (/** @type {Run} */ run) => number(runsOf.measured(run, name)) })),
      ]} />
    ${runs.length > rows && html`<button type="button" onClick=${() => setRows(rows + 5 * ROWS)}>show more (${count(runs.length - rows)} left)</button>`}
  <//>`;
}
