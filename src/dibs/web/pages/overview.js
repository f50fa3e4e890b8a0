// The overview: free GPUs, running jobs, expected starts, failures.
import { Empty, Problem } from "../components/common.js";
import { failedLately, nextFree, nextStart, FAILED_FOR_H } from "../core/facts.js";
import { count } from "../core/format.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { html } from "../vendor/ui.js";
import { GpuCards } from "./overview/gpu-cards.js";
import { Failures, Waiting } from "./overview/job-lists.js";
import { Timeline } from "./overview/timeline.js";

/**
 * @typedef {import("../core/types.js").Job} Job
 * @typedef {{jobs: Job[], next: string | null}} Rows
 */

/** Waiting jobs and failures that are shown. */
const WAITING_SHOWN = 7;
const FAILURES_SHOWN = 5;
const FIRST_COMMANDS = ["dibs add -g 1 python train.py", "dibs sweep -p lr=1e-3,1e-4 -- python train.py --lr {lr}", "dibs gpus"];

export default function Overview() {
  const line = useAnswer(`/v1/queue/line?most=${WAITING_SHOWN}`, { isLive: true });
  const active = useAnswer("/v1/jobs?limit=200&state=starting,running,paused,stopping", { isLive: true });
  const failed = useAnswer("/v1/jobs?limit=100&state=failed,timeout,lost&sort=-finished", { isLive: true });
  const counts = state.counts.value;
  const total = Object.values(counts).reduce((sum, one) => sum + one, 0);
  const running = /** @type {Rows | null} */ (active.data)?.jobs ?? [];
  const failures = /** @type {Rows | null} */ (failed.data)?.jobs ?? [];
  const isMore = Boolean(/** @type {Rows | null} */ (failed.data)?.next);
  const waiting = /** @type {{line: import("../core/facts.js").InLine[]} | null} */ (line.data)?.line ?? [];
  const isEmpty = state.hello.value !== null && total === 0;
  return html`
    <${Facts} line=${waiting} running=${running} failed=${failedLately(failures, isMore, state.now.value)} />
    ${[line, active, failed].map((one, i) => !one.data && html`<${Problem} key=${i} error=${one.error} retry=${one.reload} />`)}
    <${GpuCards} jobs=${new Map(running.map((job) => [job.id, job]))} />
    ${isEmpty && html`<${Empty} title="No jobs yet. Three commands to begin with, in a terminal, or press n to submit one here:" commands=${FIRST_COMMANDS} />`}
    ${!isEmpty && html`<${Timeline} />`}
    ${waiting.length > 0 && html`<${Waiting} line=${waiting} total=${(counts.queued ?? 0) + (counts.held ?? 0)} reload=${line.reload} />`}
    ${failures.length > 0 && html`<${Failures} jobs=${failures.slice(0, FAILURES_SHOWN)} isMore=${failures.length > FAILURES_SHOWN} />`}
  `;
}

/** @param {{line: import("../core/facts.js").InLine[], running: Job[], failed: {count: number, text: string}}} props */
function Facts({ line, running, failed }) {
  const counts = state.counts.value;
  const active = (counts.running ?? 0) + (counts.starting ?? 0) + (counts.stopping ?? 0) + (counts.paused ?? 0);
  const now = state.now.value;
  const next = nextStart(line, now);
  const free = nextFree(state.gpus.value?.gpus ?? [], line, running, now);
  return html`<ul class="facts" aria-label="In short">
    <li><a href="/jobs?state=active"><b>${count(active)}</b> running</a></li>
    <li><a href="/jobs?state=queued,held"><b>${count((counts.queued ?? 0) + (counts.held ?? 0))}</b> queued</a></li>
    <li><a href="/jobs?state=failed,timeout,lost&sort=-finished" class=${failed.count ? "bad-text" : ""}><b>${failed.text}</b> failed in ${FAILED_FOR_H} h</a></li>
    ${free && html`<li>${free}</li>`}
    ${next && html`<li class="quiet">${next}</li>`}
  </ul>`;
}
