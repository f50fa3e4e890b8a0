// The icons of the page: strokes in a square of 16, drawn in the colour of the text beside them.
import { html } from "../vendor/ui.js";

/** What each icon draws; a text beside it, or the label of its button, says the same. @type {Record<string, string>} */
const PATHS = {
  plus: "M8 3v10M3 8h10",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9ZM10.4 10.4 14 14",
  help: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM6.2 6.1a1.9 1.9 0 1 1 2.7 1.8c-.6.3-.9.7-.9 1.4M8 11.4v.1",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  close: "m4 4 8 8M12 4l-8 8",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.2v9.6L12.5 8Z",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 1.8v3h-3",
  up: "M8 13V3.5M4 7.2l4-4 4 4",
  down: "M8 3v9.5M4 8.8l4 4 4-4",
  right: "m6 3.5 4.5 4.5L6 12.5",
  copy: "M5.5 5.5h8v8h-8ZM10.5 5.5v-3h-8v8h3",
  download: "M8 2.5v8M4.6 7.4 8 10.8l3.4-3.4M2.5 13.5h11",
  colours: "M8 14.2A6.2 6.2 0 1 0 8 1.8a6.2 6.2 0 0 0 0 12.4ZM8 1.8v12.4M10.5 3v10M13 5v6",
  table: "M2.5 3h11v10h-11ZM2.5 6.5h11M6.5 6.5V13",
  edit: "M10.8 2.8 13.2 5.2 5.5 13H3v-2.5ZM9.3 4.3l2.4 2.4",
  star: "m8 2 1.8 3.9 4.2.5-3.1 2.9.8 4.2L8 11.4l-3.7 2.1.8-4.2L2 6.4l4.2-.5Z",
  gear: "M8 10.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM8 1.8v2M8 12.2v2M1.8 8h2M12.2 8h2M3.6 3.6 5 5M11 11l1.4 1.4M12.4 3.6 11 5M5 11l-1.4 1.4",
  filter: "M2 3.5h12L9.5 8.6v4.2l-3-1.6V8.6Z",
  flag: "M4 14V2.5h8L10 5.7 12 9H4",
};

/** @param {{name: string}} props */
export function Icon({ name }) {
  return html`<svg class=${`icon icon-${name}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

/** The mark: lines of a queue, the first of them taken. */
export function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
    <rect width="32" height="32" rx="7" /><path d="M7 10h18M7 16h12M7 22h7" /></svg>`;
}

/**
 * A button that is an icon; its label is said, and shown when pointed at.
 * @param {{name: string, label: string, onClick: (event: any) => void, disabled?: boolean, class?: string}} props
 */
export function IconButton({ name, label, onClick, disabled = false, class: kind = "" }) {
  return html`<button type="button" class=${`icon-button ${kind}`} aria-label=${label} title=${label} disabled=${disabled} onClick=${onClick}><${Icon} name=${name} /></button>`;
}
