// The table of jobs: draws the rows on the screen of a list of any length, and moves over it by keyboard.
import * as jobActions from "../../components/job-actions.js";
import * as rowWindow from "../../components/row-window.js";
import { useVirtualScroll } from "../../components/virtual-scroll.js";
import * as router from "../../core/router.js";
import * as selection from "../../core/selection.js";
import { html, useEffect, useState } from "../../vendor/ui.js";
import { COLUMNS, chosen } from "./columns.js";

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
 * @param {{ids: Ids, rows: Rows, version: number, sort: string, picked: selection.Picks, setPicked: (picked: selection.Picks) => void, cursor: number, setCursor: (row: number) => void}} props
 */
export function Table({ ids, rows, sort, picked, setPicked, cursor, setCursor }) {
  const isPhone = usePhone();
  const scrolling = useVirtualScroll(ids.length, isPhone ? PHONE_ROW : ROW, isPhone ? 0 : HEAD);
  const { box, list, window } = scrolling;
  const columns = COLUMNS.filter((one) => chosen.value.includes(one.name));
  const seen = Array.from({ length: window.end - window.first }, (_, i) => ids.at(window.first + i));
  useEffect(() => rows.want(seen));
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
    " ": (event) => setPicked(event.shiftKey ? selection.extend(picked, ids.at(cursor), ids) : selection.toggle(picked, ids.at(cursor))),
    Enter: () => router.go(`/job/${ids.at(cursor)}`),
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
    if (event.shiftKey) setPicked(selection.extend(picked.anchor === null ? { ...picked, anchor: ids.at(cursor) } : picked, ids.at(row), ids));
    else if (event.ctrlKey || event.metaKey || target.closest(".check")) setPicked(selection.toggle(picked, ids.at(row)));
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
