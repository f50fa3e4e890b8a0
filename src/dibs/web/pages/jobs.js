// Jobs: the list of all jobs, filtered and sorted by the address.
import * as bulk from "../components/bulk-actions.js";
import { Choice, Empty, Problem } from "../components/common.js";
import * as api from "../core/api.js";
import { plural } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import * as router from "../core/router.js";
import * as selection from "../core/selection.js";
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import { Chooser } from "./jobs/columns.js";
import * as exports from "./jobs/exports.js";
import * as filters from "./jobs/filters.js";
import { useJobList } from "./jobs/job-list.js";
import { Table } from "./jobs/table.js";

/** The most common filters; others can be typed. */
const STATES = [
  { value: "", text: "all" },
  { value: "active", text: "running" },
  { value: "queued,held", text: "waiting" },
  { value: "bad", text: "failed" },
  { value: "done", text: "done" },
];
/** Milliseconds after the last key before a filter is applied. */
const TYPING_MS = 400;

/** @param {filters.Filter} filter */
function setFilter(filter) {
  const none = Object.fromEntries(Object.values(filters.FIELDS).map((parameter) => [parameter, null]));
  router.setQuery({ ...none, ...filters.toQuery(filter) });
}

export default function Jobs() {
  const filter = filters.fromQuery(router.query.value);
  const sort = router.query.value.get("sort") ?? "-id";
  const params = { ...filters.toQuery(filter), sort };
  const listing = useJobList(params);
  const [picked, setPicked] = useState(selection.NONE);
  const [cursor, setCursor] = useState(0);
  const key = JSON.stringify(params);
  useEffect(() => {
    setPicked(selection.NONE);
    setCursor(0);
  }, [key]);
  const { ids } = listing;
  const row = Math.min(cursor, Math.max(0, (ids?.length ?? 0) - 1));
  // Without a selection an action applies to the current row.
  const meant = () => (!ids?.length ? [] : selection.count(picked, ids.length) ? bulk.selected(picked, ids) : [ids.at(row)]);
  const focus = (/** @type {string} */ what) => () => /** @type {HTMLElement | null} */ (document.querySelector(what))?.focus();
  const adopt = () => {
    listing.adopt();
    const grid = document.querySelector(".grid");
    if (grid) grid.scrollTop = 0;
    setCursor(0);
  };
  useKeys(
    [
      { keys: "f", does: "Filter", group: "Jobs", run: focus("#filter") },
      { keys: "ArrowDown", does: "Go to the list; then Space selects, Shift extends, Ctrl A takes all, Enter opens", group: "Jobs", run: focus(".grid") },
      { keys: "l", does: "Open the log", group: "Jobs", run: () => ids?.length && router.go(`/job/${ids.at(row)}?tab=log`) },
      ...bulk.VERBS.map((one) => ({ keys: one.key, does: `${one.text} the selected jobs, or this one`, group: "Jobs", run: () => void bulk.act(one.verb, meant()) })),
      { keys: "p", does: "Set the priority", group: "Jobs", run: () => meant().length && bulk.askPriority(meant()) },
      { keys: ".", does: "Show the new jobs", group: "Jobs", run: adopt },
    ],
    [ids, picked, row, listing.added],
  );
  const isEmpty = ids?.length === 0 && listing.isWhole;
  const hasPicks = ids && selection.count(picked, ids.length) > 0;
  return html`<div class="jobs">
    <${FilterBox} filter=${filter} />
    <div class="bar">
      ${hasPicks
        ? html`<${bulk.Bar} ids=${ids} picked=${picked} clear=${() => setPicked(selection.NONE)} />`
        : html`<span class="total" role="status">${ids && (listing.isWhole ? plural(ids.length, "job") : "…")}${listing.isCut ? ", the first million" : ""}</span>`}
      ${listing.added > 0 && html`<button type="button" class="new" onClick=${adopt}>↑ ${listing.added} new</button>`}
      <span class="right">
        <${Chooser} />
        <button type="button" onClick=${() => exports.download(params, "csv")}>CSV</button>
        <button type="button" onClick=${() => exports.download(params, "json")}>JSON</button>
      </span>
    </div>
    <${Problem} error=${ids && api.isGone(listing.error) ? null : listing.error} retry=${listing.reload} />
    ${isEmpty && html`<${Nothing} isFiltered=${filters.chips(filter).length > 0} />`}
    ${ids && ids.length > 0 && html`<${Table} ids=${ids} rows=${listing.rows} version=${listing.version} sort=${sort} picked=${picked} setPicked=${setPicked} cursor=${row} setCursor=${setCursor} />`}
    <p class="hint quiet"><kbd>Space</kbd> selects, <kbd>Shift</kbd> extends, <kbd>Ctrl A</kbd> takes all that match, <kbd>Enter</kbd> opens, <kbd>l</kbd> shows the log.</p>
  </div>`;
}

/** The filter as text, with a chip for each part. @param {{filter: filters.Filter}} props */
function FilterBox({ filter }) {
  const written = filters.write(filter);
  const [text, setText] = useState(written);
  const [problem, setProblem] = useState(/** @type {string | null} */ (null));
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  useEffect(() => {
    // Set from elsewhere: by a chip, a link, the back button.
    if (filters.write(filters.parse(text).filter) !== written) setText(written);
  }, [written]);
  useEffect(() => () => clearTimeout(timer.current), []);
  /** @param {string} typed */
  const hold = (typed) => {
    clearTimeout(timer.current);
    const { filter: found, problem: wrong } = filters.parse(typed);
    setProblem(wrong);
    if (!wrong) setFilter(found);
  };
  /** @param {InputEvent} event */
  const type = (event) => {
    const { value } = /** @type {HTMLInputElement} */ (event.target);
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => hold(value), TYPING_MS);
  };
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    hold(text);
  };
  return html`<form class="filter" role="search" onSubmit=${submit}>
      <input id="filter" type="search" aria-label="Filter" spellcheck=${false} autocomplete="off" placeholder='state:failed name:vit* tag:x gpu:3 since:2d cmd:"--lr"'
        value=${text} onInput=${type} aria-describedby="filter-problem" />
      <${Choice} label="State" options=${STATES} value=${filter.state ?? ""} choose=${(/** @type {string} */ state) => setFilter({ ...filter, state })} />
    </form>
    <div id="filter-problem" class="bad-text" role="status">${problem}</div>
    <div class="chips">${filters.chips(filter).map(
      ({ parameter, text: chip }) => html`<button type="button" key=${parameter} class="chip" aria-label=${`Remove ${chip}`} onClick=${() => setFilter({ ...filter, [parameter]: "" })}>${chip} <span aria-hidden="true">✕</span></button>`,
    )}</div>`;
}

/** @param {{isFiltered: boolean}} props */
function Nothing({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No job matches." text="Take a part of the filter away, or look at all jobs." />`;
  return html`<${Empty} title="No jobs yet." text="Queue the first one in a terminal, or press n:" commands=${["dibs add -g 1 python train.py", "dibs add -g 0 -- echo hello", "dibs sweep 'python train.py --lr {lr}' -p lr 0.1 0.01"]} />`;
}
