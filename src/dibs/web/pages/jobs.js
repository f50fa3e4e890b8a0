// Jobs: the list of all jobs, filtered and sorted by the address.
import * as bulk from "../components/bulk-actions.js";
import { Choice, Empty, Menu, Problem } from "../components/common.js";
import * as api from "../core/api.js";
import { plural } from "../core/format.js";
import { useKeys } from "../core/keys.js";
import * as router from "../core/router.js";
import * as selection from "../core/selection.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { Chooser } from "./jobs/columns.js";
import { completions } from "./jobs/completions.js";
import * as exports from "./jobs/exports.js";
import * as filters from "./jobs/filters.js";
import * as grouped from "./jobs/grouped-ids.js";
import { useJobList } from "./jobs/job-list.js";
import { Table } from "./jobs/table.js";
import { Views } from "./jobs/views.js";

/** The most common filters; others can be typed. */
const STATES = [
  { value: "", text: "All" },
  { value: "active", text: "Running" },
  { value: "queued,held", text: "Waiting" },
  { value: "bad", text: "Failed" },
  { value: "done", text: "Done" },
];
/** Where the browser keeps whether sweeps and batches are one row. */
const GROUP_KEY = "dibs.groups";
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
  const [isGrouped, setGrouped] = useState(localStorage.getItem(GROUP_KEY) !== "0");
  const [opened, setOpened] = useState(/** @type {ReadonlySet<string>} */ (new Set()));
  // After the rows: in a long list all jobs are looked at for it.
  /** @type {import("../core/use-answer.js").Answer<{bundles: grouped.Group[]}>} */
  const { data: found } = useAnswer(isGrouped && listing.isWhole ? api.address("/v1/jobs/bundles", params) : null, { isLive: true, restMs: 5000 });
  const base = listing.ids;
  const groups = useMemo(
    () => (isGrouped && base && listing.isWhole && found?.bundles.length && base.length <= grouped.MOST ? new grouped.Grouped(base, found.bundles, opened) : null),
    [isGrouped, base, listing.isWhole, found, opened],
  );
  const ids = groups ?? base;
  const toggleGroups = () => {
    localStorage.setItem(GROUP_KEY, isGrouped ? "0" : "1");
    setGrouped(!isGrouped);
  };
  const open = (/** @type {number} */ id) => {
    const own = groups?.groupOf(id);
    if (!own) return;
    const one = grouped.keyOf(own.group);
    setOpened(new Set(opened.has(one) ? [...opened].filter((each) => each !== one) : [...opened, one]));
  };
  const row = Math.min(cursor, Math.max(0, (ids?.length ?? 0) - 1));
  // Without a selection an action applies to the current row.
  const meant = () => {
    if (!ids?.length || !base) return [];
    if (selection.count(picked, base.length)) return bulk.selected(picked, base);
    return groups?.groupOf(ids.at(row))?.ids ?? [ids.at(row)];
  };
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
      { keys: "Ctrl+a", does: "Select all that match", group: "Jobs", run: () => setPicked(selection.ALL) },
      { keys: "ArrowDown", does: "Go to the list; then Space selects, Shift extends, Enter opens", group: "Jobs", run: focus(".grid") },
      { keys: "l", does: "Open the log", group: "Jobs", run: () => ids?.length && ids.at(row) > 0 && router.go(`/job/${ids.at(row)}?tab=log`) },
      ...bulk.VERBS.map((one) => ({ keys: one.key, does: `${one.text} the selected jobs, or this one`, group: "Jobs", run: () => void bulk.act(one.verb, meant()) })),
      { keys: "p", does: "Set the priority", group: "Jobs", run: () => meant().length && bulk.askPriority(meant()) },
      { keys: ".", does: "Show the new jobs", group: "Jobs", run: adopt },
    ],
    [ids, picked, row, listing.added],
  );
  const isEmpty = ids?.length === 0 && listing.isWhole;
  const isFiltered = filters.chips(filter).length > 0;
  // Without any job there is nothing to filter, to group or to export.
  const isBare = isEmpty && !isFiltered && !listing.added;
  const hasPicks = base && selection.count(picked, base.length) > 0;
  return html`<div class="jobs">
    ${!isBare && html`<${FilterBox} filter=${filter} rows=${listing.rows} groups=${found?.bundles ?? []} />`}
    ${!isBare && html`<div class="bar">
      ${hasPicks
        ? html`<${bulk.Bar} ids=${base} picked=${picked} clear=${() => setPicked(selection.NONE)} />`
        : html`<span class="total" role="status">${base && (listing.isWhole ? plural(base.length, "job") : "…")}${listing.isCut ? ", the first million" : ""}</span>`}
      ${listing.added > 0 && html`<button type="button" class="new" onClick=${adopt}>↑ ${listing.added} new</button>`}
      <span class="right">
        <button type="button" class="small" aria-pressed=${isGrouped} aria-label="Group sweeps and batches" title="Runs of a sweep and jobs of a batch in one row" onClick=${toggleGroups}>Group</button>
        <${Views} />
        <${Chooser} metrics=${listing.rows.metrics()} />
        <${Menu} label="Export" text="Export" icon="download" class="small">
          <button type="button" onClick=${() => exports.download(params, "csv")}>CSV</button>
          <button type="button" onClick=${() => exports.download(params, "json")}>JSON</button>
        </${Menu}>
      </span>
    </div>`}
    <${Problem} error=${ids && api.isGone(listing.error) ? null : listing.error} retry=${listing.reload} />
    ${isEmpty && html`<${Nothing} isFiltered=${isFiltered} />`}
    ${ids && ids.length > 0 && html`<${Table} ids=${ids} rows=${listing.rows} version=${listing.version} sort=${sort} picked=${picked} setPicked=${setPicked} cursor=${row} setCursor=${setCursor} groups=${groups} opened=${opened} open=${open} />`}
    ${ids && ids.length > 0 && html`<p class="hint quiet"><kbd>Space</kbd> selects, <kbd>Shift</kbd> extends, <kbd>Ctrl A</kbd> takes all that match, <kbd>Enter</kbd> opens, <kbd>l</kbd> shows the log.</p>`}
  </div>`;
}

