// The settings of this dibs, and the findings of the doctor.
import { Choice, coded, Pill, Problem, Section, Table } from "../components/common.js";
import * as dialogs from "../components/dialogs.js";
import * as notifications from "../components/notifications.js";
import * as toasts from "../components/toasts.js";
import * as api from "../core/api.js";
import * as themes from "../core/themes.js";
import { useAnswer } from "../core/use-answer.js";
import { html } from "../vendor/ui.js";

/**
 * @typedef {{name: string, value: unknown, default: unknown, source: string, help: string}} Setting
 * @typedef {{name: string, state: "ok" | "warn" | "bad", text: string, hint: string | null}} Check
 */

export default function Page() {
  return html`<${Doctor} /><${Look} /><${Sessions} /><${Settings} />`;
}

function Doctor() {
  const { data, error, reload, isLoading } = useAnswer("/v1/doctor");
  const aside = html`<button type="button" class="small" disabled=${isLoading} onClick=${reload}>Check again</button>`;
  return html`<${Section} title="Doctor" aside=${aside}>
    <${Problem} error=${error} retry=${reload} />
    ${data && html`<${Table} label="Checks" rows=${data.checks} keyOf=${(/** @type {Check} */ one) => one.name}
      columns=${[
        { title: "State", phone: "side", cell: (/** @type {Check} */ one) => html`<${Pill} word=${one.state} />` },
        { title: "Check", phone: "title", cell: (/** @type {Check} */ one) => one.name },
        { title: "Found", phone: "text", cell: (/** @type {Check} */ one) => html`${one.text}${one.hint ? html`<br /><span class="quiet">${coded(one.hint)}</span>` : ""}` },
      ]} />`}
  <//>`;
}

function Look() {
  return html`<${Section} title="This browser">
    <${Choice} label="Colours" value=${themes.chosen.value ?? "system"} choose=${(/** @type {string} */ value) => themes.choose(value === "system" ? null : value)}
      options=${[{ value: "system", text: "System" }, { value: "light", text: "Light" }, { value: "dark", text: "Dark" }]} />
    <${Notices} />
  <//>`;
}

function Notices() {
  const change = async (/** @type {Event} */ event) => {
    const box = /** @type {HTMLInputElement} */ (event.currentTarget);
    const problem = await notifications.choose(box.checked);
    if (problem) toasts.show(problem, { kind: "bad" });
    box.checked = notifications.isOn.value;
  };
  return html`<p><label><input type="checkbox" checked=${notifications.isOn.value} onChange=${change} /> Notify me when a job finishes while this page is not visible</label></p>`;
}

function Sessions() {
  const rotate = async () => {
    const isMeant = await dialogs.confirm({ title: "Sign out all browsers?", text: "All links and open pages stop working, including this one. `dibs web` prints a new link.", yes: "Sign out" });
    if (!isMeant) return;
    try {
      await api.post("/v1/session/rotate", {});
      location.reload();
    } catch (error) {
      toasts.show(api.errorText(error), { kind: "bad" });
    }
  };
  return html`<${Section} title="Sessions">
    <p>Every signed-in browser can do everything that you can do with dibs. This signs out all of them, including this one.</p>
    <button type="button" class="bad" onClick=${rotate}>Sign out all browsers</button>
  <//>`;
}

function Settings() {
  const { data, error, reload } = useAnswer("/v1/settings");
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  return html`<${Section} title="Settings" aside=${html`dibs ${data.version}; changed with <code>dibs config set</code>`}>
    <${Table} label="Settings" rows=${data.settings} keyOf=${(/** @type {Setting} */ one) => one.name}
      columns=${[
        { title: "Setting", cell: (/** @type {Setting} */ one) => html`<code>${one.name}</code>` },
        { title: "Value", phone: "side", cell: (/** @type {Setting} */ one) => html`<code>${said(one.value)}</code>` },
        { title: "From", phone: "nothing", cell: (/** @type {Setting} */ one) => (one.source === "default" ? html`<span class="quiet">default</span>` : html`<strong>${one.source}</strong>`) },
        { title: "Default", phone: "nothing", cell: (/** @type {Setting} */ one) => html`<code>${said(one.default)}</code>` },
        { title: "What it does", phone: "nothing", cell: (/** @type {Setting} */ one) => coded(one.help) },
      ]} />
  <//>`;
}

/** @param {unknown} value */
function said(value) {
  if (value === null || value === undefined || value === "") return "–";
  return typeof value === "string" ? value.replace(/^(True|False)$/, (word) => word.toLowerCase()) : JSON.stringify(value);
}
