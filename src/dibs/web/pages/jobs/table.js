// The table of jobs: draws the rows on the screen of a list of any length, and moves over it by keyboard.
import { Icon } from "../../components/icons.js";
import * as jobActions from "../../components/job-actions.js";
import * as rowWindow from "../../components/row-window.js";
import { useVirtualScroll } from "../../components/virtual-scroll.js";
import { count, plural } from "../../core/format.js";
import * as router from "../../core/router.js";
import * as selection from "../../core/selection.js";
import { html, useEffect, useState } from "../../vendor/ui.js";
import { Strip } from "../sweep/strip.js";
import { shown } from "./columns.js";
import { keyOf } from "./grouped-ids.js";

/** @typedef {import("./job-list.js").Ids} Ids */
/** @typedef {import("./row-cache.js").Rows} Rows */

/** Pixels: as in jobs.css. */
const ROW = 32;
const PHONE_ROW = 62;
const HEAD = 30;

/** @returns {boolean} */
function usePhone() {
  const [media] = useState(() => matchMedia("(max-width: 700px)"));
  const [is, setIs] = useState(media.matches);
  useEffect(() => {
    const change = () => setIs(media.matches);
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, []);
  return is;
}

/**
 * @param {{ids: Ids, rows: Rows, version: number, sort: string, picked: selection.Picks, setPicked: (picked: selection.Picks) => void, cursor: number, setCursor: (row: number) => void, groups: import("./grouped-ids.js").Grouped | null, opened: ReadonlySet<string>, open: (id: number) => void}} props
 */
export function Table({ ids, rows, sort, picked, setPicked, cursor, setCursor, groups, opened, open }) {
  const isPhone = usePhone();
  const scrolling = useVirtualScroll(ids.length, isPhone ? PHONE_ROW : ROW, isPhone ? 0 : HEAD);
  const { box, list, window } = scrolling;
  const columns = shown();
  const seen = Array.from({ length: window.end - window.first }, (_, i) => ids.at(window.first + i));
  useEffect(() => rows.want(seen.filter((id) => id > 0)));
  const isOpen = (/** @type {number} */ id) => Boolean(groups && opened.has(keyOf(/** @type {any} */ (groups.groupOf(id)).group)));
  /** Select a row, or all jobs of a group; or no longer. @param {number} id */
  const toggle = (id) => {
    const own = groups?.groupOf(id)?.ids;
    if (!own) return selection.toggle(picked, id);
    const isAll = own.every((each) => selection.has(picked, each));
    return own.filter((each) => selection.has(picked, each) === isAll).reduce(selection.toggle, picked);
  };
  /** Rows of groups are not jobs: of a range only its jobs are selected. @param {number} id */
  const extend = (id) => {
    const next = selection.extend(picked, id, ids);
    return groups ? { ...next, ids: new Set([...next.ids].filter((each) => each > 0)) } : next;
  };
  /** @param {number} row @param {boolean} isExtending */
  const moveTo = (row, isExtending) => {
    const target = Math.max(0, Math.min(ids.length - 1, row));
    if (isExtending) {
      const begun = picked.anchor === null ? { ...picked, anchor: ids.at(cursor) } : picked;
      setPicked(selection.extend(begun, ids.at(target), ids));
    }
    setCursor(target);
    scrolling.scrollTo(rowWindow.reveal(list, box.current?.scrollTop ?? 0, target));
  };
  const page = Math.max(1, Math.floor(rowWindow.rowsSeen(list)) - 1);
  /** @type {Record<string, (event: KeyboardEvent) => void>} */
  const KEYS = {
    ArrowDown: (event) => moveTo(cursor + 1, event.shiftKey),
    ArrowUp: (event) => moveTo(cursor - 1, event.shiftKey),
    PageDown: (event) => moveTo(cursor + page, event.shiftKey),
    PageUp: (event) => moveTo(cursor - page, event.shiftKey),
    Home: (event) => moveTo(0, event.shiftKey),
    End: (event) => moveTo(ids.length - 1, event.shiftKey),
    " ": (event) => setPicked(event.shiftKey ? extend(ids.at(cursor)) : toggle(ids.at(cursor))),
    ArrowRight: () => ids.at(cursor) < 0 && !isOpen(ids.at(cursor)) && open(ids.at(cursor)),
    ArrowLeft: () => ids.at(cursor) < 0 && isOpen(ids.at(cursor)) && open(ids.at(cursor)),
    Enter: () => (ids.at(cursor) < 0 ? open(ids.at(cursor)) : router.go(`/job/${ids.at(cursor)}`)),
    Escape: () => setPicked(selection.NONE),
  };
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    if (event.target !== box.current || !ids.length) return;
    const isAll = (event.ctrlKey || event.metaKey) && event.key === "a";
    const run = isAll ? () => setPicked(selection.ALL) : event.ctrlKey || event.metaKey || event.altKey ? undefined : KEYS[event.key];
    if (!run) return;
    event.preventDefault();
    run(event);
  };
  /** @param {MouseEvent} event @param {number} row */
  const click = (event, row) => {
    const target = /** @type {Element} */ (event.target);
    if (target.closest("a")) return;
    setCursor(row);
    if (event.shiftKey) setPicked(groups ? extend(ids.at(row)) : selection.extend(picked.anchor === null ? { ...picked, anchor: ids.at(cursor) } : picked, ids.at(row), ids));
    else if (event.ctrlKey || event.metaKey || target.closest(".check")) setPicked(toggle(ids.at(row)));
    else if (ids.at(row) < 0) open(ids.at(row));
  };
  const tracks = `34px ${columns.map((one) => one.width).join(" ")}`;
  const isCursorDrawn = cursor >= window.first && cursor < window.end;
  return html`<div class="grid" ref=${box} role="grid" tabindex="0" aria-label="Jobs" aria-multiselectable="true" aria-rowcount=${ids.length + 1}
      aria-activedescendant=${isCursorDrawn ? `row-${ids.at(cursor)}` : null} onKeyDown=${press} style=${{ "--tracks": tracks }}>
    <div role="rowgroup" class="grid-head"><div role="row" aria-rowindex="1" class="grid-row">
      <div role="columnheader" class="check"><span class="hidden">selected</span></div>
      ${columns.map((one) => html`<${Heading} key=${one.name} column=${one} sort=${sort} />`)}
    </div></div>
    <div role="rowgroup" class="grid-body" style=${{ height: `${scrolling.height}px` }}>
      <div role="presentation" class="grid-rows" style=${{ transform: `translateY(${window.top}px)` }}>
        ${seen.map((id, i) => {
          const row = window.first + i;
          if (id < 0 && groups) {
            const own = /** @type {{group: import("./grouped-ids.js").Group, ids: number[]}} */ (groups.groupOf(id));
            return html`<${GroupRow} key=${id} own=${own} row=${row} columns=${columns.length} isCursor=${row === cursor} isOpen=${isOpen(id)} isPicked=${own.ids.every((each) => selection.has(picked, each))} click=${click} id=${id} />`;
          }
          const job = rows.get(id);
          const isPicked = selection.has(picked, id);
          const kind = `grid-row${row === cursor ? " is-cursor" : ""}${isPicked ? " is-picked" : ""}${jobActions.cancelling.value.has(id) ? " leaving" : ""}`;
          return html`<div key=${id} id=${`row-${id}`} role="row" class=${kind} aria-rowindex=${row + 2} aria-selected=${isPicked}
              onClick=${(/** @type {MouseEvent} */ event) => click(event, row)} onDblClick=${() => router.go(`/job/${id}`)}>
            <div role="gridcell" class="check"><span aria-hidden="true">${isPicked ? "☑" : "☐"}</span></div>
            ${job
              ? columns.map((one) => html`<div role="gridcell" key=${one.name} class=${`cell ${one.class ?? ""}`}>${one.cell(job)}</div>`)
              : html`<div role="gridcell" class="cell quiet" aria-colspan=${columns.length}>#${id} ${rows.gone.has(id) ? "is no longer there" : "…"}</div>`}
          </div>`;
        })}
      </div>
    </div>
  </div>`;
}

