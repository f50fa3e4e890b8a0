// The top of every page: host, pages, whether what is shown is live, pausing the queue, the user.
import * as acting from "./acting.js";
import * as later from "./later.js";
import { place } from "../core/router.js";
import { ROUTES, find } from "../routes.js";
import * as state from "../core/state.js";
import * as themes from "../core/themes.js";
import { html } from "../vendor/ui.js";
import { clock, span } from "../core/words.js";

export function Header() {
  const { value: hello } = state.hello;
  const lit = find(place.value.path)?.route;
  const isPaused = state.queue.value.paused;
  return html`<header class="top">
    <a class="host" href="/">${hello?.host ?? "dibs"}</a>
    <nav aria-label="Pages">
      ${ROUTES.filter((one) => one.nav).map(
        (one) => html`<a key=${one.path} href=${one.path} aria-current=${lit && (lit.under ?? lit.path) === one.path ? "page" : null}>${one.nav}</a>`,
      )}
    </nav>
    <div class="tools">
      <${Live} />
      <button type="button" onClick=${() => acting.pauseQueue(!isPaused)}>${isPaused ? "Resume queue" : "Pause queue"}</button>
      <button type="button" class="link quiet" onClick=${later.palette} aria-label="Find or do something (Ctrl K)" title="Find or do something (Ctrl K)">⌕</button>
      <button type="button" class="link quiet" onClick=${themes.next} aria-label=${`Colours: ${themes.chosen.value ?? "as the system"}`} title=${`Colours: ${themes.chosen.value ?? "as the system"}`}>◐</button>
      ${hello && html`<span class="user">${hello.user}</span>`}
    </div>
  </header>
  ${isPaused && html`<div class="banner" role="status">The queue is paused: what runs goes on, nothing new starts.</div>`}
  <${Gone} />`;
}

/** The dot, with its word. */
function Live() {
  const { state: word, retryAt } = state.connection.value;
  const wait = Math.max(0, Math.ceil((retryAt - state.now.value) / 1000));
  const text = word === "live" ? "live" : word === "connecting" ? "connecting" : `reconnecting${wait ? ` in ${wait} s` : ""}`;
  return html`<span class=${`live is-${word}`} role="status"><i></i>${text}</span>`;
}

/** What is to be known about a page that shows the past. */
function Gone() {
  if (!state.isStale.value) return null;
  const since = new Date(state.connection.value.since).toISOString();
  return html`<div class="banner bad" role="alert">
    The daemon does not answer since ${clock(since, state.now.value)} (${span((state.now.value - state.connection.value.since) / 1000)}).
    What you see is what was last known. Running jobs go on without it.
  </div>`;
}
