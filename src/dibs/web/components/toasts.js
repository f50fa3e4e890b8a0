// Short messages at the bottom of the page, with Undo where something can still be undone.
import { html, signal, useEffect, useRef } from "../vendor/ui.js";

/**
 * @typedef {object} Toast
 * @property {number} id
 * @property {string} text
 * @property {"plain" | "bad"} kind
 * @property {number} forMs
 * @property {(() => void) | null} undo
 * @property {(isUndone: boolean) => void} gone
 */

const KEY = "dibs.undo_s";
/** Seconds for Undo: the default, and longer choices. */
const CHOICES_S = [8, 30, 300];
/** Seconds for Undo chosen in this browser. */
export const undoFor = signal(Number(globalThis.localStorage?.getItem(KEY)) || CHOICES_S[0]);
/** Milliseconds for which a message without Undo stays. */
const SHOWN_MS = 5000;
let newest = 0;

/** @type {import("../vendor/ui.js").Signal<Toast[]>} */
export const toasts = signal(/** @type {Toast[]} */ ([]));

/**
 * Show a message. `undo` adds the button; `gone` is called when it disappears, with whether it was undone.
 * @param {string} text
 * @param {{kind?: "plain" | "bad", undo?: () => void, gone?: (isUndone: boolean) => void}} [options]
 */
export function show(text, { kind = "plain", undo, gone = () => {} } = {}) {
  const forMs = undo || kind === "bad" ? undoFor.value * 1000 : SHOWN_MS;
  toasts.value = [...toasts.value, { id: (newest += 1), text, kind, forMs, undo: undo ?? null, gone }].slice(-4);
}

/** @param {Toast} toast @param {boolean} isUndone */
function dismiss(toast, isUndone) {
  if (!toasts.value.includes(toast)) return;
  toasts.value = toasts.value.filter((one) => one !== toast);
  if (isUndone) toast.undo?.();
  toast.gone(isUndone);
}

/** Switch to the next choice of the time for Undo. */
export function nextUndoFor() {
  undoFor.value = CHOICES_S[(CHOICES_S.indexOf(undoFor.value) + 1) % CHOICES_S.length];
  localStorage.setItem(KEY, String(undoFor.value));
  show(`Messages with Undo stay for ${undoFor.value} s.`);
}

/** Undo the newest action that can be undone. */
export function undoNewest() {
  const toast = toasts.value.findLast((one) => one.undo);
  if (toast) dismiss(toast, true);
}

/** All messages; once, in app.js. */
export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map((toast) => html`<${One} key=${toast.id} toast=${toast} />`)}
  </div>`;
}

/** @param {{toast: Toast}} props */
function One({ toast }) {
  const isHeld = useRef(false);
  useEffect(() => {
    // While the pointer or the focus is on it, it stays.
    let left = toast.forMs;
    const timer = setInterval(() => {
      if (!isHeld.current) left -= 250;
      if (left <= 0) dismiss(toast, false);
    }, 250);
    return () => clearInterval(timer);
  }, [toast]);
  /** @param {boolean} is */
  const hold = (is) => () => (isHeld.current = is);
  return html`<div class=${`toast ${toast.kind}`} onMouseEnter=${hold(true)} onMouseLeave=${hold(false)} onFocusIn=${hold(true)} onFocusOut=${hold(false)}>
    <span>${toast.text}</span>
    ${toast.undo && html`<button type="button" class="link" onClick=${() => dismiss(toast, true)}>Undo</button>`}
    <button type="button" class="link quiet" aria-label="Dismiss" onClick=${() => dismiss(toast, false)}>✕</button>
  </div>`;
}
