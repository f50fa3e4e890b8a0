// The address: the path, and every filter, sort, tab and range in the query, so that each view has a link.
import { computed, signal } from "../vendor/ui.js";

/** @typedef {{path: string, search: string, hash: string}} Place */

/** @returns {Place} */
const here = () => ({ path: location.pathname, search: location.search, hash: location.hash });

/** @type {import("../vendor/ui.js").Signal<Place>} */
export const place = signal(typeof location === "undefined" ? { path: "/", search: "", hash: "" } : here());
/** The parameters of the query. */
export const query = computed(() => new URLSearchParams(place.value.search));

/**
 * Return the values of the `{names}` of a pattern in a path, or null if it does not match: match("/job/{id}", "/job/7").
 * @param {string} pattern @param {string} path
 * @returns {Record<string, string> | null}
 */
export function match(pattern, path) {
  const wanted = pattern.split("/");
  const parts = path.replace(/(.)\/+$/, "$1").split("/");
  if (wanted.length !== parts.length) return null;
  /** @type {Record<string, string>} */
  const found = {};
  for (const [i, word] of wanted.entries()) {
    const name = word.match(/^\{(\w+)\}$/)?.[1];
    if (name && parts[i]) found[name] = decode(parts[i]);
    else if (word !== parts[i]) return null;
  }
  return found;
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Return a query with some parameters changed; null or "" removes one.
 * @param {string} search @param {Record<string, string | number | null | undefined>} changes
 */
export function changed(search, changes) {
  const words = new URLSearchParams(search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") words.delete(name);
    else words.set(name, String(value));
  }
  const text = words.toString();
  return text ? `?${text}` : "";
}

/**
 * Go to an address of the page. With `replace` the back button does not return here.
 * @param {string} address @param {{replace?: boolean}} [options]
 */
export function go(address, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  const before = place.value.path;
  place.value = here();
  if (place.value.path !== before) scrollTo(0, 0);
}

/** Change words of the query in place. @param {Record<string, string | number | null | undefined>} changes @param {{replace?: boolean}} [options] */
export function setQuery(changes, options = { replace: true }) {
  // Read the current address: the code of the link was removed from it without a navigation.
  go(location.pathname + changed(location.search, changes) + location.hash, options);
}

/** Follow links to the page's own paths without loading it anew, and the back button. Called once, by app.js. */
export function begin() {
  addEventListener("popstate", () => (place.value = here()));
  addEventListener("hashchange", () => (place.value = here()));
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || /^\/(v1|static|metrics)(\/|$)/.test(link.pathname)) return;
    event.preventDefault();
    go(link.pathname + link.search + link.hash);
  });
}
