// Parts that are loaded on first use: the first load has to stay small.
import { html } from "../vendor/ui.js";
import * as dialogs from "./dialogs.js";

/** Open the submit dialog. @param {Record<string, unknown>} [draft] fields of a submission to begin with: a retry with changes */
export async function submit(draft = {}) {
  const [{ default: Submit }] = await Promise.all([import("./submit-dialog.js"), styles(["components/submit.css"])]);
  dialogs.open(() => html`<${Submit} draft=${draft} />`);
}

/** Open the dialog for more points of a sweep. @param {unknown} sweep @param {unknown} runs @param {unknown} model the run that the new ones are like */
export async function extend(sweep, runs, model) {
  const [{ default: Extend }] = await Promise.all([import("../pages/sweep/extend-dialog.js"), styles(["components/submit.css"])]);
  dialogs.open(() => html`<${Extend} sweep=${sweep} runs=${runs} model=${model} />`);
}

/** Open the palette. */
export async function palette() {
  (await import("./palette.js")).open();
}

/** The key in local storage for notifications enabled in Settings. */
export const NOTICES = "dibs.notices";

/** Notify about finished jobs, if enabled. */
export async function notices() {
  if (localStorage.getItem(NOTICES)) (await import("./notifications.js")).begin();
}

/** Show the current shortcuts. */
export async function help() {
  const { Help } = await import("./help.js");
  dialogs.open(() => html`<${Help} />`);
}

/** Resolve when style sheets of the page are there. @param {readonly string[]} names such as "pages/jobs.css" */
export async function styles(names) {
  await Promise.all(names.map(style));
}

/** @param {string} name @returns {Promise<unknown>} */
function style(name) {
  const href = `/static/${name}`;
  if (document.querySelector(`link[href="${href}"]`)) return Promise.resolve();
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = href;
  document.head.append(link);
  return new Promise((resolve, reject) => {
    link.onload = resolve;
    link.onerror = () => reject(new Error("The style sheet of this page did not load."));
  });
}
