// Small components that every page uses. Their styles are in app.css under the same names.
import { errorText } from "../core/api.js";
import { ago, clock } from "../core/format.js";
import * as state from "../core/state.js";
import { html, useEffect, useRef } from "../vendor/ui.js";
import { Icon } from "./icons.js";
import * as toasts from "./toasts.js";

/**
 * @typedef {import("../vendor/ui.js").ComponentChildren} Children
 * @typedef {import("../core/types.js").Word} Word
 */

/** A state: its word in its colour. @param {{word: Word | string}} props */
export function Pill({ word }) {
  return html`<span class=${`pill is-${word}`}>${word}</span>`;
}

/** A text with its words in backticks as code. @param {string} text */
export const coded = (text) => text.split("`").map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));

/** A link to a job: "#7 name". @param {{id: number, name?: string | null}} props */
export function JobLink({ id, name }) {
  return html`<a class="job" href=${`/job/${id}`}><span class="number">#${id}</span>${name ? ` ${name}` : ""}</a>`;
}

/** A moment as "5 min ago" that continues by itself; the exact time when pointed at. @param {{at: string | null | undefined, isClock?: boolean}} props */
export function Time({ at, isClock = false }) {
  if (!at) return null;
  const text = isClock ? clock(at, state.now.value) : ago(at, state.now.value);
  return html`<time datetime=${at} title=${new Date(at).toLocaleString("en-GB")}>${text}</time>`;
}

/** A part of a page with its heading. @param {{title: Children, aside?: Children, children?: Children, class?: string}} props */
export function Section({ title, aside, children, class: kind = "" }) {
  return html`<section class=${kind}>
    <div class="heading"><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</div>
    ${children}
  </section>`;
}

/**
 * A table. On a phone a row is two lines: `phone` says what becomes of a cell ("title", "side", "text", "line": one of it, "plain": without its title, "nothing"; otherwise
 * it stands in the second line with the name of its column). The first column is the title, commands are left out.
 * A column: its `title`, how to draw a row's `cell`, and `class` ("mono", "number", "clip", "actions").
 * @template T
 * @param {{label: string, columns: {title: string, cell: (row: T) => Children, class?: string, phone?: string}[], rows: readonly T[], keyOf: (row: T) => string | number, rowProps?: (row: T, index: number) => Record<string, unknown>}} props
 */
export function Table({ label, columns, rows, keyOf, rowProps = () => ({}) }) {
  return html`<div class="table" role="region" aria-label=${label} tabindex="0"><table aria-label=${label}>
    <thead><tr>${columns.map((one) => html`<th scope="col" class=${one.class}>${one.title}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (row, index) => html`<tr key=${keyOf(row)} ...${rowProps(row, index)}>
        ${columns.map((one, i) => html`<td class=${`${one.class ?? ""} ${asOf(one, i)}`} data-title=${one.title}>${one.cell(row)}</td>`)}
      </tr>`,
    )}</tbody>
  </table></div>`;
}

/** @param {{class?: string, phone?: string}} column @param {number} index */
function asOf(column, index) {
  if (column.phone) return `as-${column.phone}`;
  return index === 0 ? "as-title" : column.class === "mono" ? "as-nothing" : "";
}

/** A part of a whole as a bar; `label` says it in words. @param {{part: number | null, label: string, kind?: string}} props part in 0..1 */
export function Meter({ part, label, kind = "" }) {
  const percent = part === null ? 0 : Math.round(Math.min(1, Math.max(0, part)) * 100);
  return html`<div class=${`meter ${kind}`} role="img" aria-label=${label}><div style=${{ width: `${percent}%` }}></div></div>`;
}

/** Copy a text when pressed, and say so. @param {{text: string, label?: string, class?: string}} props */
export function Copy({ text, label = "Copy", class: kind = "" }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toasts.show("Copied.");
    } catch {
      // No clipboard here (an old browser, or no permission): show the text so that it can be copied by hand.
      toasts.show(text);
    }
  };
  return html`<button type="button" class=${kind} onClick=${copy}>${label}</button>`;
}

/**
 * A menu behind a button; it closes after a choice, by Escape, and by a click beside it.
 * @param {{label: string, icon?: string, text?: string, class?: string, children?: Children, isKept?: boolean}} props isKept: several choices are made in it
 */
export function Menu({ label, icon, text, class: kind = "", isKept = false, children }) {
  const ref = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  useEffect(() => {
    const shut = (/** @type {Event} */ event) => {
      const menu = ref.current;
      if (!menu?.open) return;
      const isKey = event instanceof KeyboardEvent;
      if (isKey ? event.key !== "Escape" : menu.contains(/** @type {Node} */ (event.target))) return;
      menu.open = false;
      if (isKey) menu.querySelector("summary")?.focus();
    };
    document.addEventListener("pointerdown", shut);
    document.addEventListener("keydown", shut);
    return () => {
      document.removeEventListener("pointerdown", shut);
      document.removeEventListener("keydown", shut);
    };
  }, []);
  const chosen = (/** @type {Event} */ event) => {
    if (!isKept && ref.current && /** @type {Element} */ (event.target).closest("button, a")) ref.current.open = false;
  };
  return html`<details class="menu" ref=${ref}>
    <summary class=${`button ${kind}`} aria-label=${text ? null : label} title=${text ? null : label}>${icon && html`<${Icon} name=${icon} />`}${text}</summary>
    <div class="menu-body" role="group" aria-label=${label} onClick=${chosen}>${children}</div>
  </details>`;
}

/** A command to be typed in a terminal, with its copy button. @param {{text: string}} props */
export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${Copy} text=${text} class="small" /></div>`;
}

/** Nothing here yet, and what to type so that there is. @param {{title: string, text?: string, commands?: string[], steps?: [string, string][], link?: [string, string]}} props steps: what each does, and its command; link: its text and its path */
export function Empty({ title, text, commands = [], steps = [], link }) {
  return html`<div class="empty">
    <p><strong>${title}</strong></p>
    ${text && html`<p>${text}</p>`}
    ${commands.map((one) => html`<${Command} key=${one} text=${one} />`)}
    ${link && html`<p><a href=${link[1]}>${link[0]}</a></p>`}
    ${steps.length > 0 && html`<ol>${steps.map(([what, one]) => html`<li key=${one}>${what}<${Command} text=${one} /></li>`)}</ol>`}
  </div>`;
}

/** What went wrong, in one line; nothing for nothing. @param {{error: unknown, retry?: () => void}} props */
export function Problem({ error, retry }) {
  if (!error) return null;
  return html`<div class="problem" role="alert">
    <span>${coded(errorText(error))}</span>${retry && html`<button type="button" class="small" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** A row of choices of which one holds. @param {{label: string, options: {value: string, text: string}[], value: string, choose: (value: string) => void}} props */
export function Choice({ label, options, value, choose }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map((one) => html`<button type="button" key=${one.value} class="small" aria-pressed=${one.value === value} onClick=${() => choose(one.value)}>${one.text}</button>`)}
  </div>`;
}

/** A labelled field of a form. @param {{label: string, hint?: string, class?: string, children?: Children}} props */
export function Field({ label, hint, class: kind = "", children }) {
  return html`<div class=${`field ${kind}`}><label><span>${label}</span>${children}</label>${hint && html`<small>${hint}</small>`}</div>`;
}
