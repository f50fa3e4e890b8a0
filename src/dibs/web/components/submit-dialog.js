// The submit dialog: the command and its options, where and when it would start, and the equivalent command line.
import * as api from "../core/api.js";
import { count, plural, starts } from "../core/format.js";
import * as drafts from "../core/job-drafts.js";
import { go } from "../core/router.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useEffect, useState } from "../vendor/ui.js";
import { Command, Field, Problem } from "./common.js";
import { close, Dialog } from "./dialogs.js";
import * as toasts from "./toasts.js";

/** Milliseconds after the last key before the expected start is requested. */
const PAUSE_MS = 350;
const PRIORITIES = [["100", "urgent"], ["10", "high"], ["0", "normal"], ["-10", "low"]];

/** Where the browser keeps the folder and the environment of the last submission. */
const KEY = "dibs.submit";

/** @typedef {import("../core/types.js").Environment} Environment */
/** @typedef {{expected_start: import("../core/types.js").ExpectedStart | null, unknown: {why: string, hint: string | null} | null, notes: string[], jobs: {cwd: string, environment: string}[]}} Rehearsal */

/** @param {{draft: Partial<drafts.Told>}} props what to begin with: a job to run again with changes */
export default function Submit({ draft }) {
  const [told, setTold] = useState({ ...drafts.EMPTY, ...remembered(), ...draft });
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [isSending, setSending] = useState(false);
  const { rehearsal, problem } = useRehearsal(told);
  /** @type {import("../core/use-answer.js").Answer<import("../core/types.js").Environments>} */
  const { data } = useAnswer("/v1/environments");
  const recent = data?.environments ?? [];
  useEffect(() => {
    // The job that was chosen last time may have been deleted.
    const isKnown = recent.some((one) => String(one.job) === told.like) || told.like === draft.like;
    if (data && !isKnown) setTold((now) => ({ ...now, like: "" }));
  }, [data]);
  const names = drafts.placeholders(told.command);
  const many = drafts.countOf(told);
  const same = told.command.trim() && many && !problem ? drafts.line(told) : "";
  /** @param {keyof drafts.Told} key */
  const set = (key) => (/** @type {{currentTarget: HTMLInputElement}} */ event) => setTold({ ...told, [key]: event.currentTarget.value });
  /** @param {string} name */
  const setValues = (name) => (/** @type {{currentTarget: HTMLInputElement}} */ event) =>
    setTold({ ...told, values: { ...told.values, [name]: event.currentTarget.value } });
  /** @param {Event} event */
  const send = async (event) => {
    event.preventDefault();
    setSending(true);
    try {
      const { text, path } = names.length ? await sendSweep(told) : await sendJob(told);
      localStorage.setItem(KEY, JSON.stringify({ cwd: told.cwd.trim(), like: told.like }));
      close();
      toasts.show(text);
      go(path);
    } catch (failure) {
      setError(failure);
      setSending(false);
    }
  };
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && told.command.trim() && many) void send(event);
  };
  const jobs = useRecent();
  const commands = [...new Set(jobs.filter((job) => job.sweep === null).map((job) => job.command))].slice(0, RECENT_SHOWN);
  const wrong = (/** @type {string} */ part) => (problem && api.errorText(problem).toLowerCase().includes(part) ? "true" : null);
  const shown = names.length && many && !problem ? tried(() => drafts.firstCommands(told)) : [];
  return html`<${Dialog} title="New job" isWide>
    <form class="submit" onSubmit=${send} onKeyDown=${key}>
      <${Start} told=${told} jobs=${jobs} setTold=${setTold} fail=${setError} />
      <${Field} label="Command" class="all" hint="As in a shell. {lr} is a parameter: one job per value.">
        <textarea rows="3" autofocus required spellcheck=${false} value=${told.command} onInput=${set("command")} placeholder="python train.py --lr {lr}"></textarea>
      </${Field}>
      ${commands.length > 0 && !told.command && html`<div class="all recent"><span class="quiet">Recent</span>${commands.map((one) => html`<button type="button" key=${one} class="chip clip" title=${one} onClick=${() => setTold({ ...told, command: one })}>${one}</button>`)}</div>`}
      ${names.map(
        (name) => html`<${Field} key=${name} label=${`Values of ${name}`} class="half">
          <input type="text" required spellcheck=${false} value=${told.values[name] ?? ""} onInput=${setValues(name)} placeholder="0.1, 0.01, 0.001" />
        </${Field}>`,
      )}
      ${shown.length > 0 && html`<div class="all preview" aria-live="polite"><strong>${plural(many, "job")}</strong>${shown.map((one) => html`<code key=${one} class="clip" title=${one}>${one}</code>`)}${many > shown.length && html`<span class="quiet">… and ${count(many - shown.length)} more</span>`}</div>`}
      <${Field} label="GPUs"><input type="number" min="0" max="4096" required value=${told.gpus} onInput=${set("gpus")} /></${Field}>
      <${Field} label="Name"><input type="text" maxlength="200" required=${names.length > 0} value=${told.name} onInput=${set("name")} /></${Field}>
      <${Field} label="Time limit" hint="such as 90m, 2h, 1d12h"><input type="text" aria-invalid=${wrong("time")} value=${told.time} onInput=${set("time")} /></${Field}>
      <${Field} label="Priority"><select value=${told.priority} onChange=${set("priority")}>
        ${PRIORITIES.map(([value, text]) => html`<option key=${value} value=${value} selected=${value === told.priority}>${text}</option>`)}
      </select></${Field}>
      <${Field} label="Working folder" class="half" hint=${told.cwd || !rehearsal ? "empty: that of your last submission" : `now: ${rehearsal.jobs[0].cwd}`}><input type="text" list="recent-folders" spellcheck=${false} aria-invalid=${wrong("folder")} value=${told.cwd} onInput=${set("cwd")} placeholder="/home/me/project" /></${Field}>
      <datalist id="recent-folders">${recent.map(({ cwd }) => html`<option key=${cwd} value=${cwd} />`)}</datalist>
      <${Field} label="Environment" class="half" hint=${rehearsal ? `now: ${from(rehearsal.jobs[0].environment)}` : undefined}>
        <${Environments} recent=${recent} like=${told.like} onChange=${set("like")} />
      </${Field}>
      <details class="all more" open=${hasMore(told)}><summary>More options</summary><div class="submit">
        <${Field} label="GPU memory" hint="such as 18G: may share a GPU; empty: exclusive use"><input type="text" aria-invalid=${wrong("gpu memory")} value=${told.vram} onInput=${set("vram")} /></${Field}>
        <${Field} label="GPU ids" hint="exactly these, such as 0,2"><input type="text" spellcheck=${false} aria-invalid=${wrong("gpu")} value=${told.gpuIds} onInput=${set("gpuIds")} /></${Field}>
        <${Field} label="Retries" hint="if the job fails"><input type="number" min="0" max="1000" value=${told.retries} onInput=${set("retries")} /></${Field}>
        <${Field} label="Tags" hint="separated by commas"><input type="text" value=${told.tags} onInput=${set("tags")} /></${Field}>
        <${Field} label="After" class="half" hint="jobs that must be done first, such as 12 or name:prep*"><input type="text" spellcheck=${false} value=${told.after} onInput=${set("after")} /></${Field}>
        <${Field} label="Variables" class="half" hint="one NAME=VALUE per line, added to the environment">
          <textarea rows="2" spellcheck=${false} value=${told.env} onInput=${set("env")}></textarea>
        </${Field}>
      </div></details>
      <div class="all outlook" aria-live="polite"><${Outlook} rehearsal=${rehearsal} problem=${problem} isTyped=${Boolean(told.command.trim() && many)} /></div>
      ${same && html`<div class="all"><span class="quiet">The same command in a terminal:</span><${Command} text=${same} /></div>`}
      ${error && html`<div class="all"><${Problem} error=${error} /></div>`}
      <footer class="all">
        <button type="button" onClick=${close}>Back</button>
        <button type="submit" class="primary" disabled=${isSending || !told.command.trim() || !many}>Submit ${names.length ? plural(many, "job") : "job"}</button>
      </footer>
    </form>
  </${Dialog}>`;
}

