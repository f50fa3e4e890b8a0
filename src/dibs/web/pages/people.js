// Everyone on the machine: who has which GPUs since when, and who waits, as the kernel proves it. Nothing private of others.
import { Empty, JobLink, Pill, Section, Table, Time } from "../components/common.js";
import { ReservationList } from "../components/reservations.js";
import { clock, gpuNames, plural, size, took } from "../core/format.js";
import { ownJob } from "../core/facts.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html, useMemo } from "../vendor/ui.js";
import { leases, shares, users } from "./people/shares.js";

/**
 * @typedef {import("./people/shares.js").Lease} Lease
 * @typedef {import("./people/shares.js").User} User
 * @typedef {import("../core/types.js").Waiter} Waiter
 */

export default function Page() {
  const known = state.gpus.value;
  const me = state.hello.value?.user;
  const { data } = useAnswer("/v1/timeline?since=1h", { isLive: true, restMs: 5000 });
  const ends = useMemo(() => new Map((data?.bars ?? []).filter((/** @type {any} */ bar) => !bar.is_plan && !bar.to).map((/** @type {any} */ bar) => [bar.job, bar.expected_end])), [data]);
  const names = useMemo(() => new Map((data?.bars ?? []).map((/** @type {any} */ bar) => [bar.job, bar.name])), [data]);
  if (!known) return null;
  if (!known.gpus.length) return html`<${Empty} title="No GPU on this machine" text=${known.problem ?? known.restriction ?? "There is no GPU to lease or to wait for."} />`;
  const all = users(known.gpus, known.waiters);
  const held = leases(known.gpus);
  const parts = shares(known.gpus, all, me);
  const foreign = held.filter((one) => !one.holder).length;
  const now = state.now.value;
  const index = new Map(known.gpus.map((gpu) => [gpu.id, gpu.index]));
  return html`
    <${Section} title="Everyone on this machine" aside="Leases, waiting users, and processes on GPUs, as the kernel reports them. Names and commands of other users' jobs are private.">
      <div class="share-bar" role="img" aria-label=${parts.map((one) => `${one.text}: ${plural(one.gpus, "GPU")}`).join(", ")}>
        ${parts.map((one) => html`<div key=${one.text} class=${`share-${one.kind}`} style=${{ flexGrow: one.gpus }} title=${`${one.text}: ${plural(one.gpus, "GPU")}`}><span class="clip">${one.text} <b>${one.gpus}</b></span></div>`)}
      </div>
      ${!all.length && html`<p class="quiet">Nobody has a GPU or waits for one.</p>`}
      ${all.length > 0 && html`<${Table} label="People" rows=${all} keyOf=${(/** @type {User} */ one) => one.user} columns=${[
        { title: "User", cell: (/** @type {User} */ one) => html`<strong>${one.user}</strong>${one.user === me ? html` <span class="quiet">you</span>` : ""}` },
        { title: "GPUs", class: "number", phone: "side", cell: (/** @type {User} */ one) => (one.gpus ? plural(one.gpus, "GPU") : "none") },
        { title: "Longest since", cell: (/** @type {User} */ one) => one.since && html`<${Time} at=${one.since} />` },
        { title: "Waiting for", class: "number", cell: (/** @type {User} */ one) => (one.waiting ? plural(one.waiting, "GPU") : "") },
        { title: "Without a lease", cell: (/** @type {User} */ one) => (one.foreign.length ? html`<span class="warn-text">${gpuNames(one.foreign)}</span>` : "") },
      ]} />`}
    <//>
    ${all.length > 0 && html`<${Section} title="GPUs in use" aside=${`${plural(held.length - foreign, "lease")}${foreign ? `, ${foreign} used without one` : ""}`}>
      ${!held.length && html`<p class="quiet">Nobody holds a GPU.</p>`}
      ${held.length > 0 && html`<${Table} label="GPUs in use" rows=${held} keyOf=${(/** @type {Lease} */ one) => `${one.gpu.id} ${one.holder?.pid}`} columns=${[
        { title: "GPU", class: "tight", cell: (/** @type {Lease} */ one) => html`<a href=${`/gpu/${one.gpu.index}`}>GPU ${one.gpu.index}</a>` },
        { title: "User", phone: "side", cell: (/** @type {Lease} */ one) => one.user },
        { title: "What", phone: "text", cell: (/** @type {Lease} */ one) => whatOf(one, me, names) },
        { title: "Since", cell: (/** @type {Lease} */ one) => one.holder?.since && html`<${Time} at=${one.holder.since} isClock />` },
        { title: "Held for", class: "number", cell: (/** @type {Lease} */ one) => took(one.holder?.since, null, now) },
        { title: "Expected until", cell: (/** @type {Lease} */ one) => {
          const job = one.holder ? ownJob(one.holder, me) : null;
          const end = job === null ? null : ends.get(job);
          return end ? clock(end, now) : html`<span class="quiet">not known</span>`;
        } },
        { title: "Memory", class: "number", cell: (/** @type {Lease} */ one) => (one.holder?.vram ? size(one.holder.vram) : one.holder ? "all of it" : size(one.gpu.foreign_memory)) },
      ]} />`}
    <//>`}
    ${all.length > 0 && html`<${Section} title="Waiting" aside="the machine-wide line; a free GPU goes to the user with the least GPU time for their share">
      ${!known.waiters.length && html`<p class="quiet">Nobody waits for a GPU.</p>`}
      ${known.waiters.length > 0 && html`<${Table} label="Waiting on this machine" rows=${known.waiters} keyOf=${(/** @type {Waiter} */ one) => `${one.pid} ${one.since}`} columns=${[
        { title: "User", cell: (/** @type {Waiter} */ one) => html`<span class="quiet number">${known.waiters.indexOf(one) + 1}.</span> ${one.user}` },
        { title: "GPUs", class: "number", phone: "side", cell: (/** @type {Waiter} */ one) => plural(one.gpus, "GPU") },
        { title: "Of", cell: (/** @type {Waiter} */ one) => (one.devices.length === known.gpus.length ? "any" : gpuNames(one.devices.map((id) => index.get(id) ?? -1).filter((each) => each >= 0))) },
        { title: "Memory", class: "number", cell: (/** @type {Waiter} */ one) => (one.vram ? size(one.vram) : "all of it") },
        { title: "Since", cell: (/** @type {Waiter} */ one) => html`<${Time} at=${one.since} isClock />` },
        { title: "Waiting for", class: "number", cell: (/** @type {Waiter} */ one) => took(one.since, null, now) },
        { title: "Pid", class: "number", phone: "nothing", cell: (/** @type {Waiter} */ one) => one.pid },
      ]} />`}
    <//>`}
    <${ReservationList} />`;
}

/** @param {Lease} one @param {string | undefined} me @param {ReadonlyMap<number, string>} names of our running jobs */
function whatOf(one, me, names) {
  if (!one.holder) return html`<${Pill} word="foreign" /> <span class="warn-text">${one.gpu.foreign}</span>`;
  const job = ownJob(one.holder, me);
  return job === null ? html`<${Pill} word="leased" />` : html`<${JobLink} id=${job} name=${names.get(job)} />`;
}
