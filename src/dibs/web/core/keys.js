// Shortcuts: one table, shown by `?`. A page adds its own with `useKeys` for as long as it is shown.
import { signal, useLayoutEffect } from "../vendor/ui.js";

/**
 * @typedef {object} Shortcut
 * @property {string} keys as KeyboardEvent.key names them; two with a space are typed one after the other: "g j"
 * @property {string} does what the help says
 * @property {(event: KeyboardEvent) => void} run
 * @property {string} [group] its heading in the help
 */

/** @type {import("../vendor/ui.js").Signal<Shortcut[]>} */
export const shortcuts = signal(/** @type {Shortcut[]} */ ([]));

/** Milliseconds within which the second of two keys must come. */
const SECOND_KEY_MS = 1500;

/** @param {Shortcut[]} more @returns {() => void} how to take them away */
export function add(more) {
  shortcuts.value = [...shortcuts.value, ...more];
  return () => (shortcuts.value = shortcuts.value.filter((one) => !more.includes(one)));
}

/** Have shortcuts while a component is shown. @param {Shortcut[]} mine @param {unknown[]} deps when they change */
export function useKeys(mine, deps) {
  // Before the next paint: a key must never act on an outdated selection.
  useLayoutEffect(() => add(mine), deps);
}

/**
 * Return how a key press is written in the table: "Ctrl+k", "?", "ArrowDown".
 * @param {{key: string, ctrlKey: boolean, metaKey: boolean, altKey: boolean}} event
 */
export function written(event) {
  const key = event.key === " " ? "Space" : event.key;
  return `${event.ctrlKey || event.metaKey ? "Ctrl+" : ""}${event.altKey ? "Alt+" : ""}${key}`;
}

/**
 * Return the shortcut that a key means after an earlier one, or whether it begins one.
 * @param {readonly Shortcut[]} table @param {string} before "" or the key before @param {string} key
 * @returns {{run: Shortcut | null, isBegin: boolean}}
 */
export function find(table, before, key) {
  // The newest wins: a page may override a key.
  const newest = table.toReversed();
  const run = newest.find((one) => one.keys === `${before} ${key}`) ?? newest.find((one) => one.keys === key) ?? null;
  return { run, isBegin: !run && table.some((one) => one.keys.startsWith(`${key} `)) };
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Listen to the keyboard. Called once, by app.js. */
export function begin() {
  let before = "";
  let at = 0;
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || /^(Control|Shift|Alt|Meta)$/.test(event.key)) return;
    const key = written(event);
    const isCommand = key.startsWith("Ctrl+");
    // In a field keys are text, and a dialog handles its own keys.
    if ((isTyping(event.target) && !isCommand) || document.querySelector("dialog[open]")) return;
    const { run, isBegin } = find(shortcuts.value, event.timeStamp - at < SECOND_KEY_MS ? before : "", key);
    before = isBegin ? key : "";
    at = event.timeStamp;
    if (run) {
      event.preventDefault();
      run.run(event);
    }
  });
}
