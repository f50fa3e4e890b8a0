// Reservations: GPUs that are kept for a user for a time. All users' are listed; our own can be made and cancelled.
import * as api from "../core/api.js";
import { clock, gpuNames, plural, span } from "../core/format.js";
import * as reservationText from "../core/reservation-text.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useState } from "../vendor/ui.js";
import { Field, Pill, Problem, Section, Table } from "./common.js";
import { close, confirm, Dialog, open } from "./dialogs.js";
import { Icon } from "./icons.js";
import { styles } from "./lazy.js";
import * as toasts from "./toasts.js";

/** @typedef {import("../core/types.js").Reservation} Reservation */

/** All reservations with the buttons to make and to cancel one. */
export function ReservationList() {
  const { data, error, reload } = useAnswer("/v1/reservations", { everyMs: 15_000 });
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  /** @type {Reservation[]} */
  const all = data.reservations;
  const aside = html`<span>${all.length ? plural(all.length, "reservation") : "none"}</span>
    <button type="button" class="small right" onClick=${() => void reserve(reload)}><${Icon} name="plus" />Reserve GPUs</button>`;
  return html`<${Section} title="Reservations" aside=${aside}>
    ${!all.length && html`<p class="quiet">No reservations. A reservation keeps GPUs for you at a future time. Until it begins, jobs that end before then can use them.</p>`}
    ${all.length > 0 && html`<${ReservationTable} rows=${all} changed=${reload} />`}
  <//>`;
}

/** @param {{rows: readonly Reservation[], changed?: () => void}} props changed: called after a cancel; without it nothing can be cancelled */
export function ReservationTable({ rows, changed }) {
  const now = state.now.value;
  const me = state.hello.value?.user;
  return html`<${Table} label="Reservations" rows=${rows} keyOf=${(/** @type {Reservation} */ one) => `${one.user} ${one.id} ${one.from}`} columns=${[
    { title: "For", cell: (/** @type {Reservation} */ one) => html`<strong>${one.user}</strong>${one.user === me ? html` <span class="quiet">you</span>` : ""}${one.name ? ` · ${one.name}` : ""}` },
    { title: "State", phone: "side", cell: (/** @type {Reservation} */ one) => html`<${Pill} word=${one.state} />` },
    { title: "GPUs", cell: (/** @type {Reservation} */ one) => (one.gpus.length ? one.gpus : one.gpu_ids).join(", ") },
    { title: "From", cell: (/** @type {Reservation} */ one) => clock(one.from, now) },
    { title: "To", cell: (/** @type {Reservation} */ one) => clock(one.to, now) },
    { title: "Lasts", class: "number", cell: (/** @type {Reservation} */ one) => span((Date.parse(one.to) - Date.parse(one.from)) / 1000) },
    { title: "Repeats", cell: (/** @type {Reservation} */ one) => (one.every ? `every ${one.every}` : "") },
    ...(changed ? [{ title: "Actions", class: "actions", cell: (/** @type {Reservation} */ one) => one.is_ours && html`<button type="button" class="small" onClick=${() => void cancel(one, changed)}>Cancel</button>` }] : []),
  ]} />`;
}

/** @param {Reservation} one @param {() => void} changed */
async function cancel(one, changed) {
  const text = `${one.gpus.length ? gpuNames(one.gpus) : plural(one.gpu_ids.length, "GPU")} will be available to all users again${one.every ? ", also for all later dates" : ""}. Running jobs continue.`;
  if (!(await confirm({ title: `Cancel reservation ${one.id}?`, text, yes: "Cancel reservation" }))) return;
  try {
    await api.post(`/v1/reservations/${one.id}/cancel`, {});
    toasts.show(`Reservation ${one.id} is cancelled.`);
    changed();
  } catch (error) {
    toasts.show(api.errorText(error), { kind: "bad" });
  }
}

/** Open the dialog. @param {() => void} changed */
async function reserve(changed) {
  await styles(["components/submit.css"]);
  open(() => html`<${Reserve} changed=${changed} />`);
}

/** @param {{changed: () => void}} props */
function Reserve({ changed }) {
  const [told, setTold] = useState(() => ({ gpus: "1", gpuIds: "", from: reservationText.nextHour(new Date()), lasts: "4h", every: "", name: "" }));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [isSending, setSending] = useState(false);
  /** @param {keyof typeof told} key */
  const set = (key) => (/** @type {{currentTarget: HTMLInputElement}} */ event) => setTold({ ...told, [key]: event.currentTarget.value });
  /** @param {Event} event */
  const send = async (event) => {
    event.preventDefault();
    setSending(true);
    try {
      const made = await api.post("/v1/reservations", reservationText.request(told));
      close();
      toasts.show(`${gpuNames(made.gpus)} reserved from ${clock(made.from, state.now.value)} to ${clock(made.to, state.now.value)}.`);
      changed();
    } catch (failure) {
      setError(failure);
      setSending(false);
    }
  };
  return html`<${Dialog} title="Reserve GPUs">
    <form class="submit" onSubmit=${send}>
      <${Field} label="GPUs" class="half"><input type="number" min="1" max="4096" required autofocus value=${told.gpus} onInput=${set("gpus")} /></${Field}>
      <${Field} label="GPU ids" class="half" hint="exactly these, such as 0,2; empty: any"><input type="text" spellcheck=${false} value=${told.gpuIds} onInput=${set("gpuIds")} /></${Field}>
      <${Field} label="From" class="half" hint="your local time"><input type="datetime-local" required value=${told.from} onInput=${set("from")} /></${Field}>
      <${Field} label="Lasts" class="half" hint="such as 90m, 4h; at most 24h"><input type="text" required value=${told.lasts} onInput=${set("lasts")} /></${Field}>
      <${Field} label="Repeats" class="half"><select value=${told.every} onChange=${set("every")}>
        ${[["", "once"], ["day", "every day"], ["week", "every week"]].map(([value, text]) => html`<option key=${value} value=${value} selected=${value === told.every}>${text}</option>`)}
      </select></${Field}>
      <${Field} label="Name" class="half" hint="purpose; all users can see it"><input type="text" maxlength="60" value=${told.name} onInput=${set("name")} /></${Field}>
      <p class="all quiet">All users see the reservation, and all jobs and leases respect it. Reserved GPUs that are not used are released after 15 minutes.</p>
      ${error && html`<div class="all"><${Problem} error=${error} /></div>`}
      <footer class="all">
        <button type="button" onClick=${close}>Back</button>
        <button type="submit" class="primary" disabled=${isSending}>Reserve</button>
      </footer>
    </form>
  </${Dialog}>`;
}
