// Components of the pages about GPUs: the users of one, and draining it.
import { Field, JobLink } from "../../components/common.js";
import * as dialogs from "../../components/dialogs.js";
import * as toasts from "../../components/toasts.js";
import * as api from "../../core/api.js";
import { ownJob } from "../../core/facts.js";
import { size } from "../../core/format.js";
import * as state from "../../core/state.js";
import { html, useState } from "../../vendor/ui.js";
import * as gpuFacts from "./gpu-facts.js";

/** @typedef {import("../../core/types.js").Gpu} Gpu */

/** Who has a GPU, or why nobody may. @param {{gpu: Gpu, names?: ReadonlyMap<number, string>}} props names of running jobs */
export function HolderList({ gpu, names }) {
  const text = gpuFacts.statusText(gpu, state.now.value);
  const kind = gpu.fault || gpu.blocked ? "bad-text" : gpu.state === "foreign" || gpu.state === "drained" ? "warn-text" : "quiet";
  return html`<div class="holders">
    ${gpu.holders.map((one) => html`<div key=${one.pid}>${ownJob(one, state.hello.value?.user) !== null ? html`<${JobLink} id=${one.job} name=${names?.get(Number(one.job))} /> ` : ""}${one.loan ? "idle lease, lent to " : ""}${one.user ?? (one.uid === null ? "somebody" : `uid ${one.uid}`)}${one.vram ? html` <span class="quiet">${size(one.vram)}</span>` : ""}</div>`)}
    ${text && html`<div class=${kind}>${text}</div>`}
    ${gpu.state !== "foreign" && gpu.foreign ? html`<div class="warn-text">${gpu.foreign}</div>` : null}
  </div>`;
}

/** Take a GPU out of use, or back. @param {{gpu: Gpu}} props */
export function DrainButton({ gpu }) {
  const isOut = gpu.state === "drained" || gpu.state === "unhealthy";
  return isOut
    ? html`<button type="button" class="small" onClick=${() => void undrain(gpu)}>Undrain</button>`
    : html`<button type="button" class="small" onClick=${() => dialogs.open(() => html`<${DrainDialog} gpu=${gpu} />`)}>Drain</button>`;
}

/** @param {{gpu: Gpu}} props */
function DrainDialog({ gpu }) {
  const [reason, setReason] = useState("");
  const drain = async (/** @type {Event} */ event) => {
    event.preventDefault();
    dialogs.close();
    try {
      await api.post(`/v1/gpus/${encodeURIComponent(gpu.id)}/drain`, { reason });
      toasts.show(`GPU ${gpu.index} takes no new jobs.`, { undo: () => void undrain(gpu) });
    } catch (error) {
      toasts.show(api.errorText(error), { kind: "bad" });
    }
  };
  return html`<${dialogs.Dialog} title=${`Drain GPU ${gpu.index}`}>
    <form onSubmit=${drain}>
      <p>Running jobs continue; no new jobs start on it until you undrain it.</p>
      <${Field} label="Reason" hint="Shown to users who wait for it."><input class="wide" value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.currentTarget.value)} /><//>
      <footer><button type="button" onClick=${dialogs.close}>Back</button><button class="primary">Drain</button></footer>
    </form>
  <//>`;
}

/** @param {Gpu} gpu */
async function undrain(gpu) {
  try {
    await api.post(`/v1/gpus/${encodeURIComponent(gpu.id)}/undrain`, {});
    toasts.show(`GPU ${gpu.index} takes jobs again.`);
  } catch (error) {
    toasts.show(api.errorText(error), { kind: "bad" });
  }
}
