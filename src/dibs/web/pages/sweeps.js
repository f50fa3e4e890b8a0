// All sweeps: the progress of each, and its best metric.
import { Empty, Problem, Section, Table, Time } from "../components/common.js";
import { count, number } from "../core/format.js";
import { useAnswer } from "../core/use-answer.js";
import { html } from "../vendor/ui.js";
import { goalOf, ranked, scored } from "./sweep/runs.js";
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
      commands=${["dibs sweep -g 1 'python train.py --lr {lr} --seed {seed}' -p lr=1e-3,1e-4 -p seed=0,1,2"]} />`;
  }
  return html`<${Section} title="Sweeps">
    <${Table} label="Sweeps" rows=${sweeps} keyOf=${(/** @type {Sweep} */ one) => one.id} columns=${COLUMNS} />
  <//>`;
}

/** @type {{title: string, class?: string, phone?: string, cell: (one: Sweep) => unknown}[]} */
const COLUMNS = [
  { title: "Sweep", cell: (one) => html`<a href=${`/sweep/${one.id}`}>${one.name}</a>${one.search ? html` <span class="quiet">${one.search.sampler} search</span>` : ""}` },
  { title: "Project", cell: (one) => one.project },
  { title: "Runs", phone: "text", cell: (one) => html`<${Strip} states=${one.states} />`, class: "wide" },
  { title: "Done", phone: "side", class: "number", cell: (one) => `${count(one.states.done ?? 0)} of ${count(one.search && !one.search.ended ? Math.max(one.search.trials, total(one)) : total(one))}` },
  { title: "Best", class: "number", cell: (one) => html`<${Best} sweep=${one} />` },
  { title: "Created", cell: (one) => html`<${Time} at=${one.created_at} />` },
  { title: "Command", class: "mono", cell: (one) => one.command },
];

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
  return value === null ? null : html`${sweep.metric} ${number(value)}`;
}
