// The page: begins everything that lasts, and draws the header and the page of the path.
import * as dialogs from "./dialogs.js";
import { Header, Help } from "./header.js";
import * as keys from "./keys.js";
import { Login } from "./login.js";
import * as palette from "./palette.js";
import { Problem } from "./parts.js";
import * as router from "./router.js";
import { ROUTES, find } from "./routes.js";
import * as session from "./session.js";
import * as state from "./state.js";
import * as submitting from "./submitting.js";
import * as toasts from "./toasts.js";
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

function Page() {
  const { path } = router.place.value;
  const found = find(path);
  const [loaded, setLoaded] = useState(/** @type {{path: string, Component: Component} | null} */ (null));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const route = found?.route;
  useEffect(() => {
    setError(null);
    route?.load().then(({ default: Component }) => setLoaded({ path: route.path, Component }), setError);
  }, [route]);
  if (!found) return html`<main><h1>There is nothing at ${path}</h1><p><a href="/">Overview</a></p></main>`;
  if (error) return html`<main><${Problem} error=${error} retry=${() => location.reload()} /></main>`;
  if (!loaded || loaded.path !== route?.path) return html`<main aria-busy="true"></main>`;
  const { Component } = loaded;
  return html`<main class=${state.isStale.value ? "stale" : ""}><h1 class="hidden">${found.title}</h1><${Component} key=${path} ...${found.names} /></main>`;
}

/** The tab says where it is, and how many jobs failed while nobody looked. */
function keepTitle() {
  effect(() => {
    const failures = state.unseenFailures.value;
    const title = find(router.place.value.path)?.title ?? "dibs";
    document.title = `${failures ? `(${failures} failed) ` : ""}${title} · ${state.hello.value?.host ?? "dibs"}`;
    const icon = /** @type {HTMLLinkElement} */ (document.getElementById("icon"));
    icon.href = failures ? "/static/icon-failed.svg" : "/static/icon.svg";
  });
}

const SHORTCUTS = [
  { keys: "Ctrl+k", does: "Find a job or do something", run: palette.open },
  { keys: "/", does: "Find a job or do something", run: palette.open },
  { keys: "n", does: "Submit a job", run: () => void submitting.open() },
  { keys: "u", does: "Undo the last thing that can be", run: toasts.undoNewest },
  ...ROUTES.filter((one) => one.key).map((one) => ({ keys: one.key ?? "", does: `Go to ${one.nav}`, run: () => router.go(one.path) })),
  { keys: "?", does: "Show the shortcuts", run: () => dialogs.open(() => html`<${Help} shortcuts=${keys.shortcuts.value} />`) },
];

keys.add(SHORTCUTS);
keys.begin();
router.begin();
keepTitle();
palette.offer(() => [{ text: "Submit a job", run: () => void submitting.open() }]);
state.begin();
render(html`<${App} />`, /** @type {Element} */ (document.getElementById("page")));
