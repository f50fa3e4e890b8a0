// The runs of a sweep as tables: finished ones ranked, and apart from them those that run, wait or failed.
import { JobLink, Pill, Section, Table } from "../../components/common.js";
import { Icon } from "../../components/icons.js";
import * as jobActions from "../../components/job-actions.js";
import { count, number, plural, took } from "../../core/format.js";
import * as router from "../../core/router.js";
import * as state from "../../core/state.js";
import { html, useSignalEffect, useState } from "../../vendor/ui.js";
import * as axes from "./axes.js";
import * as runsOf from "./runs.js";

/** @typedef {import("./runs.js").Run} Run */

/** Rows before "show more": a phone has room for fewer. */
const ROWS = matchMedia("(max-width: 700px)").matches ? 15 : 25;

/** @param {{runs: Run[], all: Run[], measure: import("./runs.js").Measure, best: number | null, pointed: import("../../vendor/ui.js").Signal<number | null>, point: (index: number | null) => void}} props */
export function RunTables({ runs, all, measure, best, pointed, point }) {
  const query = router.query.value;
  const hasAll = query.get("columns") === "all";
  const canGroup = runsOf.seeds(all).length > 0;
  const isGrouped = canGroup && query.get("seeds") === "1";
  const finished = runs.filter((run) => run.state === "done");
  const open = runs.filter((run) => runsOf.UNFINISHED.includes(run.state));
  const early = runs.filter(runsOf.isEarly);
  const rest = runs.filter((run) => run.state !== "done" && !runsOf.UNFINISHED.includes(run.state) && !runsOf.isEarly(run));
  const aside = html`best first
    <button type="button" class="small" aria-pressed=${hasAll} onClick=${() => router.setQuery({ columns: hasAll ? null : "all" })}>All columns</button>
    ${canGroup && html`<button type="button" class="small" aria-pressed=${isGrouped} onClick=${() => router.setQuery({ seeds: isGrouped ? null : "1" })}>Seeds together</button>`}`;
  useSignalEffect(() => {
    // Not a property of the rows: they would all be drawn again with every move of the pointer.
    const index = pointed.value;
    document.querySelector("tr.pointed")?.classList.remove("pointed");
    if (index !== null) document.querySelector(`tr[data-run="${index}"]`)?.classList.add("pointed");
  });
  const shared = { all, measure, best, point, hasAll };
  return html`
    ${isGrouped ? html`<${Seeds} runs=${finished} all=${all} measure=${measure} hasAll=${hasAll} aside=${aside} />` : html`<${Part} title="Runs" runs=${finished} isRanked aside=${aside} ...${shared} />`}
    ${open.length > 0 && html`<${Part} title="Running and waiting" runs=${open} aside=${plural(open.length, "run")} ...${shared} />`}
    ${early.length > 0 && html`<${Part} title="Stopped early" runs=${early} aside=${`${plural(early.length, "run")} that could not become the best; values are the last reported`} ...${shared} />`}
    ${rest.length > 0 && html`<${Part} title="Failed and cancelled" runs=${rest} aside=${plural(rest.length, "run")} ...${shared} />`}`;
}

/** @param {import("./runs.js").Measure} measure */
const titleOf = ({ metric, goal, by }) => `${metric} (${goal === "minimize" ? "min" : "max"}${by === "last" ? "" : `, ${by} of each run`})`;

