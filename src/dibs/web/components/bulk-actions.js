// One action for the selected jobs: shows their number before and the result after, with Undo where possible.
import { plural } from "../core/format.js";
import * as selection from "../core/selection.js";
import { html, useState } from "../vendor/ui.js";
import { Field } from "./common.js";
import * as dialogs from "./dialogs.js";
import * as jobActions from "./job-actions.js";

/** @typedef {import("../pages/jobs/job-list.js").Ids} Ids */

/** @type {{verb: string, text: string, key: string, question: (jobs: string) => string}[]} */
export const VERBS = [
  { verb: "cancel", text: "Cancel", key: "c", question: (jobs) => `Cancel ${jobs}? Running jobs are stopped. You can undo this for 8 seconds.` },
  { verb: "retry", text: "Retry", key: "r", question: (jobs) => `Retry ${jobs}? Jobs that succeeded or have not finished are not changed.` },
  { verb: "hold", text: "Hold", key: "h", question: (jobs) => `Hold ${jobs}? Only waiting jobs are held.` },
  { verb: "unhold", text: "Unhold", key: "H", question: (jobs) => `Release ${jobs}?` },
];

/** Return the ids that are selected. @param {selection.Picks} picked @param {Ids} ids */
export function selected(picked, ids) {
  if (!picked.isInverse) return [...picked.ids];
  return Array.from({ length: ids.length }, (_, n) => ids.at(n)).filter((id) => selection.has(picked, id));
}

/**
 * Apply a verb to jobs; ask first if there are several.
 * @param {string} verb @param {number[]} ids
 */
export async function act(verb, ids) {
  const known = VERBS.find((one) => one.verb === verb);
  if (!known || !ids.length) return;
  const jobs = plural(ids.length, "job");
  if (ids.length > 1 && !(await dialogs.confirm({ title: `${known.text} ${jobs}`, text: known.question(jobs), yes: `${known.text} ${jobs}` }))) return;
  await jobActions.act(verb, ids);
}

/** Ask for a priority and give it to jobs. @param {number[]} ids @param {number} [present] */
export function askPriority(ids, present = 0) {
  dialogs.open(() => html`<${Priority} ids=${ids} present=${present} />`);
}

/** @param {{ids: number[], present: number}} props */
function Priority({ ids, present }) {
  const [value, setValue] = useState(String(present));
  const isWhole = /^-?\d{1,6}$/.test(value.trim());
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    if (!isWhole) return;
    dialogs.close();
    void jobActions.act("edit", ids, { changes: { priority: Number(value) } });
  };
  return html`<${dialogs.Dialog} title=${`Priority of ${jobActions.jobsNamed(ids)}`}>
    <form onSubmit=${submit}>
      <${Field} label="Priority" hint="Higher runs first. Default: 0. Only waiting jobs can be changed.">
        <input type="number" required step="1" autofocus value=${value} onInput=${(/** @type {InputEvent} */ event) => setValue(/** @type {HTMLInputElement} */ (event.target).value)} />
      </${Field}>
      <footer><button type="button" onClick=${dialogs.close}>Back</button><button class="primary" disabled=${!isWhole}>Set</button></footer>
    </form>
  </${dialogs.Dialog}>`;
}

/** Jobs that the page for comparing shows, at most. */
const MOST_COMPARED = 8;

/** What can be done to the selection. @param {{ids: Ids, picked: selection.Picks, clear: () => void}} props */
export function Bar({ ids, picked, clear }) {
  const chosen = () => selected(picked, ids);
  const many = selection.count(picked, ids.length);
  const isFew = many > 1 && many <= MOST_COMPARED;
  return html`<div class="bulk" role="toolbar" aria-label="Selected jobs">
    <strong>${plural(selection.count(picked, ids.length), "job")} selected</strong>
    ${VERBS.map((one) => html`<button type="button" key=${one.verb} class="small" onClick=${() => act(one.verb, chosen())}>${one.text}</button>`)}
    <button type="button" class="small" onClick=${() => askPriority(chosen())}>Priority…</button>
    ${isFew && html`<a class="button small" href=${`/compare?jobs=${chosen().join(",")}`}>Compare</a>`}
    <button type="button" class="link quiet" onClick=${clear}>Clear</button>
  </div>`;
}
