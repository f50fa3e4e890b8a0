// The two lists of the overview: waiting jobs with reason and forecast, moved by dragging or keys; and failures with
// the most informative line of their log.
import { JobLink, Pill, Section, Table, Time } from "../../components/common.js";
import { IconButton } from "../../components/icons.js";
import * as jobActions from "../../components/job-actions.js";
import * as api from "../../core/api.js";
import { moveTo, placeOf, ranOn } from "../../core/facts.js";
import { count, ending, expected, lastLine, took } from "../../core/format.js";
import * as state from "../../core/state.js";
import { html, useEffect, useState } from "../../vendor/ui.js";

/**
 * @typedef {import("../../core/facts.js").InLine} InLine
 * @typedef {import("../../core/types.js").Job} Job
 */

/** Lines at the end of a log that are searched for it. */
const LOOKED_AT = 60;

/** @param {{line: InLine[], total: number, reload: () => void}} props */
export function Waiting({ line, total, reload }) {
  const [dragged, setDragged] = useState(/** @type {number | null} */ (null));
  const [over, setOver] = useState(/** @type {number | null} */ (null));
  const now = state.now.value;
  /** @param {number} from @param {number} to */
  const move = async (from, to) => {
    const where = moveTo(line, from, to);
    if (where) await jobActions.move(line[from].id, where, placeOf(line, from));
    reload();
  };
  /** @param {InLine} _row @param {number} i */
  const rowProps = (_row, i) => ({
    draggable: true,
    class: [jobActions.cancelling.value.has(line[i].id) && "leaving", over === i && dragged !== i && (dragged ?? 0) > i && "drop-above", over === i && dragged !== i && (dragged ?? 0) < i && "drop-below"].filter(Boolean).join(" "),
    onDragStart: (/** @type {DragEvent} */ event) => {
      event.dataTransfer?.setData("text/plain", String(line[i].id));
      setDragged(i);
    },
    onDragOver: (/** @type {DragEvent} */ event) => {
      if (dragged === null) return;
      event.preventDefault();
      if (over !== i) setOver(i);
    },
    onDragEnd: () => {
      setDragged(null);
      setOver(null);
    },
    onDrop: (/** @type {DragEvent} */ event) => {
      event.preventDefault();
      if (dragged !== null) void move(dragged, i);
      setDragged(null);
      setOver(null);
    },
    onKeyDown: (/** @type {KeyboardEvent} */ event) => {
      const step = event.altKey && { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      void move(i, i + step);
    },
  });
  const columns = [
    { title: "Job", class: "tight", cell: (/** @type {InLine} */ row) => html`<span class="quiet number">${line.indexOf(row) + 1}.</span> <${JobLink} id=${row.id} name=${row.name} />` },
    { title: "State", phone: "side", cell: (/** @type {InLine} */ row) => html`<${Pill} word=${row.state} />` },
    { title: "GPUs", class: "number", cell: (/** @type {InLine} */ row) => row.gpus },
    { title: "Starts", class: "tight", cell: (/** @type {InLine} */ row) => html`<${Starts} row=${row} now=${now} />` },
    { title: "Why it waits", class: "clip", phone: "nothing", cell: (/** @type {InLine} */ row) => html`<span title=${row.hint ? `${row.reason}. ${row.hint}` : row.reason}>${row.reason}</span>` },
    { title: "Command", class: "mono", cell: (/** @type {InLine} */ row) => html`<span title=${row.command}>${row.command}</span>` },
    { title: "Actions", class: "actions", cell: (/** @type {InLine} */ row) => html`<${Actions} row=${row} index=${line.indexOf(row)} last=${line.length - 1} move=${move} />` },
  ];
  const aside = html`<span>Drag a row, or Alt ↑ ↓ on its buttons, to reorder</span>${total > line.length && html`<a class="right" href="/jobs?state=queued,held">All ${count(total)}</a>`}`;
  return html`<${Section} title="Queue" aside=${aside}>
    <${Table} label="Queue" columns=${columns} rows=${line} keyOf=${(/** @type {InLine} */ row) => row.id} rowProps=${rowProps} />
  </${Section}>`;
}

/** @param {{row: InLine, now: number}} props */
function Starts({ row, now }) {
  const found = expected(row.expected_start, now);
  if (!found) return html`<span class="quiet" title=${row.unknown ? `${row.unknown.why} ${row.unknown.hint ?? ""}` : ""}>unknown</span>`;
  return html`<span class="number">${found.about}</span>${found.range && html` <span class="quiet number range">(${found.range})</span>`}`;
}

/** @param {{row: InLine, index: number, last: number, move: (from: number, to: number) => void}} props */
function Actions({ row, index, last, move }) {
  if (jobActions.cancelling.value.has(row.id)) return html`<span class="quiet">Cancelling…</span>`;
  const isHeld = row.state === "held";
  return html`<${IconButton} name="up" label=${`Move job ${row.id} up`} disabled=${index === 0} onClick=${() => move(index, index - 1)} />
    <${IconButton} name="down" label=${`Move job ${row.id} down`} disabled=${index === last} onClick=${() => move(index, index + 1)} />
    <${IconButton} name=${isHeld ? "play" : "pause"} label=${`${isHeld ? "Release" : "Hold"} job ${row.id}`} onClick=${() => jobActions.act(isHeld ? "unhold" : "hold", [row.id])} />
    <${IconButton} name="close" label=${`Cancel job ${row.id}`} onClick=${() => jobActions.cancel([row.id])} />`;
}

/** @param {{jobs: Job[], isMore: boolean}} props */
export function Failures({ jobs, isMore }) {
  const columns = [
    { title: "Job", class: "tight", cell: (/** @type {Job} */ job) => html`<${JobLink} id=${job.id} name=${job.name} />` },
    { title: "When", class: "tight", phone: "plain", cell: (/** @type {Job} */ job) => html`<${Time} at=${job.finished_at} />` },
    { title: "On", class: "tight", phone: "nothing", cell: ranOn },
    { title: "Ran", class: "number", phone: "nothing", cell: (/** @type {Job} */ job) => took(job.started_at, job.finished_at, 0) || "never" },
    { title: "Ended", phone: "side", cell: (/** @type {Job} */ job) => html`<span class="bad-text">${ending(job)}${job.cause === "oom" ? ", out of memory" : ""}</span>` },
    { title: "Last line", class: "mono", phone: "line", cell: (/** @type {Job} */ job) => html`<${LastLine} job=${job} />` },
    { title: "Actions", class: "actions", cell: (/** @type {Job} */ job) => html`<${IconButton} name="retry" label=${`Retry job ${job.id}`} onClick=${() => jobActions.act("retry", [job.id])} />` },
  ];
  const aside = isMore && html`<a class="right" href="/jobs?state=failed,timeout,lost&sort=-finished">All failures</a>`;
  return html`<${Section} title="Recent failures" aside=${aside}>
    <${Table} label="Recent failures" columns=${columns} rows=${jobs} keyOf=${(/** @type {Job} */ job) => job.id} />
  </${Section}>`;
}

/** @param {{job: Job}} props */
function LastLine({ job }) {
  const [line, setLine] = useState("");
  useEffect(() => {
    // It never started: there is only its reason.
    if (!job.started_at) return setLine(job.remark ?? job.reason ?? "");
    const leaving = new AbortController();
    api
      .request("GET", `/v1/jobs/${job.id}/log`, undefined, { query: { tail: LOOKED_AT }, signal: leaving.signal })
      .then((answer) => answer.text())
      .then((text) => setLine(lastLine(text) || "(no output)"))
      .catch((error) => api.isAborted(error) || setLine(api.errorText(error)));
    return () => leaving.abort();
  }, [job.id, job.attempt]);
  return html`<a class="job" href=${`/job/${job.id}`} title=${line}>${line || "…"}</a>`;
}
