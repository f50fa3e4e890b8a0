// One line of a log on the screen: its number, which is a link, and its text as a terminal would show it.
import { size } from "../../../core/format.js";
import { html } from "../../../vendor/ui.js";
import { paint } from "./ansi-colours.js";
import { spans } from "./ansi.js";
import * as finds from "./finds.js";

/** @typedef {{text: string, left?: number}} Shown */

/** What was worked out for lines that are still kept. @type {WeakMap<Shown, import("./ansi.js").Span[]>} */
const parsed = new WeakMap();

/** @param {Shown} line */
function spansOf(line) {
  const known = parsed.get(line) ?? spans(line.text);
  parsed.set(line, known);
  return known;
}

/** @param {import("./ansi.js").Style} style */
function classOf(style) {
  const marks = /** @type {const} */ (["bold", "dim", "italic", "underline", "strike"]);
  return marks.filter((mark) => style[mark]).join(" ");
}

/**
 * @param {{line: Shown | undefined, number: number | null, time?: {text: string, title: string} | null, row: number, trace?: "trace" | "cause", isLinked: boolean, isCurrent: boolean, sought: import("./log-search.js").Sought, choose: (event: MouseEvent, number: number) => void}} props
 */
export function Line({ line, number, time = null, row, trace, isLinked, isCurrent, sought, choose }) {
  const kind = `log-line${trace ? ` is-${trace}` : ""}${isLinked ? " is-linked" : ""}${isCurrent ? " is-current" : ""}`;
  const all = line ? spansOf(line) : [];
  // Only the daemon knows what a regular expression matched; then the whole line is marked.
  const words = sought.isRegex || !line ? [] : finds.marks(all.map((span) => span.text).join(""), sought.text, sought.isCase);
  return html`<div class=${kind} data-row=${row}>
    ${number === null ? html`<span class="log-number"></span>` : html`<a class="log-number" href=${`#L${number}`} tabindex="-1" onClick=${(/** @type {MouseEvent} */ event) => choose(event, number)}>${number}</a>`}
    ${time !== null && html`<span class="log-time" title=${time.title}>${time.text}</span>`}
    <span class="log-text">${line?.left ? html`<span class="quiet">[${size(line.left)} of this line left out] </span>` : null}${
      line ? finds.marked(all, words).map((span) => html`<${Piece} ...${span} />`) : html`<span class="quiet">…</span>`
    }</span>
  </div>`;
}

/** @param {import("./ansi.js").Span & {isFound: boolean}} span */
function Piece({ text, style, isFound }) {
  const marks = classOf(style);
  if (isFound) return html`<mark class=${marks}>${text}</mark>`;
  const { color, background } = paint(style);
  if (!color && !marks) return text;
  return html`<span class=${marks} style=${{ color: color ?? "", backgroundColor: background ?? "" }}>${text}</span>`;
}
