// The page: starts the session and the stream, and draws the header and the page of the path.
import { Command, Menu, Problem } from "./components/common.js";
import * as dialogs from "./components/dialogs.js";
import { Icon, IconButton, Mark } from "./components/icons.js";
import * as jobActions from "./components/job-actions.js";
import * as lazy from "./components/lazy.js";
import * as toasts from "./components/toasts.js";
import { clock, span } from "./core/format.js";
import * as keys from "./core/keys.js";
import * as router from "./core/router.js";
import * as session from "./core/session.js";
import * as state from "./core/state.js";
import * as themes from "./core/themes.js";
import { ROUTES, find } from "./routes.js";
import { effect, html, render, useEffect, useRef, useState } from "./vendor/ui.js";

/** @typedef {(props: any) => any} Component */

function App() {
  const status = session.status.value;
  if (status === "unknown") return null;
  if (status === "out") return html`<${Login} />`;
  return html`<${Header} />
    <${Page} />
    <${dialogs.Dialogs} />
    <${toasts.Toasts} />`;
}

/** The top of every page: the machine, navigation, whether the page is live, search, a new job, and a menu. */
function Header() {
  const { value: hello } = state.hello;
  const lit = find(router.place.value.path)?.route;
  const isPaused = state.queue.value.paused;
  const current = useRef(/** @type {HTMLAnchorElement | null} */ (null));
  // On a phone the tabs scroll: keep the current one visible.
  useEffect(() => current.current?.scrollIntoView({ block: "nearest", inline: "center" }), [lit]);
  return html`<header class="top">
    <a class="host" href="/"><${Mark} /><span>dibs${hello && html` <small>· ${hello.host}</small>`}</span></a>
    <nav aria-label="Pages">
      ${ROUTES.filter((one) => one.nav).map((one) => {
        const isCurrent = lit && (lit.under ?? lit.path) === one.path;
        return html`<a key=${one.path} ref=${isCurrent ? current : null} href=${one.path} aria-current=${isCurrent ? "page" : null}>${one.nav}</a>`;
      })}
    </nav>
    <div class="tools">
      <${Live} />
      <button type="button" class="find-button" onClick=${lazy.palette} aria-label="Search (Ctrl K)" title="Search (Ctrl K)"><${Icon} name="search" /><span>Search</span><kbd>Ctrl K</kbd></button>
      <${IconButton} name="help" label="Keyboard shortcuts (?)" onClick=${lazy.help} />
      <button type="button" class="primary" onClick=${() => void lazy.submit()}><${Icon} name="plus" />New job</button>
      <${Menu} label="Menu" icon="more">
        ${hello && html`<div class="said">${hello.user} · dibs ${hello.version}</div>`}
        ${isPaused
          ? html`<button type="button" onClick=${() => void jobActions.pauseQueue(false)}><${Icon} name="play" />Resume queue</button>`
          : html`<button type="button" onClick=${() => void jobActions.askPause()}><${Icon} name="pause" />Pause queue</button>`}
        <button type="button" onClick=${themes.next}><${Icon} name="colours" />Colours: ${themes.chosen.value ?? "system"}</button>
        <button type="button" onClick=${lazy.help}><${Icon} name="help" />Keyboard shortcuts</button>
        <a href="/settings"><${Icon} name="gear" />Settings</a>
      </${Menu}>
    </div>
  </header>
  ${isPaused && html`<div class="banner" role="status">The queue is paused: running jobs continue, nothing new starts.
    <button type="button" class="small" onClick=${() => void jobActions.pauseQueue(false)}>Resume</button></div>`}
  <${Gone} />`;
}

/** The status dot, with its text. */
function Live() {
  const { state: word, retryAt } = state.connection.value;
  const wait = Math.max(0, Math.ceil((retryAt - state.now.value) / 1000));
  const text = word === "live" ? "live" : word === "connecting" ? "connecting" : `reconnecting${wait ? ` in ${wait} s` : ""}`;
  return html`<span class=${`live is-${word}`} role="status"><i></i>${text}</span>`;
}

/** The banner of a page whose data is outdated. */
function Gone() {
  if (!state.isStale.value) return null;
  const since = new Date(state.connection.value.since).toISOString();
  return html`<div class="banner bad" role="alert">
    <span>The daemon has not answered since ${clock(since, state.now.value)} (${span((state.now.value - state.connection.value.since) / 1000)}).
    This page shows the last known state. Running jobs continue.</span>
  </div>`;
}

/** The page without a token: one sentence and the command that helps. */
function Login() {
  return html`<main class="login">
    <h1 class="host"><${Mark} /> dibs</h1>
    ${session.trouble.value && html`<p role="alert">${session.trouble.value}</p>`}
    <p>This page opens with a one-time link. Make one on the machine with the GPUs:</p>
    <${Command} text="dibs web" />
  </main>`;
}

function Page() {
  const { path } = router.place.value;
  const found = find(path);
  const [loaded, setLoaded] = useState(/** @type {{path: string, Component: Component} | null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const route = found?.route;
  useEffect(() => {
    setError(null);
    if (!route) return;
    Promise.all([route.load(), lazy.styles(route.styles ?? [])]).then(([{ default: Component }]) => setLoaded({ path: route.path, Component }), setError);
  }, [route]);
  const isLive = state.connection.value.state === "live";
  useEffect(() => {
    // The daemon stopped before the page's module was loaded; now it is back.
    if (error && isLive) location.reload();
  }, [isLive]);
  if (!found) return html`<main><h1>Page not found: ${path}</h1><p><a href="/">Overview</a></p></main>`;
  if (error) return html`<main><${Problem} error=${error} retry=${() => location.reload()} /></main>`;
  if (!loaded || loaded.path !== route?.path) return html`<main aria-busy="true"></main>`;
  const { Component } = loaded;
  return html`<main class=${state.isStale.value ? "stale" : ""}><h1 class="hidden">${found.title}</h1><${Component} key=${path} ...${found.names} /></main>`;
}

/** The title of the tab: the page, and how many jobs failed while the tab was hidden. */
function keepTitle() {
  const icon = /** @type {HTMLLinkElement} */ (document.getElementById("icon"));
  const plain = icon.href;
  effect(() => {
    const failures = state.unseenFailures.value;
    const title = find(router.place.value.path)?.title ?? "dibs";
    document.title = `${failures ? `(${failures} failed) ` : ""}${title} · ${state.hello.value?.host ?? "dibs"}`;
    icon.href = failures ? "/static/icon-failed.svg" : plain;
  });
}

const SHORTCUTS = [
  { keys: "Ctrl+k", does: "Search pages, jobs and actions", run: () => void lazy.palette() },
  { keys: "/", does: "Search pages, jobs and actions", run: () => void lazy.palette() },
  { keys: "n", does: "New job", run: () => void lazy.submit() },
  { keys: "u", does: "Undo the last action", run: toasts.undoNewest },
  ...ROUTES.filter((one) => one.key).map((one) => ({ keys: one.key ?? "", does: `Go to ${one.nav}`, run: () => router.go(one.path) })),
  { keys: "?", does: "Show the shortcuts", run: () => void lazy.help() },
];

keys.add(SHORTCUTS);
keys.begin();
router.begin();
keepTitle();
state.begin();
void lazy.notices();
render(html`<${App} />`, /** @type {Element} */ (document.getElementById("page")));
