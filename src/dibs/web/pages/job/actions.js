// Actions of one job: buttons, and the same by keyboard. Only what its state allows is offered.
import { askPriority } from "../../components/bulk-actions.js";
import { Copy, Menu } from "../../components/common.js";
import { Icon } from "../../components/icons.js";
import * as jobActions from "../../components/job-actions.js";
import * as lazy from "../../components/lazy.js";
import { draftOf } from "../../core/job-drafts.js";
import { useKeys } from "../../core/keys.js";
import { html } from "../../vendor/ui.js";

/** @typedef {import("./job-text.js").Whole} Whole */

const WAITING = new Set(["queued", "held"]);

/** Return the verbs that make sense for a state. @param {Whole} job */
export function verbsOf(job) {
  const isWaiting = WAITING.has(job.state);
  return {
    cancel: !job.finished_at && job.state !== "stopping" && !isOver(job),
    retry: isOver(job),
    hold: isWaiting && job.state !== "held",
    unhold: job.state === "held",
    pause: job.state === "running",
    resume: job.state === "paused",
    priority: isWaiting,
  };
}

/** @param {Whole} job */
const isOver = (job) => ["done", "failed", "cancelled", "timeout", "lost"].includes(job.state);

/** @param {{job: Whole}} props */
export function Actions({ job }) {
  const may = verbsOf(job);
  const isLeaving = jobActions.cancelling.value.has(job.id);
  const cancel = () => may.cancel && !isLeaving && jobActions.cancel([job.id]);
  // A successful job is queued again only on an explicit request, as here.
  const retry = () => may.retry && void jobActions.act("retry", [job.id], job.state === "done" ? { done: true } : {});
  const change = () => void lazy.submit(draftOf(job));
  const hold = () => (may.hold ? void jobActions.act("hold", [job.id]) : may.unhold && void jobActions.act("unhold", [job.id]));
  const pause = () => (may.pause ? void jobActions.act("pause", [job.id]) : may.resume && void jobActions.act("resume", [job.id]));
  const priority = () => may.priority && askPriority([job.id], job.priority);
  useKeys(
    [
      { keys: "c", does: "Cancel", group: "Job", run: cancel },
      { keys: "r", does: "Retry", group: "Job", run: retry },
      { keys: "R", does: "Retry with changes, or duplicate", group: "Job", run: change },
      { keys: "h", does: "Hold or release", group: "Job", run: hold },
      { keys: "p", does: "Set the priority", group: "Job", run: priority },
    ],
    [job, isLeaving],
  );
  return html`<div class="job-actions" role="toolbar" aria-label="Job">
    ${may.cancel && html`<button type="button" class="bad" disabled=${isLeaving} onClick=${cancel}><${Icon} name="close" />${isLeaving ? "Cancelling…" : "Cancel"}</button>`}
    ${may.retry && html`<button type="button" onClick=${retry}><${Icon} name="retry" />Retry</button>`}
    <button type="button" onClick=${change}>${may.retry ? html`<${Icon} name="edit" />Retry with changes` : html`<${Icon} name="copy" />Duplicate`}</button>
    ${may.hold && html`<button type="button" onClick=${hold}><${Icon} name="pause" />Hold</button>`}
    ${may.unhold && html`<button type="button" onClick=${hold}><${Icon} name="play" />Unhold</button>`}
    ${may.pause && html`<button type="button" onClick=${pause}><${Icon} name="pause" />Pause</button>`}
    ${may.resume && html`<button type="button" onClick=${pause}><${Icon} name="play" />Resume</button>`}
    ${may.priority && html`<button type="button" onClick=${priority}><${Icon} name="up" />Priority…</button>`}
    <${Menu} label="More actions" icon="more">
      <${Copy} text=${job.command} label="Copy command" />
      ${job.cli && html`<${Copy} text=${job.cli} label="Copy as CLI" />`}
      <a href=${`/compare?jobs=${job.id}`}>Compare with others…</a>
    </${Menu}>
  </div>`;
}
