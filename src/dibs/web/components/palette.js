// The palette (Ctrl K or /): go to a page or a job, or do something, by typing a part of its name.
import * as api from "../core/api.js";
import { go } from "../core/router.js";
import * as state from "../core/state.js";
import * as themes from "../core/themes.js";
import { ROUTES } from "../routes.js";
import { html, useEffect, useState } from "../vendor/ui.js";
import { Pill } from "./common.js";
import * as dialogs from "./dialogs.js";
import * as jobActions from "./job-actions.js";
import * as lazy from "./lazy.js";
import * as toasts from "./toasts.js";

/** @typedef {{text: string, word?: string, run: () => void}} Entry */

/** What the palette offers besides jobs; pages add theirs with `offer`. @type {Set<() => Entry[]>} */
const offers = new Set();

/** Add entries for as long as a page is shown; returns how to take them away. @param {() => Entry[]} entries */
export function offer(entries) {
  offers.add(entries);
  return () => void offers.delete(entries);
}

export function open() {
  dialogs.open(() => html`<${Palette} />`);
}

/** @returns {Entry[]} */
function fixed() {
  const isPaused = state.queue.value.paused;
  return [
    ...[...offers].flatMap((entries) => entries()),
    { text: "New job", run: () => void lazy.submit() },
    ...ROUTES.filter((one) => one.nav).map((one) => ({ text: `Go to ${one.nav}`, run: () => go(one.path) })),
    { text: isPaused ? "Resume the queue" : "Pause the queue", run: () => void (isPaused ? jobActions.pauseQueue(false) : jobActions.askPause()) },
    { text: "Change colours (light, dark, system)", run: themes.next },
    { text: `Change the time for Undo (now ${toasts.undoFor.value} s)`, run: toasts.nextUndoFor },
  ];
}

/**
 * Return the entries that contain all typed words.
 * @template {{text: string}} T
 * @param {readonly T[]} entries @param {string} typed
 */
export function filtered(entries, typed) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return entries.filter((one) => words.every((word) => one.text.toLowerCase().includes(word)));
}

function Palette() {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const jobs = useJobs(typed);
  const entries = [...filtered(fixed(), typed), ...jobs].slice(0, 12);
  const current = Math.min(at, entries.length - 1);
  /** @param {Entry | undefined} entry */
  const run = (entry) => {
    if (!entry) return;
    dialogs.close();
    entry.run();
  };
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((current + step + entries.length) % Math.max(1, entries.length));
    else if (event.key === "Enter") run(entries[current]);
    else return;
    event.preventDefault();
  };
  /** @param {InputEvent & {currentTarget: HTMLInputElement}} event */
  const type = (event) => {
    setTyped(event.currentTarget.value);
    setAt(0);
  };
  return html`<${dialogs.Dialog} title="Search">
    <input type="text" class="wide" autofocus role="combobox" aria-expanded="true" aria-controls="palette" aria-activedescendant=${`entry-${current}`}
      aria-label="A page, a job's number or name, or an action" placeholder="A page, a job's number or name, or an action" value=${typed} onInput=${type} onKeyDown=${key} />
    <ul id="palette" class="palette" role="listbox" aria-label="Results">
      ${entries.map(
        (one, i) => html`<li key=${one.text} id=${`entry-${i}`} role="option" aria-selected=${i === current} onClick=${() => run(one)} onMouseMove=${() => setAt(i)}>
          <span>${one.text}</span>${one.word && html`<${Pill} word=${one.word} />`}
        </li>`,
      )}
    </ul>
    ${!entries.length && html`<p class="quiet">No page, job or action matches.</p>`}
  </${dialogs.Dialog}>`;
}

/** Jobs whose number or name is typed. @param {string} typed @returns {Entry[]} */
function useJobs(typed) {
  const [found, setFound] = useState(/** @type {Entry[]} */ ([]));
  useEffect(() => {
    const text = typed.trim().replace(/^#/, "");
    if (!text) return setFound([]);
    const leaving = new AbortController();
    /** @param {import("../core/types.js").Job} job */
    const entry = (job) => ({ text: `#${job.id} ${job.name}`, word: job.state, run: () => go(`/job/${job.id}`) });
    const ask = async () => {
      const number = /^\d{1,18}$/.test(text) ? [await one(Number(text), leaving.signal)] : [];
      const { jobs } = await api.get("/v1/jobs", { query: { limit: 8, text }, signal: leaving.signal });
      const all = [...number.flat(), .../** @type {import("../core/types.js").Job[]} */ (jobs)];
      setFound(all.filter((job, i) => all.findIndex((other) => other.id === job.id) === i).map(entry));
    };
    ask().catch((error) => {
      if (!api.isAborted(error)) setFound([{ text: api.errorText(error), run: () => {} }]);
    });
    return () => leaving.abort();
  }, [typed]);
  return found;
}

/** The job of that number, if there is one. @param {number} id @param {AbortSignal} signal @returns {Promise<import("../core/types.js").Job[]>} */
async function one(id, signal) {
  try {
    return [await api.get(`/v1/jobs/${id}`, { signal })];
  } catch (error) {
    if (error instanceof api.ApiError && error.status === 404) return [];
    throw error;
  }
}
