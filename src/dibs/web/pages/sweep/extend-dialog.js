// The dialog for more points of a sweep: the values of each parameter, and how many of the combinations are new.
import { Command, Field, Problem } from "../../components/common.js";
import { close, Dialog } from "../../components/dialogs.js";
import * as toasts from "../../components/toasts.js";
import * as api from "../../core/api.js";
import { count, plural } from "../../core/format.js";
import { html, useState } from "../../vendor/ui.js";
import * as extension from "./extension.js";

/** @typedef {import("./runs.js").Run} Run */

/** @param {{sweep: {id: number, name: string, command: string}, runs: Run[], model: Run}} props */
export default function Extend({ sweep, runs, model }) {
  const [values, setValues] = useState(() => extension.typedValues(runs, model));
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const [isSending, setSending] = useState(false);
  const { all, changes, problem } = looked(runs, model, values);
  const rest = extension.fixed(model, values);
  /** @param {Event} event */
  const send = async (event) => {
    event.preventDefault();
    setSending(true);
    try {
      const { counts } = await api.post(`/v1/sweeps/${sweep.id}/runs`, { like: model.job, changes });
      close();
      toasts.show(`Queued ${plural(counts.new, "run")} of sweep ${sweep.id}.`);
    } catch (failure) {
      setError(failure);
      setSending(false);
    }
  };
  return html`<${Dialog} title=${`Extend ${sweep.name}`} isWide>
    <form class="submit" onSubmit=${send}>
      <div class="all"><${Command} text=${sweep.command} /></div>
      ${Object.keys(values).map(
        (name) => html`<${Field} key=${name} label=${`Values of ${name}`} class="all">
          <input type="text" required spellcheck=${false} value=${values[name]} onInput=${(/** @type {any} */ event) => setValues({ ...values, [name]: event.currentTarget.value })} />
        </${Field}>`,
      )}
      <div class="all" aria-live="polite">
        ${problem ? html`<p class="warn-text">${api.errorText(problem)}</p>` : html`<p><strong>${plural(changes.length, "new run")}</strong> of ${count(all)}; the others are there already.</p>`}
        <p class="quiet">They get GPUs, folder, environment and limits of job ${model.job}${rest && `; ${rest} stays`}.</p>
      </div>
      ${error && html`<div class="all"><${Problem} error=${error} /></div>`}
      <footer class="all">
        <button type="button" onClick=${close}>Back</button>
        <button type="submit" class="primary" disabled=${isSending || !changes.length}>Queue ${plural(changes.length, "run")}</button>
      </footer>
    </form>
  </${Dialog}>`;
}

/** @param {Run[]} runs @param {Run} model @param {Record<string, string>} values */
function looked(runs, model, values) {
  try {
    return { ...extension.missing(runs, model, values), problem: null };
  } catch (problem) {
    return { all: 0, changes: [], problem };
  }
}
