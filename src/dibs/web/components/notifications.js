// Browser notifications about jobs that end while the page is hidden. Off until enabled in Settings.
import * as router from "../core/router.js";
import * as state from "../core/state.js";
import { signal } from "../vendor/ui.js";
import { NOTICES } from "./lazy.js";

/** @typedef {import("../core/types.js").JobEvent} JobEvent */

/** Ends that are notified one by one; more at once are one notification. */
export const MOST = 3;

/** Whether they are enabled. */
export const isOn = signal(globalThis.localStorage?.getItem(NOTICES) === "on");

/**
 * Return the notifications for some events: an equal tag replaces one, so that several tabs notify of an end once.
 * @param {readonly JobEvent[]} events @returns {{title: string, tag: string, path: string}[]}
 */
export function noticesOf(events) {
  const ends = state.ends(events);
  if (ends.length <= MOST) return ends.map(({ job, state: word, attempt }) => ({ title: `Job ${job}: ${word}`, tag: `dibs-${job}-${attempt}`, path: `/job/${job}` }));
  /** @type {Map<string, number>} */
  const often = new Map();
  for (const { state: word } of ends) if (word) often.set(word, (often.get(word) ?? 0) + 1);
  const words = [...often].map(([word, many]) => `${many} ${word}`).join(", ");
  return [{ title: `${ends.length} jobs ended: ${words}`, tag: `dibs-${ends[0].job}-${ends.length}`, path: "/jobs" }];
}

/** @param {JobEvent[]} events */
function tell(events) {
  if (!isOn.value || document.visibilityState !== "hidden" || Notification.permission !== "granted") return;
  for (const { title, tag, path } of noticesOf(events)) {
    const notice = new Notification(title, { tag, body: state.hello.value?.host });
    notice.onclick = () => {
      window.focus();
      router.go(path);
      notice.close();
    };
  }
}

let isBegun = false;

/** Notify about ends from now on, if enabled; once per tab. */
export function begin() {
  if (isBegun || typeof Notification === "undefined") return;
  isBegun = true;
  state.onEvents(tell);
}

/**
 * Enable or disable notifications; resolves to the reason if that failed, or null.
 * @param {boolean} wanted @returns {Promise<string | null>}
 */
export async function choose(wanted) {
  if (wanted) {
    if (typeof Notification === "undefined") return "Notifications are not available: browsers allow them only for 127.0.0.1, localhost and https.";
    if ((await Notification.requestPermission()) !== "granted") return "Notifications are blocked in the browser settings for this site.";
    begin();
  }
  isOn.value = wanted;
  if (wanted) localStorage.setItem(NOTICES, "on");
  else localStorage.removeItem(NOTICES);
  return null;
}
