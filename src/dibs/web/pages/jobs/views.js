// Saved views of the list: filter, sort and columns under a name, kept in this browser.
import { Menu } from "../../components/common.js";
import * as dialogs from "../../components/dialogs.js";
import { Field } from "../../components/common.js";
import { Icon } from "../../components/icons.js";
import * as router from "../../core/router.js";
import { html, signal, useState } from "../../vendor/ui.js";
import { chosen, choose } from "./columns.js";

/** @typedef {{name: string, search: string, columns?: string[]}} View */

const KEY = "dibs.views";
/** Views that everybody has. @type {View[]} */
const GIVEN = [
  { name: "Failed today", search: "?state=bad&since=1d&sort=-finished" },
  { name: "Longest running", search: "?state=active&sort=-duration" },
  { name: "Finished today", search: "?state=finished&since=1d&sort=-finished" },
];

/** @returns {View[]} */
function remembered() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one?.name === "string" && typeof one?.search === "string") : [];
  } catch {
    // Another version of the page may have written something else.
    return [];
  }
}

const saved = signal(remembered());

/** @param {View[]} views */
function keep(views) {
  saved.value = views;
  localStorage.setItem(KEY, JSON.stringify(views));
}

/** The menu of views: those that are given, one's own, and a way to keep the present one. */
export function Views() {
  const open = (/** @type {View} */ view) => () => {
    if (view.columns) choose(view.columns);
    router.go(`/jobs${view.search}`);
  };
  return html`<${Menu} label="Views" text="Views" icon="star" class="small">
    ${[...saved.value, ...GIVEN].map((view) => html`<button type="button" key=${view.name} onClick=${open(view)}>${view.name}</button>`)}
    <button type="button" onClick=${() => dialogs.open(() => html`<${Save} />`)}><${Icon} name="plus" />Save this view…</button>
    ${saved.value.map((view) => html`<button type="button" key=${`x ${view.name}`} class="quiet" onClick=${() => keep(saved.value.filter((one) => one !== view))}><${Icon} name="close" />Delete “${view.name}”</button>`)}
  </${Menu}>`;
}

function Save() {
  const [name, setName] = useState("");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!name.trim()) return;
    const view = { name: name.trim().slice(0, 60), search: location.search, columns: chosen.value };
    keep([view, ...saved.value.filter((one) => one.name !== view.name)]);
    dialogs.close();
  };
  return html`<${dialogs.Dialog} title="Save this view">
    <form onSubmit=${submit}>
      <${Field} label="Name" hint="Keeps the filter, the order and the columns, in this browser."><input type="text" class="wide" required autofocus maxlength="60" value=${name} onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)} /></${Field}>
      <footer><button type="button" onClick=${dialogs.close}>Back</button><button class="primary" disabled=${!name.trim()}>Save</button></footer>
    </form>
  </${dialogs.Dialog}>`;
}
