// The top of a sweep: its title, what can be done to it, and how far it is. Buttons that do not apply are not there.
import { JobLink, Menu, Pill } from "../../components/common.js";
import * as dialogs from "../../components/dialogs.js";
import { Icon } from "../../components/icons.js";
import * as jobActions from "../../components/job-actions.js";
import * as lazy from "../../components/lazy.js";
import * as toasts from "../../components/toasts.js";
import * as api from "../../core/api.js";
import { csv, download } from "../../core/csv.js";
import { count, number, plural, span } from "../../core/format.js";
import * as state from "../../core/state.js";
import { html } from "../../vendor/ui.js";
import * as runsOf from "./runs.js";
import { Strip } from "./strip.js";

/**
 * @typedef {import("./runs.js").Run} Run
 * @typedef {import("../../core/types.js").Sweep} Sweep
 */

/** New seeds for the best run. */
const SEEDS = 5;

/** @param {{sweep: Sweep, runs: Run[], best: Run | null, measure: import("./runs.js").Measure}} props */
export function Head({ sweep, runs, best, measure }) {
  return html`<div class="sweep-head">
      <div><h2>${sweep.name}</h2><div class="quiet">Sweep ${sweep.id} · ${sweep.project} · <code class="mono">${sweep.command}</code></div></div>
      <${Actions} sweep=${sweep} runs=${runs} best=${best} />
    </div>
    <${Search} sweep=${sweep} runs=${runs} />
    <${Facts} sweep=${sweep} runs=${runs} best=${best} measure=${measure} />`;
}

/** How points are chosen and runs are stopped, if the sweep does either. @param {{sweep: Sweep, runs: Run[]}} props */
function Search({ sweep, runs }) {
  const told = runsOf.searchText(sweep, runs);
  const early = runs.filter(runsOf.isEarly).length;
  if (!told && !sweep.early_stop) return null;
  return html`<div class="search-line" role="note" aria-label="Search">
    ${told && html`<span><${Pill} word=${told.state} /> <strong>${told.what}</strong></span><span>${told.progress}</span><span class=${told.state === "ended" ? "warn-text" : "quiet"}>${told.why}</span>`}
    ${sweep.early_stop && html`<span class="quiet">${sweep.early_stop[0].toUpperCase()}${sweep.early_stop.slice(1)} rule: ${early ? `${plural(early, "run")} stopped early` : "no run stopped early"}</span>`}
  </div>`;
}

/** @param {{sweep: Sweep, runs: Run[], best: Run | null, measure: import("./runs.js").Measure}} props */
function Facts({ sweep, runs, best, measure }) {
  const states = runsOf.tally(runs);
  const all = runsOf.planned(sweep, runs);
  const early = runs.filter(runsOf.isEarly).length;
  const left = runsOf.remaining(runs, state.now.value, all - runs.length);
  const bad = (states.failed ?? 0) + (states.timeout ?? 0) + (states.lost ?? 0);
  const waiting = (states.queued ?? 0) + (states.held ?? 0);
  return html`<ul class="tiles" aria-label="In short">
    <li><div class="tile"><span class="what">Done</span> <b>${count(states.done ?? 0)} of ${count(all)}</b> <${Strip} states=${states} /></div></li>
    <li><div class="tile"><span class="what">Running</span> <b>${count(states.running ?? 0)}</b> <span class="more">${waiting ? `${count(waiting)} waiting` : "none waiting"}</span></div></li>
    <li><div class=${`tile${bad ? " is-bad" : ""}`}><span class="what">Failed</span> <b>${count(bad)}</b> <span class="more">${early ? `${count(early)} stopped early` : bad ? "listed below" : "none"}</span></div></li>
    <li><div class="tile"><span class="what">Best ${measure.metric}</span> <b>${best ? number(runsOf.scored(best, measure)) : "–"}</b> <span class="more">${best?.job ? html`by <${JobLink} id=${best.job} />` : measure.goal === "minimize" ? "less is better" : "more is better"}</span></div></li>
    <li><div class="tile"><span class="what">Time left</span> <b>${left === null ? "–" : `~${span(left)}`}</b> <span class="more">${left === null ? (waiting || states.running ? "unknown until a run is done" : "all runs ended") : "from the runs so far"}</span></div></li>
  </ul>`;
}

/** @param {{sweep: Sweep, runs: Run[], best: Run | null}} props */
function Actions({ sweep, runs, best }) {
  const jobsOf = (/** @type {readonly string[]} */ words) => runs.filter((run) => run.job !== null && words.includes(run.state)).map((run) => /** @type {number} */ (run.job));
  const open = jobsOf(runsOf.UNFINISHED);
  const failed = jobsOf(runsOf.BAD);
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
    const isMeant = await dialogs.confirm({ title: "Stop the rest?", text: `${plural(open.length, "run")} that ${open.length === 1 ? "has" : "have"} not finished will be cancelled.`, yes: "Stop them" });
    if (isMeant) jobActions.cancel(open);
  };
  return html`<div class="job-actions" role="toolbar" aria-label="Sweep">
    ${failed.length > 0 && html`<button type="button" onClick=${() => void jobActions.act("retry", failed)}><${Icon} name="retry" />Retry failed (${failed.length})</button>`}
    ${open.length > 0 && html`<button type="button" class="bad" onClick=${stop}><${Icon} name="close" />Stop the rest (${open.length})</button>`}
    ${model && !runsOf.isAdaptive(sweep) && html`<button type="button" onClick=${() => void lazy.extend(sweep, runs, model)}><${Icon} name="plus" />Extend the grid</button>`}
    <${Menu} label="More actions" icon="more">
      ${best?.job && html`<button type="button" onClick=${copyBest}><${Icon} name="copy" />Copy best command</button>`}
      ${best?.job && seed !== null && html`<button type="button" onClick=${repeat}><${Icon} name="retry" />Rerun best × ${SEEDS} seeds</button>`}
      <button type="button" onClick=${() => download(`${sweep.name}.csv`, csv(runsOf.sheet(runs)))}><${Icon} name="download" />Download CSV</button>
    </${Menu}>
  </div>`;
}
