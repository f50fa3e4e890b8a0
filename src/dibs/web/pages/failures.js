// The latest failures: how each ended, the line of its log that tells most, and another try.
import * as acting from "../acting.js";
import * as api from "../api.js";
import { JobLink, Section, Table, Time } from "../parts.js";
import { html, useEffect, useState } from "../vendor/ui.js";
import { ending, lastLine, took } from "../words.js";
import { ranOn } from "./facts.js";

/** @typedef {import("../types.js").Job} Job */

/** Lines of a log's end in which the telling one is looked for. */
const LOOKED_AT = 60;

/** @param {{jobs: Job[], isMore: boolean}} props */
export function Failures({ jobs, isMore }) {
  const columns = [
    { title: "job", class: "tight", cell: (/** @type {Job} */ job) => html`<${JobLink} id=${job.id} name=${job.name} />` },
    { title: "when", class: "tight", cell: (/** @type {Job} */ job) => html`<${Time} at=${job.finished_at} />` },
    { title: "on", class: "tight", cell: ranOn },
    { title: "ran", class: "number", cell: (/** @type {Job} */ job) => took(job.started_at, job.finished_at, 0) || "never" },
    { title: "ended", cell: (/** @type {Job} */ job) => html`<span class="bad-text">${ending(job)}${job.cause === "oom" ? ", out of memory" : ""}</span>` },
    { title: "last line", class: "mono", cell: (/** @type {Job} */ job) => html`<${LastLine} job=${job} />` },
    { title: "actions", class: "actions", cell: (/** @type {Job} */ job) => html`<button type="button" class="small" aria-label=${`Retry job ${job.id}`} onClick=${() => acting.act("retry", [job.id])}>retry</button>` },
  ];
  const aside = isMore && html`<a href="/jobs?state=failed,timeout,lost">all →</a>`;
  return html`<${Section} title="Recent failures" aside=${aside}>
    <${Table} label="Recent failures" columns=${columns} rows=${jobs} keyOf=${(/** @type {Job} */ job) => job.id} />
  </${Section}>`;
}

/** @param {{job: Job}} props */
function LastLine({ job }) {
  const [line, setLine] = useState("");
  useEffect(() => {
    // It never began: its reason is all there is.
    if (!job.started_at) return setLine(job.remark ?? job.reason ?? "");
    const leaving = new AbortController();
    api
      .request("GET", `/v1/jobs/${job.id}/log`, undefined, { query: { tail: LOOKED_AT }, signal: leaving.signal })
      .then((answer) => answer.text())
      .then((text) => setLine(lastLine(text) || "(no output)"))
      .catch((error) => api.isAborted(error) || setLine(api.told(error)));
    return () => leaving.abort();
  }, [job.id, job.attempt]);
  return html`<a class="job" href=${`/job/${job.id}`} title=${line}>${line || "…"}</a>`;
}
