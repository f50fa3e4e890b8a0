// One sweep: its progress, the curves of all runs, its parameters, its best run.
import { Choice, Empty, Problem, Section } from "../components/common.js";
import * as api from "../core/api.js";
import { count, plural } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import * as router from "../core/router.js";
import * as themes from "../core/themes.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useCallback, useMemo, useSignal, useState } from "../vendor/ui.js";
import * as axes from "./sweep/axes.js";
import { Curves } from "./sweep/curves.js";
import { Head } from "./sweep/head.js";
import { HeatMap } from "./sweep/heat-map.js";
import { importance } from "./sweep/importance.js";
import { Parallel } from "./sweep/parallel.js";
import { RunTables } from "./sweep/run-tables.js";
import * as runsOf from "./sweep/runs.js";
import { Scatter } from "./sweep/scatter.js";
import { shade } from "./sweep/shade.js";
import { BestSoFar, Importance } from "./sweep/side-charts.js";

/**
 * @typedef {import("./sweep/runs.js").Run} Run
 * @typedef {import("./sweep/axes.js").Brush} Brush
 * @typedef {import("./sweep/head.js").Sweep} Sweep
 * @typedef {{sweep: Sweep, runs: Run[]}} Results
 */

/** With more runs than this the page reloads periodically instead of at every event. */
const MANY = 2000;
/** Axes beside the metric. */
const MOST_AXES = 12;
const BY = /** @type {const} */ (["last", "best", "mean"]);
const PICTURES = [{ value: "lines", text: "Parallel" }, { value: "scatter", text: "Each parameter" }, { value: "heat", text: "Heat map" }];

