// The runs of a sweep as numbers: varying parameters, the best run, groups of seeds.

/**
 * @typedef {object} Run one of GET /v1/sweeps/{id}/results
 * @property {number | null} job
 * @property {number} index
 * @property {Record<string, import("./axes.js").Value>} params
 * @property {import("../../core/types.js").Word} state
 * @property {string | null} [cause] why it did not succeed; "early": a rule of its sweep stopped it
 * @property {Record<string, number | null>} numbers the last of each name
 * @property {Record<string, {min: number, max: number, mean: number, count: number}>} summaries of all of them; missing while it runs, and of old runs
 * @property {string | null} started_at
 * @property {string | null} finished_at
 *
 * @typedef {"minimize" | "maximize"} Goal
 * @typedef {"last" | "best" | "mean"} By which of the values of a run counts
 * @typedef {{metric: string, goal: Goal, by: By}} Measure what runs are compared by
 * @typedef {{params: Run["params"], runs: Run[], mean: number | null, sd: number | null}} Group
 */

/** States of runs that have not ended, and of those that ended badly. @type {readonly string[]} */
export const UNFINISHED = ["held", "queued", "starting", "running", "paused", "stopping"];
/** @type {readonly string[]} */
export const BAD = ["failed", "timeout", "lost"];

/** Tell whether a rule of the sweep stopped a run, because others do better. @param {Run} run */
export const isEarly = (run) => run.cause === "early";

/** How a run is called: its state, or that it was stopped early. @param {Run} run */
export const wordOf = (run) => (isEarly(run) ? "stopped early" : run.state);

/**
 * @typedef {import("../../core/types.js").Search} Search
 * @typedef {{search: Search | null, metric: string | null, goal: string | null, early_stop: string | null}} Searched a sweep, as far as it says how its points are chosen
 */

/** What samplers are called. @type {Record<string, string>} */
const SAMPLERS = { tpe: "TPE", cmaes: "CMA-ES", random: "Random" };

/** Whether more points are chosen from results; those of a random search are all drawn when it is submitted. @param {Pick<Searched, "search">} sweep */
export const isAdaptive = ({ search }) => search !== null && search.sampler !== "random";

/** How many runs a sweep has or will have. @param {Searched} sweep @param {readonly Run[]} runs */
export const planned = (sweep, runs) => (isAdaptive(sweep) && sweep.search && !sweep.search.ended ? Math.max(sweep.search.trials, runs.length) : runs.length);

/**
 * What a search does, how far it is and why it ended, in words; null for a sweep without one.
 * @param {Searched} sweep @param {readonly Run[]} runs
 * @returns {{what: string, progress: string, state: "running" | "done" | "ended", why: string} | null}
 */
export function searchText(sweep, runs) {
  const { search } = sweep;
  if (!search) return null;
  const over = runs.filter((run) => !UNFINISHED.includes(run.state)).length;
  const aim = sweep.metric ? ` for the ${goalOf(sweep, sweep.metric) === "maximize" ? "highest" : "lowest"} ${sweep.metric}` : "";
  const what = `${SAMPLERS[search.sampler] ?? search.sampler} search${aim}`;
  if (!isAdaptive(sweep)) {
    const isOver = over === runs.length;
    return { what, progress: `${over} of ${runs.length} trials`, state: isOver ? "done" : "running", why: isOver ? "all trials are done" : "all points were drawn when it was submitted" };
  }
  const progress = `${over} of ${search.trials} trials`;
  if (search.ended) return { what, progress, state: "ended", why: `ended: ${search.ended}` };
  if (over >= search.trials) return { what, progress, state: "done", why: "all trials are done" };
  return { what, progress, state: "running", why: `${runs.length < search.trials ? "trials are added as results come in" : "the last trials run or wait"}` };
}

