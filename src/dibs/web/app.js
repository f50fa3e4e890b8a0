// The page: begins everything that lasts, and draws the header and the page of the path.
import * as dialogs from "./components/dialogs.js";
import { Header } from "./components/header.js";
import * as keys from "./core/keys.js";
import * as later from "./components/later.js";
import { Command, Problem } from "./components/parts.js";
import * as router from "./core/router.js";
import { ROUTES, find } from "./routes.js";
import * as session from "./core/session.js";
import * as state from "./core/state.js";
import * as toasts from "./components/toasts.js";
import { effect, html, render, useEffect, useState } from "./vendor/ui.js";

/** @typedef {(props: any) => any} Component */

function App() {
  const standing = session.standing.value;
  if (standing === "unknown") return null;
  if (standing === "out") return html`<${Login} />`;
  return html`<${Header} />
    <${Page} />
    <${dialogs.Dialogs} />
    <${toasts.Toasts} />`;
}

/** What is shown to one without a token: one sentence and the command that helps. */
function Login() {
  return html`<main class="login">
    <h1>dibs</h1>
    ${session.trouble.value && html`<p role="alert">${session.trouble.value}</p>`}
    <p>This page opens with a link that is good for one time. Make one on the machine with the GPUs:</p>
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
    Promise.all([route.load(), later.styles(route.styles ?? [])]).then(([{ default: Component }]) => setLoaded({ path: route.path, Component }), setError);
  }, [route]);
  const isLive = state.connection.value.state === "live";
  useEffect(() => {
    // The daemon went before the page's module was here; now it is back.
    if (error && isLive) location.reload();
  }, [isLive]);
  if (!found) return html`<main><h1>There is nothing at ${path}</h1><p><a href="/">Overview</a></p></main>`;
  if (error) return html`<main><${Problem} error=${error} retry=${() => location.reload()} /></main>`;
  if (!loaded || loaded.path !== route?.path) return html`<main aria-busy="true"></main>`;
  const { Component } = loaded;
  return html`<main class=${state.isStale.value ? "stale" : ""}><h1 class="hidden">${found.title}</h1><${Component} key=${path} ...${found.names} /></main>`;
}

/** The tab says where it is, and how many jobs failed while nobody looked. */
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
  { keys: "Ctrl+k", does: "Find a job or do something", run: () => void later.palette() },
  { keys: "/", does: "Find a job or do something", run: () => void later.palette() },
  { keys: "n", does: "Submit a job", run: () => void later.submit() },
  { keys: "u", does: "Undo the last thing that can be", run: toasts.undoNewest },
  ...ROUTES.filter((one) => one.key).map((one) => ({ keys: one.key ?? "", does: `Go to ${one.nav}`, run: () => router.go(one.path) })),
  { keys: "?", does: "Show the shortcuts", run: () => void later.help() },
];

keys.add(SHORTCUTS);
keys.begin();
router.begin();
keepTitle();
state.begin();
void later.notices();
render(html`<${App} />`, /** @type {Element} */ (document.getElementById("page")));
