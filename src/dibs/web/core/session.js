// The session: the one-time code of the link is exchanged for a token, which is kept in this tab and in the shared
// worker, never in a URL or a cookie.
import { signal } from "../vendor/ui.js";
import * as router from "./router.js";

const KEY = "dibs.token";

/** "unknown" until the worker has answered; "in" with a token; "out" without. @type {import("../vendor/ui.js").Signal<"unknown"|"in"|"out">} */
export const status = signal("unknown");
/** Why there is no token, if there was one or a link: one sentence. */
export const trouble = signal("");

/** Return the token of this tab, or null. */
export function token() {
  return sessionStorage.getItem(KEY);
}

/** @param {string} found */
export function enter(found) {
  sessionStorage.setItem(KEY, found);
  trouble.value = "";
  status.value = "in";
}

/** Forget a token that the daemon refused. @param {string} why */
export function leave(why) {
  sessionStorage.removeItem(KEY);
  trouble.value = why;
  status.value = "out";
}

/**
 * Return the code in a fragment such as `#code=abc`, or null.
 * @param {string} fragment
 */
export function codeOf(fragment) {
  return new URLSearchParams(fragment.replace(/^#/, "")).get("code");
}

/**
 * Find a token: by the code of the link, in this tab, or from another tab; `status` has the result.
 * @param {string | null} fromOthers what the shared worker knows
 */
export async function begin(fromOthers) {
  const code = codeOf(location.hash);
  // In any case the code is removed from the address bar and the history.
  if (code) router.go(location.pathname + location.search, { replace: true });
  const found = code ? await exchange(code) : null;
  // The worker drops a refused token; the one in this tab may be older.
  const best = found ?? fromOthers ?? token();
  if (best) enter(best);
  else status.value = "out";
}

/** @param {string} code @returns {Promise<string | null>} */
async function exchange(code) {
  try {
    const answer = await fetch("/v1/session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code }),
    });
    const said = await answer.json();
    if (answer.ok) return said.token;
    trouble.value = said.error?.message ?? `The daemon answered ${answer.status}.`;
  } catch {
    trouble.value = "The daemon did not answer.";
  }
  return null;
}