/** The metric of every finished run, even without reported ones: its duration in seconds. */
export const TIME = "seconds";
const SEEDS = /^(seed|seeds|rng|rng_seed|random_seed|random_state|trial|rep|repeat|fold)$/i;
/** Seed parameters that accept any integer; a fold is one of a few. */
const FREE_SEEDS = /^(?!fold$)/i;
const SMALLER_IS_BETTER = /(loss|err|error|perplexity|ppl|nll|mse|mae|rmse|fid|wer|cer|seconds|time|latency|distance)/i;

/** How long a run took; null before its end. @param {Run} run */
export function seconds(run) {
  if (!run.started_at || !run.finished_at) return null;
  return Math.max(0, (Date.parse(run.finished_at) - Date.parse(run.started_at)) / 1000);
}

/** The last number of that name. @param {Run} run @param {string} metric @returns {number | null} */
export function measured(run, metric) {
  const value = metric in run.numbers ? run.numbers[metric] : metric === TIME ? seconds(run) : null;
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** The number by which a run is compared; the last where nothing is known of the others. @param {Run} run @param {Measure} measure */
export function scored(run, { metric, goal, by }) {
  const summary = by === "last" ? undefined : run.summaries[metric];
  if (!summary) return measured(run, metric);
  if (by === "mean") return summary.mean;
  return goal === "minimize" ? summary.min : summary.max;
}

/** How many runs show the last number because nothing is known of the others. @param {readonly Run[]} runs @param {Measure} measure */
export function lastOnly(runs, { metric, by }) {
  if (by === "last" || metric === TIME) return 0;
  return runs.filter((run) => !run.summaries[metric] && measured(run, metric) !== null).length;
}

/** Tell whether more than the last number is known of some run. @param {readonly Run[]} runs @param {string} metric */
export function hasSummaries(runs, metric) {
  return runs.some((run) => run.summaries[metric]);
}

/** All parameters in the order in which they first come. @param {readonly Run[]} runs */
export function parameters(runs) {
  return [...new Set(runs.flatMap((run) => Object.keys(run.params)))];
}

/** The parameters that have more than one value. @param {readonly Run[]} runs */
export function varying(runs) {
  return parameters(runs).filter((name) => {
    const first = JSON.stringify(runs[0]?.params[name]);
    return runs.some((run) => JSON.stringify(run.params[name]) !== first);
  });
}

/** Numbers that runs report, most reported first; the time they took comes last. @param {readonly Run[]} runs */
export function metrics(runs) {
  /** @type {Map<string, number>} */
  const often = new Map();
  for (const run of runs) for (const name of Object.keys(run.numbers)) often.set(name, (often.get(name) ?? 0) + 1);
  const known = [...often].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const told = known.filter((name) => name !== "step" && name !== "epoch");
  return [...told, ...known.filter((name) => !told.includes(name)), ...(often.has(TIME) ? [] : [TIME])];
}

/**
 * The goal: that of the sweep for its own metric, otherwise guessed by name.
 * @param {{metric: string | null, goal: string | null}} sweep @param {string} metric @returns {Goal}
 */
export function goalOf(sweep, metric) {
  if (sweep.goal && (sweep.metric ?? metric) === metric) return sweep.goal === "minimize" ? "minimize" : "maximize";
  return SMALLER_IS_BETTER.test(metric) ? "minimize" : "maximize";
}

/**
 * Compare two numbers so that the better comes first and missing ones last.
 * @param {number | null} a @param {number | null} b @param {Goal} goal
 */
export function compare(a, b, goal) {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return goal === "minimize" ? a - b : b - a;
}

/** Runs, the best first. @param {readonly Run[]} runs @param {Measure} measure */
export function ranked(runs, measure) {
  return [...runs].sort((a, b) => compare(scored(a, measure), scored(b, measure), measure.goal) || a.index - b.index);
}

/** The parameters that only repeat a run. @param {readonly Run[]} runs */
export function seeds(runs) {
  return varying(runs).filter((name) => SEEDS.test(name));
}

/** The parameter that can be given new seeds, whether it varies or not; null: there is none. @param {readonly Run[]} runs */
export function freeSeed(runs) {
  const isWhole = (/** @type {string} */ name) => runs.every((run) => Number.isSafeInteger(run.params[name] ?? 0));
  return parameters(runs).find((name) => SEEDS.test(name) && FREE_SEEDS.test(name) && isWhole(name)) ?? null;
}

/** Return `many` seeds that no run has had. @param {readonly Run[]} runs @param {string} name @param {number} many */
export function freshSeeds(runs, name, many) {
  const greatest = runs.reduce((most, run) => Math.max(most, Number(run.params[name] ?? 0)), 0);
  return Array.from({ length: many }, (_, i) => greatest + 1 + i);
}

/** What stands for a point, in whatever order its parameters come. @param {Run["params"]} params */
export function keyOf(params) {
  return JSON.stringify(Object.entries(params).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/**
 * Runs that differ in nothing but their seed, each group with mean and standard deviation, the best first.
 * @param {readonly Run[]} runs @param {Measure} measure @returns {Group[]}
 */
export function grouped(runs, measure) {
  const repeats = seeds(runs);
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const run of runs) {
    const params = Object.fromEntries(Object.entries(run.params).filter(([name]) => !repeats.includes(name)));
    const key = keyOf(params);
    const group = groups.get(key) ?? { params, runs: [], mean: null, sd: null };
    group.runs.push(run);
    groups.set(key, group);
  }
  for (const group of groups.values()) {
    const values = /** @type {number[]} */ (group.runs.map((run) => scored(run, measure)).filter((one) => one !== null));
    Object.assign(group, spread(values));
  }
  return [...groups.values()].sort((a, b) => compare(a.mean, b.mean, measure.goal) || a.runs[0].index - b.runs[0].index);
}

/** Mean and standard deviation of a sample; of fewer than two values there is no deviation. @param {readonly number[]} values */
export function spread(values) {
  if (!values.length) return { mean: null, sd: null };
  const mean = values.reduce((sum, one) => sum + one, 0) / values.length;
  if (values.length < 2) return { mean, sd: null };
  return { mean, sd: Math.sqrt(values.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (values.length - 1)) };
}

/** How many runs are in which state. @param {readonly Run[]} runs @returns {Record<string, number>} */
export function tally(runs) {
  /** @type {Record<string, number>} */
  const found = {};
  for (const run of runs) found[run.state] = (found[run.state] ?? 0) + 1;
  return found;
}

/**
 * Seconds until all runs are finished, from the duration of finished ones and how many run at once; null: unknown.
 * @param {readonly Run[]} runs @param {number} now @param {number} [toCome] runs that a search will add
 */
export function remaining(runs, now, toCome = 0) {
  const { mean } = spread(/** @type {number[]} */ (runs.filter((run) => run.state === "done").map(seconds).filter((one) => one !== null)));
  const active = runs.filter((run) => ["starting", "running", "stopping"].includes(run.state));
  const waiting = runs.filter((run) => run.state === "queued").length + toCome;
  if (mean === null || !active.length) return null;
  const left = active.map((run) => Math.max(0, mean - (now - Date.parse(run.started_at ?? "")) / 1000 || 0));
  return (left.reduce((sum, one) => sum + one, 0) + waiting * mean) / active.length;
}

/**
 * The table as rows for CSV: one row per run, with its job, state, parameters, last metrics, and their summaries.
 * @param {readonly Run[]} runs
 * @returns {unknown[][]}
 */
export function sheet(runs) {
  const params = parameters(runs);
  const numbers = metrics(runs);
  const known = numbers.filter((name) => hasSummaries(runs, name));
  const parts = /** @type {const} */ (["min", "max", "mean"]);
  return [
    ["job", "index", "state", ...params, ...numbers, ...known.flatMap((name) => parts.map((part) => `${name} ${part}`))],
    ...runs.map((run) => [
      run.job,
      run.index,
      wordOf(run),
      ...params.map((name) => run.params[name]),
      ...numbers.map((name) => measured(run, name)),
      ...known.flatMap((name) => parts.map((part) => run.summaries[name]?.[part])),
    ]),
  ];
}
