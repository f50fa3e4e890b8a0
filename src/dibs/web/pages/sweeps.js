// All sweeps: the progress of each, and its best metric.
import { Empty, Problem, Section, Table, Time } from "../components/common.js";
import { count, number } from "../core/format.js";
import { useAnswer } from "../core/use-answer.js";
import { html } from "../vendor/ui.js";
import { bestSoFar } from "./sweep/importance.js";
import { goalOf, isAdaptive, ranked, scored } from "./sweep/runs.js";
import { Strip } from "./sweep/strip.js";

/** Most runs of a sweep for which the list finds the best one. */
const MOST_RUNS_LOOKED_AT = 2000;

/** @typedef {import("../core/types.js").Sweep & {states: Record<string, number>}} Sweep */

export default function Page() {
  const { data, error, reload } = useAnswer("/v1/sweeps", { isLive: true });
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  /** @type {Sweep[]} */
  const sweeps = data.sweeps.toReversed();
  if (!sweeps.length) {
    return html`<${Empty} title="No sweep yet" text="A sweep runs one command for many parameters. Metrics come from dibs report, or from the log with --metric."
      steps=${FIRST_STEPS} />`;
  }
  return html`<${Section} title="Sweeps">
    <${Table} label="Sweeps" rows=${sweeps} keyOf=${(/** @type {Sweep} */ one) => one.id} columns=${COLUMNS} />
  <//>`;
}

/** @type {[string, string][]} */
const FIRST_STEPS = [
  ["Run every combination of two parameters", "dibs sweep -g 1 'python train.py --lr {lr} --seed {seed}' -p lr=1e-3,1e-4 -p seed=0,1,2"],
  ["Report a metric from the program, or read it from the log", "dibs report loss=0.3 step=10"],
  ["Let a search choose the values", "dibs sweep --search tpe --trials 40 --minimize loss 'python train.py --lr {lr}' -p 'lr=loguniform(1e-5,1e-1)'"],
];

/** @type {{title: string, class?: string, phone?: string, cell: (one: Sweep) => unknown}[]} */
const COLUMNS = [
  { title: "Sweep", class: "sweep-name", cell: (one) => html`<strong><a href=${`/sweep/${one.id}`}>${one.name}</a></strong> <span class="quiet">${one.project}${one.search ? ` · ${one.search.sampler} search` : ""}</span><code class="clip" title=${one.command}>${one.command}</code>` },
  { title: "Runs", phone: "text", cell: (one) => html`<${Strip} states=${one.states} /><span class="quiet">${stateText(one.states)}</span>`, class: "wide" },
  { title: "Done", phone: "side", class: "number", cell: (one) => `${count(one.states.done ?? 0)} of ${count(isAdaptive(one) && one.search && !one.search.ended ? Math.max(one.search.trials, total(one)) : total(one))}` },
  { title: "Best", class: "number", phone: "plain", cell: (one) => html`<${Best} sweep=${one} />` },
  { title: "Created", class: "tight", cell: (one) => html`<${Time} at=${one.created_at} />` },
];

/** What the runs do now, in words. @param {Record<string, number>} states */
function stateText(states) {
  const open = Object.entries(states).filter(([word, many]) => word !== "done" && many);
  return open.length ? open.map(([word, many]) => `${count(many)} ${word}`).join(", ") : "all done";
}

/** @param {Sweep} sweep */
const total = (sweep) => Object.values(sweep.states).reduce((sum, one) => sum + one, 0);

/** @param {{sweep: Sweep}} props */
function Best({ sweep }) {
  const isLookedAt = sweep.metric && total(sweep) <= MOST_RUNS_LOOKED_AT;
  const { data } = useAnswer(isLookedAt ? `/v1/sweeps/${sweep.id}/results` : null, { everyMs: 30_000 });
  if (!data || !sweep.metric) return null;
  const measure = { metric: sweep.metric, goal: goalOf(sweep, sweep.metric), by: /** @type {const} */ ("last") };
  const [best] = ranked(data.runs, measure);
  const value = best ? scored(best, measure) : null;
  if (value === null) return null;
  const course = bestSoFar(data.runs, measure).map((one) => one.best);
  return html`<span class="sweep-best"><${Course} values=${course} />${sweep.metric} <b>${number(value)}</b></span>`;
}

/** Pixels of the line beside the best value. */
const WIDE = 96;
const HIGH = 28;

/** The best value so far as a line of steps; the number beside it says it in words. @param {{values: number[]}} props */
function Course({ values }) {
  if (values.length < 2) return null;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const across = (/** @type {number} */ i) => ((i / (values.length - 1)) * WIDE).toFixed(1);
  const up = (/** @type {number} */ value) => (2 + (1 - (high === low ? 0.5 : (value - low) / (high - low))) * (HIGH - 4)).toFixed(1);
  const path = values.map((value, i) => (i ? `H${across(i)}V${up(value)}` : `M0 ${up(value)}`)).join("");
  return html`<svg class="course" width=${WIDE} height=${HIGH} viewBox=${`0 0 ${WIDE} ${HIGH}`} aria-hidden="true"><path d=${path} /></svg>`;
}