/** A sweep or a batch as one row. @param {any} props */
function GroupRow({ own, row, columns, isCursor, isOpen, isPicked, click, id }) {
  const { group } = own;
  const what = group.sweep === null ? "Batch" : "Sweep";
  const kind = `grid-row group-row${isCursor ? " is-cursor" : ""}${isPicked ? " is-picked" : ""}`;
  return html`<div id=${`row-${id}`} role="row" class=${kind} aria-rowindex=${row + 2} aria-selected=${isPicked} onClick=${(/** @type {MouseEvent} */ event) => click(event, row)}>
    <div role="gridcell" class="check"><span aria-hidden="true">${isPicked ? "☑" : "☐"}</span></div>
    <div role="gridcell" class="cell group-cell" aria-colspan=${columns}>
      <button type="button" class=${`link quiet turn${isOpen ? " is-open" : ""}`} tabindex="-1" aria-expanded=${isOpen} aria-label=${`Jobs of ${group.name || what.toLowerCase()}`}><${Icon} name="right" /></button>
      <span class="quiet">${what}</span> <strong class="clip">${group.sweep === null ? group.name || `batch ${group.batch}` : html`<a class="job" href=${`/sweep/${group.sweep}`} tabindex="-1">${group.name}</a>`}</strong>
      <span class="quiet number">${plural(own.ids.length, "job")}</span><${Strip} states=${group.counts} />
      <span class="quiet clip said">${Object.entries(group.counts).map(([word, many]) => `${count(/** @type {number} */ (many))} ${word}`).join(", ")}</span>
    </div>
  </div>`;
}

/** @param {{column: import("./columns.js").Column, sort: string}} props */
function Heading({ column, sort }) {
  if (!column.sort) return html`<div role="columnheader" class=${`cell ${column.class ?? ""}`}>${column.title}</div>`;
  const isFalling = sort === `-${column.sort}`;
  const isRising = sort === column.sort;
  // Times and ids start with the newest, names with a.
  const first = column.sort === "name" ? column.sort : `-${column.sort}`;
  const next = isFalling ? column.sort : isRising ? `-${column.sort}` : first;
  return html`<div role="columnheader" class=${`cell ${column.class ?? ""}`} aria-sort=${isFalling ? "descending" : isRising ? "ascending" : "none"}>
    <button type="button" class="link quiet" onClick=${() => router.setQuery({ sort: next === "-id" ? null : next })}>${column.title}${isFalling ? " ↓" : isRising ? " ↑" : ""}</button>
  </div>`;
}