/** @param {any} props */
function Part({ title, runs, all, measure, best, point, hasAll, isRanked = false, aside }) {
  const { metric } = measure;
  const [rows, setRows] = useState(ROWS);
  const params = hasAll ? runsOf.parameters(all) : runsOf.varying(all);
  const others = runsOf.metrics(all).filter((name) => name !== metric && (hasAll || name !== runsOf.TIME));
  const isCompared = router.query.value.get("compare")?.split(",") ?? [];
  return html`<${Section} title=${title} aside=${aside}>
    ${!runs.length && html`<p class="quiet">No run has finished yet.</p>`}
    ${runs.length > 0 && html`<${Table} label=${title} rows=${runs.slice(0, rows)} keyOf=${(/** @type {Run} */ run) => run.index}
      rowProps=${(/** @type {Run} */ run) => ({
        "data-run": run.index,
        class: `${run.job !== null && jobActions.cancelling.value.has(run.job) ? "leaving" : ""} ${isCompared.includes(String(run.job)) ? "is-picked" : ""}`,
        onMouseEnter: () => point(run.index),
        onMouseLeave: () => point(null),
      })}
      columns=${[
        ...(isRanked ? [{ title: "#", class: "number", phone: "nothing", cell: (/** @type {Run} */ run) => runs.indexOf(run) + 1 }] : []),
        { title: "Run", class: "tight", phone: "title", cell: (/** @type {Run} */ run) => html`${run.index === best ? html`<span class="best" role="img" aria-label="best" title="best">★</span> ` : ""}${run.job === null ? `${run.index} (deleted)` : html`<${JobLink} id=${run.job} />`}` },
        { title: "State", phone: "side", cell: (/** @type {Run} */ run) => html`<${Pill} word=${runsOf.wordOf(run)} />` },
        ...params.map((/** @type {string} */ name) => ({ title: name, class: "number", cell: (/** @type {Run} */ run) => axes.text(run.params[name]) })),
        { title: metric === runsOf.TIME ? "Took" : titleOf(measure), class: "number strong", cell: (/** @type {Run} */ run) => (metric === runsOf.TIME ? took(run.started_at, run.finished_at, state.now.value) : number(runsOf.scored(run, measure))) },
        ...others.map((/** @type {string} */ name) => ({ title: name, class: "number", phone: "nothing", cell: (/** @type {Run} */ run) => number(runsOf.measured(run, name)) })),
        { title: "Compare", class: "actions", phone: "nothing", cell: (/** @type {Run} */ run) => run.job !== null && html`<input type="checkbox" aria-label=${`Compare job ${run.job}`} checked=${isCompared.includes(String(run.job))} onChange=${() => toggle(isCompared, String(run.job))} />` },
      ]} />`}
    ${isRanked && isCompared.length > 1 && html`<div class="picked-bar" role="status"><a class="button" href=${`/compare?jobs=${isCompared.join(",")}`}><${Icon} name="table" />Compare ${plural(isCompared.length, "job")}</a></div>`}
    ${runs.length > rows && html`<button type="button" onClick=${() => setRows(rows + 5 * ROWS)}>Show more (${count(runs.length - rows)} left)</button>`}
  <//>`;
}

/** Jobs that are compared, at most. */
const MOST_COMPARED = 8;

/** @param {string[]} compared @param {string} job */
function toggle(compared, job) {
  const next = compared.includes(job) ? compared.filter((one) => one !== job) : [...compared, job].slice(-MOST_COMPARED);
  router.setQuery({ compare: next.join(",") });
}

/** @param {any} props */
function Seeds({ runs, all, measure, hasAll, aside }) {
  const params = (hasAll ? runsOf.parameters(all) : runsOf.varying(all)).filter((/** @type {string} */ name) => !runsOf.seeds(all).includes(name));
  return html`<${Section} title="Runs" aside=${aside}><${Table} label="Runs, seeds together" rows=${runsOf.grouped(runs, measure).slice(0, ROWS)}
    keyOf=${(/** @type {import("./runs.js").Group} */ one) => one.runs[0].index}
    columns=${[
      { title: "Runs", class: "number", cell: (/** @type {any} */ one) => plural(one.runs.length, "run") },
      ...params.map((/** @type {string} */ name) => ({ title: name, class: "number", cell: (/** @type {any} */ one) => axes.text(one.params[name]) })),
      { title: `${titleOf(measure)}, mean ± sd`, class: "number strong", cell: (/** @type {any} */ one) => (one.mean === null ? "" : `${number(one.mean)}${one.sd === null ? "" : ` ± ${number(one.sd)}`}`) },
    ]} /><//>`;
}
