// Choosing light or dark against the system; theme.js applies the choice before the first paint, and in other tabs.
import { signal } from "../vendor/ui.js";

const KEY = "dibs.theme";
const ORDER = [null, "light", "dark"];

/** "light", "dark", or null for the system's. */
export const chosen = signal(localStorage.getItem(KEY));

/** Increases when the colours change, so that canvases are redrawn. */
export const changes = signal(0);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (changes.value += 1));

/** Switch to the next choice: the system's, light, dark. */
export const next = () => choose(ORDER[(ORDER.indexOf(chosen.value) + 1) % ORDER.length]);

/** @param {string | null} choice "light", "dark", or null for the system's */
export function choose(choice) {
  chosen.value = choice;
  if (choice) {
    localStorage.setItem(KEY, choice);
    document.documentElement.dataset.theme = choice;
  } else {
    localStorage.removeItem(KEY);
    delete document.documentElement.dataset.theme;
  }
  changes.value += 1;
}

/**
 * Return the colours of app.css by name, for canvases: colour("run") is --run, as it is in the present theme.
 * @returns {(name: string) => string}
 */
export function colours() {
  /** @type {Map<string, string>} */
  const known = new Map();
  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  // Computed at once and the element removed: what is asked for later is computed by a new one.
  queueMicrotask(() => probe.remove());
  return (name) => {
    const found = known.get(name) ?? computed(probe, name);
    known.set(name, found);
    return found;
  };
}

/** Tell whether the page is dark now. */
export const isDark = () => (chosen.value ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

/** Return a variable as the colour that it is: it has a light and a dark value. @param {HTMLElement} probe @param {string} name */
function computed(probe, name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}