/** @param {{id: string}} props its number, or its name */
export default function Page({ id }) {
  const isNumber = /^\d+$/.test(id);
  const { data: named, error: unknown } = useAnswer(isNumber ? null : `/v1/sweeps?name=${encodeURIComponent(id)}`);
  const found = isNumber ? id : named?.sweeps.at(-1)?.id;
  const [isLarge, setLarge] = useState(false);
  /** @type {import("../core/use-answer.js").Answer<Results>} */
  const { data, error, reload } = useAnswer(found === undefined ? null : `/v1/sweeps/${found}/results`, isLarge ? { everyMs: 10_000 } : { isLive: true });
  if ((named && found === undefined) || (!data && api.isMissing(error ?? unknown))) return html`<${Empty} title=${`There is no sweep ${id}`} link=${["All sweeps", "/sweeps"]} />`;
  if (!data) return html`<${Problem} error=${error ?? unknown} retry=${reload} />`;
  if (data.runs.length > MANY !== isLarge) setLarge(!isLarge);
  if (!data.runs.length) return html`<${Empty} title=${`Sweep ${data.sweep.name} has no runs`} text="To add runs, submit the sweep again under this name:" commands=${[`dibs sweep --name ${data.sweep.name} -p lr=1e-3,1e-4 -- python train.py --lr {lr}`]} />`;
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
  const view = useMemo(() => viewOf(runs, measure, query.get("order") ?? ""), [runs, measure, query.get("order"), themes.changes.value]);
  const lastOnly = runsOf.lastOnly(runs, measure);
  const word = query.get("brush") ?? "";
  /** The brush that is being drawn counts already. */
  const [live, setLive] = useState(/** @type {{name: string, held: Brush} | null} */ (null));
  const brushes = useMemo(() => {
    const all = axes.read(word);
    if (live) all.set(live.name, live.held);
    return all;
  }, [word, live]);
  const chosen = useMemo(() => within(view, runs, brushes), [view, runs, brushes]);
  // While a brush is drawn the pictures follow it, the table when it is released: hundreds of rows take longer.
  const settled = useMemo(() => (live ? within(view, runs, axes.read(word)) : chosen), [view, runs, word, live === null, live ? null : chosen]);
  // A signal: what is pointed at changes with every move, and only the highlights are drawn anew.
  const pointed = useSignal(/** @type {number | null} */ (null));
  const point = useCallback((/** @type {number | null} */ index) => void (pointed.value = index), []);
  /** @param {string} name @param {Brush | undefined} held */
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
  const kept = useMemo(() => view.ranked.filter((run) => settled.has(run.index)), [view, settled]);
  const picture = PICTURES.find((one) => one.value === query.get("tab"))?.value ?? "lines";
  const parameters = useMemo(() => {
    const known = importance(runs, measure).map((one) => one.name);
    return [...known, ...runsOf.varying(runs).filter((name) => !known.includes(name))];
  }, [runs, measure]);
  const aside = html`<${Choice} label="Picture" value=${picture} choose=${(/** @type {string} */ tab) => router.setQuery({ tab: tab === "lines" ? null : tab })} options=${parameters.length > 1 ? PICTURES : PICTURES.slice(0, 2)} />
    ${picture === "lines" && html`<span>Drag along an axis to filter</span>`}
    ${brushes.size > 0 && html`<span>${plural(chosen.size, "run")} of ${count(runs.length)} within the brushes</span>
      <button type="button" class="small" onClick=${() => router.setQuery({ brush: null })}>Clear</button>`}`;
  return html`
    <${Head} sweep=${sweep} runs=${runs} best=${view.best} measure=${measure} />
    <div class="bar">
      <label>Metric <select value=${metric} onChange=${(/** @type {any} */ event) => router.setQuery({ metric: event.currentTarget.value })}>
        ${names.map((name) => html`<option key=${name} value=${name} selected=${name === metric}>${name} (${runsOf.goalOf(sweep, name) === "minimize" ? "less is better" : "more is better"})</option>`)}
      </select></label>
      ${runsOf.hasSummaries(runs, metric) && html`<${Choice} label="Of each run" value=${by} choose=${(/** @type {string} */ one) => router.setQuery({ by: one === "last" ? null : one })}
        options=${BY.map((one) => ({ value: one, text: one }))} />`}
      ${lastOnly > 0 && html`<span class="quiet">${plural(lastOnly, "run")} ${lastOnly === 1 ? "shows its" : "show their"} last: ${by} not known (yet)</span>`}
    </div>
    <div class="sweep-charts">
      ${metric === runsOf.TIME
        ? html`<${Section} title="Curves"><p class="panel quiet">Runs that report a metric have their curves here: <code>dibs report loss=0.3 step=10</code>, or <code>dibs.report(loss=0.3, step=10)</code> in Python.</p><//>`
        : html`<${Curves} id=${sweep.id} runs=${runs} measure=${measure} lines=${view.lines} chosen=${chosen} pointed=${pointed} best=${best} point=${point} open=${open}
            isLive=${runs.some((run) => run.state === "running")} canGroup=${runsOf.seeds(runs).length > 0} />`}
      <div><${BestSoFar} runs=${runs} measure=${measure} /><${Importance} runs=${runs} measure=${measure} /></div>
    </div>
    <${Section} title="Parameters" aside=${aside}>
      ${picture === "heat" && parameters.length > 1 && html`<${HeatMap} runs=${kept} measure=${measure} names=${parameters} />`}
      ${picture === "scatter" && html`<div class="scatters">${view.shown.slice(0, -1).map((axis, i) => html`<${Scatter} key=${axis.name} across=${axis} up=${view.shown[view.shown.length - 1]} best=${best} chosen=${chosen}
        dots=${view.lines.map((line) => ({ key: line.key, x: line.values[i], y: line.values[view.shown.length - 1], colour: line.colour }))} />`)}</div>`}
      ${picture === "lines" && html`<${Parallel} shown=${view.shown} lines=${view.lines} brushes=${brushes} brush=${brush} chosen=${chosen} pointed=${pointed} best=${best} point=${point} open=${open} bar=${view.bar}
        preview=${(/** @type {string} */ name, /** @type {Brush | undefined} */ held) => setLive(held ? { name, held } : null)}
        order=${(/** @type {string[]} */ order) => router.setQuery({ order: order.map(encodeURIComponent).join(",") })} />`}
    <//>
    <${Tables} runs=${kept} all=${runs} measure=${measure} best=${best} pointed=${pointed} point=${point} query=${query.toString()} />`;
}

/** The tables, drawn anew only when they change. @param {any} props */
function Tables({ runs, all, measure, best, pointed, point, query }) {
  return useMemo(() => html`<${RunTables} runs=${runs} all=${all} measure=${measure} best=${best} pointed=${pointed} point=${point} />`, [runs, all, measure, best, query]);
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
  const settled = runs.filter((run) => run.state === "done").map((run) => runsOf.scored(run, measure));
  const shown = names.map((name) => axes.axisOf(name, runs.map((run) => valueOf(run, name)), { isMeasured: name === metric, settled }));
  const scale = shown[names.indexOf(metric)];
  const ranked = runsOf.ranked(runs, measure);
  // A run that still changes is the best only while none has finished.
  const rated = ranked.filter((run) => runsOf.scored(run, measure) !== null);
  const best = rated.find((run) => run.state === "done") ?? rated[0] ?? null;
  // Better runs are lighter and drawn last, so that they are on top.
  const lines = ranked.toReversed().map((run) => {
    const place = axes.placeOf(scale, runsOf.scored(run, measure));
    return {
      key: run.index,
      values: names.map((name) => valueOf(run, name)),
      colour: place === null ? null : shade(goal === "minimize" ? 1 - place : place),
      isOpen: runsOf.UNFINISHED.includes(run.state),
      isEarly: runsOf.isEarly(run),
    };
  });
  const bar = scale.kind !== "linear" || scale.low === scale.high ? null : { low: scale.low, high: scale.high, isReversed: goal === "minimize" };
  return { shown, lines, ranked, best, bar };
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