/** Tell whether one of the options that are seldom needed is set. @param {drafts.Told} told */
const hasMore = (told) => Boolean(told.vram || told.gpuIds || told.retries || told.tags || told.after || told.env);

/** Return what is made, or nothing while something typed is wrong, which is said below. @param {() => string[]} make @returns {string[]} */
function tried(make) {
  try {
    return make();
  } catch {
    return [];
  }
}

/** Commands that were submitted last, each once; and jobs to start from. */
const RECENT_SHOWN = 5;
const JOBS_SHOWN = 15;

/** @typedef {import("../core/types.js").Job} Job */

/** @returns {Job[]} newest first */
function useRecent() {
  const { data } = useAnswer("/v1/jobs?limit=60&sort=-id");
  return data?.jobs ?? [];
}

/**
 * What to start from: a preset of the settings, or a job whose fields are taken. Not there without either.
 * @param {{told: drafts.Told, jobs: Job[], setTold: (told: drafts.Told) => void, fail: (error: unknown) => void}} props
 */
function Start({ told, jobs, setTold, fail }) {
  /** @type {import("../core/use-answer.js").Answer<import("../core/types.js").Presets>} */
  const { data } = useAnswer("/v1/presets");
  const presets = data?.presets ?? [];
  const chosen = presets.find((one) => one.name === told.preset);
  if (!presets.length && !jobs.length) return null;
  /** @param {{currentTarget: HTMLSelectElement}} event */
  const choose = async ({ currentTarget: { value } }) => {
    if (!value.startsWith("job:")) return setTold(drafts.withPreset(told, presets.find((one) => `preset:${one.name}` === value)));
    try {
      setTold({ ...drafts.EMPTY, ...drafts.draftOf(await api.get(`/v1/jobs/${value.slice(4)}`)) });
    } catch (error) {
      fail(error);
    }
  };
  const hint = chosen ? (chosen.problem ?? `${chosen.options}: applies to fields that you leave empty`) : undefined;
  return html`<${Field} label="Start from" class="all" hint=${hint}><select value=${told.preset ? `preset:${told.preset}` : ""} onChange=${choose}>
    <option value="">an empty form</option>
    ${presets.length > 0 && html`<optgroup label="Presets">${presets.map((one) => html`<option key=${one.name} value=${`preset:${one.name}`} disabled=${Boolean(one.problem)} selected=${one.name === told.preset}>${`preset ${one.name}`}${one.problem ? " (see its settings)" : ""}</option>`)}</optgroup>`}
    ${jobs.length > 0 && html`<optgroup label="Like a job">${jobs.slice(0, JOBS_SHOWN).map((job) => html`<option key=${job.id} value=${`job:${job.id}`}>${`#${job.id} ${job.name}`}</option>`)}</optgroup>`}
  </select></${Field}>`;
}

/**
 * The choice of an environment.
 * @param {{recent: Environment[], like: string, onChange: (event: any) => void}} props
 */
function Environments({ recent, like, onChange }) {
  const known = recent.some((one) => String(one.job) === like);
  return html`<select value=${like} onChange=${onChange}>
    <option value="" selected=${!like}>automatic: that of your last submission from this folder</option>
    ${like && !known && html`<option value=${like} selected>like job ${like}</option>`}
    ${recent.map((one) => html`<option key=${one.job} value=${one.job} selected=${String(one.job) === like}>${drafts.environmentLabel(one)}</option>`)}
  </select>`;
}

/** Return the source of an environment in words. @param {string} source */
function from(source) {
  if (source === "user database") return "a minimal one, because your login shell failed";
  return source === "login shell" ? "that of a login shell" : `that of ${source}`;
}

/** Return the folder and the environment of the last submission. @returns {Partial<drafts.Told>} */
function remembered() {
  try {
    const { cwd = "", like = "" } = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return { cwd: String(cwd), like: String(like) };
  } catch {
    // Another version of the page may have written something else.
    return {};
  }
}

/** Where and when it would start. @param {{rehearsal: Rehearsal | null, problem: unknown, isTyped: boolean}} props */
function Outlook({ rehearsal, problem, isTyped }) {
  if (problem) return html`<p class="warn-text">${api.errorText(problem)}</p>`;
  if (!rehearsal) return html`<p class="quiet">${isTyped ? "Asking when it would start…" : "Type a command to see when it would start."}</p>`;
  const found = starts(rehearsal.expected_start, state.now.value);
  const told = found ? `It would start ${found}` : `The start time is unknown${rehearsal.unknown ? `: ${rehearsal.unknown.why}.` : ""}`;
  return html`<p><strong>${told}</strong>${found ? `, in ${rehearsal.jobs[0].cwd}.` : ""} ${!found && rehearsal.unknown?.hint}</p>
    ${rehearsal.notes.map((note) => html`<p key=${note} class="warn-text">${note}</p>`)}`;
}

/** Ask what would be queued whenever the typing pauses. @param {drafts.Told} told */
function useRehearsal(told) {
  const [found, setFound] = useState(/** @type {{rehearsal: Rehearsal | null, problem: unknown}} */ ({ rehearsal: null, problem: null }));
  useEffect(() => {
    if (!told.command.trim() || !drafts.countOf(told)) return setFound({ rehearsal: null, problem: null });
    const leaving = new AbortController();
    const ask = async () => {
      try {
        const job = { ...drafts.defaults(told), name: told.name, command: drafts.points(told)[0].command };
        setFound({ rehearsal: await api.post("/v1/jobs?dry_run=1", job, { signal: leaving.signal }), problem: null });
      } catch (problem) {
        if (!api.isAborted(problem)) setFound({ rehearsal: null, problem });
      }
    };
    const timer = setTimeout(ask, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      leaving.abort();
    };
  }, [told]);
  return found;
}

/** @param {drafts.Told} told */
async function sendJob(told) {
  const { ids, notes } = await api.post("/v1/jobs", { ...drafts.defaults(told), name: told.name.trim(), command: told.command });
  return { text: [`Queued job ${ids[0]}.`, ...notes].join(" "), path: `/job/${ids[0]}` };
}

/** @param {drafts.Told} told */
async function sendSweep(told) {
  const parameters = drafts.placeholders(told.command);
  const common = drafts.defaults(told);
  const all = drafts.points(told);
  const definition = { parameters, points: all.length };
  const sweep = await api.post("/v1/sweeps", { name: told.name.trim(), command: told.command, definition, defaults: common, parameters });
  const { counts } = await api.post(`/v1/sweeps/${sweep.id}/points`, { points: all, defaults: common });
  const queued = (counts.new ?? 0) + (counts.retried ?? 0) + (counts["released"] ?? 0);
  const rest = all.length - queued;
  return { text: `Queued ${plural(queued, "run")} of sweep ${sweep.id}${rest ? `; ${rest} were done or queued already` : ""}.`, path: `/sweep/${sweep.id}` };
}