/** @param {{filter: filters.Filter, rows: import("./jobs/row-cache.js").Rows, groups: readonly grouped.Group[]}} props */
function FilterBox({ filter, rows, groups }) {
  const written = filters.write(filter);
  const [text, setText] = useState(written);
  const [problem, setProblem] = useState(/** @type {string | null} */ (null));
  const [at, setAt] = useState(-1);
  const [isOpen, setOpen] = useState(false);
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  useEffect(() => {
    // Set from elsewhere: by a chip, a link, the back button.
    if (filters.write(filters.parse(text).filter) !== written) setText(written);
  }, [written]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const known = { ...rows.known(), sweep: groups.flatMap((one) => (one.sweep === null ? [] : [{ id: one.sweep, name: one.name }])) };
  const offers = isOpen ? completions(text, known) : [];
  /** @param {string} typed */
  const hold = (typed) => {
    clearTimeout(timer.current);
    const { filter: found, problem: wrong } = filters.parse(typed);
    setProblem(wrong);
    if (!wrong) setFilter(found);
  };
  /** @param {string} value */
  const change = (value) => {
    setText(value);
    setAt(-1);
    clearTimeout(timer.current);
    // A word without its value is not wrong while one chooses it.
    timer.current = setTimeout(() => (/(^|\s)[a-z]+:$/.test(value) ? setProblem(null) : hold(value)), TYPING_MS);
  };
  /** @param {import("./jobs/completions.js").Completion} one */
  const take = (one) => {
    change(one.result);
    document.getElementById("filter")?.focus();
  };
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" && offers.length) setOpen(false);
    else if (step && !isOpen) setOpen(true);
    else if (step && offers.length) setAt((at + step + offers.length + (at < 0 && step < 0 ? 1 : 0)) % offers.length);
    else if ((event.key === "Enter" || event.key === "Tab") && offers[at]) take(offers[at]);
    else return;
    event.preventDefault();
  };
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    setOpen(false);
    hold(text);
  };
  const isState = STATES.some((one) => one.value && one.value === filter.state);
  const chips = filters.chips(filter).filter(({ parameter }) => parameter !== "state" || !isState);
  return html`<form class="filter" role="search" onSubmit=${submit}>
      <div class="filter-box">
        <label for="filter">Filter</label>
        <input id="filter" type="search" role="combobox" aria-expanded=${offers.length > 0} aria-controls="filter-offers" aria-activedescendant=${offers[at] ? `offer-${at}` : null} spellcheck=${false} autocomplete="off" placeholder='state:failed name:vit* tag:x gpu:3 since:2d cmd:"--lr"'
          value=${text} onInput=${(/** @type {any} */ event) => { setOpen(true); change(event.target.value); }} onKeyDown=${key} onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} aria-describedby="filter-problem" />
        <ul id="filter-offers" class="offers" role="listbox" aria-label="Completions" hidden=${!offers.length}>
          ${offers.map((one, i) => html`<li key=${one.text} id=${`offer-${i}`} role="option" aria-selected=${i === at} onMouseDown=${(/** @type {Event} */ event) => { event.preventDefault(); take(one); }}><code>${one.text}</code> <span class="quiet">${one.about}</span></li>`)}
        </ul>
      </div>
      <${Choice} label="State" options=${STATES} value=${filter.state ?? ""} choose=${(/** @type {string} */ state) => setFilter({ ...filter, state })} />
    </form>
    <div id="filter-problem" class="bad-text" role="status">${problem}</div>
    <div class="chips">${chips.map(
      ({ parameter, text: chip }) => html`<button type="button" key=${parameter} class="chip" aria-label=${`Remove ${chip}`} onClick=${() => setFilter({ ...filter, [parameter]: "" })}>${chip} <span aria-hidden="true">✕</span></button>`,
    )}</div>`;
}

const FIRST_STEPS = [
  ["Run a command on one GPU", "dibs add -g 1 python train.py"],
  ["Run one command per line of a file", "dibs add --file commands.txt"],
  ["Run it for several values", "dibs sweep 'python train.py --lr {lr}' -p lr=0.1,0.01"],
];

/** @param {{isFiltered: boolean}} props */
function Nothing({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No job matches" text="Remove a part of the filter, or show all jobs." />`;
  return html`<${Empty} title="No jobs yet" text="Press New job above, or type in a terminal:" steps=${FIRST_STEPS} />`;
}
