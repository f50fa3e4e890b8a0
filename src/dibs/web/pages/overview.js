// The overview: free GPUs, running jobs, expected starts, failures.
import { Empty, Problem } from "../components/common.js";
import { FAILED_FOR_H, failedLately, freeGpus, nextStart } from "../core/facts.js";
import { count, plural } from "../core/format.js";
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
/** @type {[string, string][]} */
const FIRST_STEPS = [
  ["Run a command on one GPU", "dibs add -g 1 python train.py"],
  ["Run it for several values", "dibs sweep 'python train.py --lr {lr}' -p lr=1e-3,1e-4"],
  ["Watch the newest job", "dibs follow @"],
];

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
    ${isEmpty && html`<${Empty} title="No jobs yet" text="Press New job above, or type in a terminal:" steps=${FIRST_STEPS} />`}
    ${!isEmpty && html`<${Timeline} />`}
    ${waiting.length > 0 && html`<${Waiting} line=${waiting} total=${(counts.queued ?? 0) + (counts.held ?? 0)} reload=${line.reload} />`}
    ${failures.length > 0 && html`<${Failures} jobs=${failures.slice(0, FAILURES_SHOWN)} isMore=${failures.length > FAILURES_SHOWN} />`}
  `;
}

/** The headline: what runs, what waits, what failed, what is free, what comes next. @param {{line: import("../core/facts.js").InLine[], running: Job[], failed: {count: number, text: string}}} props */
function Facts({ line, running, failed }) {
  const counts = state.counts.value;
  const active = (counts.running ?? 0) + (counts.starting ?? 0) + (counts.stopping ?? 0) + (counts.paused ?? 0);
  const held = counts.held ?? 0;
  const now = state.now.value;
  const machine = state.gpus.value;
  const gpus = machine?.gpus ?? [];
  const free = freeGpus(gpus, line, running, now);
  const next = nextStart(line, now);
  const used = gpus.filter((gpu) => gpu.holders.some((one) => one.user === state.hello.value?.user)).length;
  return html`<ul class="tiles" aria-label="In short">
    <${Tile} what="Running" value=${count(active)} more=${used ? `on ${plural(used, "GPU")}` : active ? "without a GPU" : "nothing runs"} href="/jobs?state=active" />
    <${Tile} what="Queued" value=${count((counts.queued ?? 0) + held)} more=${held ? `${count(held)} held` : counts.queued ? "listed below, next first" : "nothing waits"} href="/jobs?state=queued,held" />
    <${Tile} what=${`Failed in ${FAILED_FOR_H} h`} value=${failed.text} more=${failed.count ? "see why" : "no failures"} isBad=${failed.count > 0} href="/jobs?state=failed,timeout,lost&sort=-finished" />
    <${Tile} what="GPUs free" value=${gpus.length ? `${free.count} of ${gpus.length}` : machine ? "none" : "–"} more=${free.more} href="/gpus" />
    <${Tile} what="Your next start" value=${next.value} more=${next.more} href=${next.job ? `/job/${next.job}` : "/jobs?state=queued,held"} />
  </ul>`;
}

/** @param {{what: string, value: string, more: string, href: string, isBad?: boolean}} props */
function Tile({ what, value, more, href, isBad = false }) {
  return html`<li><a class=${`tile${isBad ? " is-bad" : ""}`} href=${href} title=${more}><span class="what">${what}</span> <b>${value}</b> <span class="more">${more}</span></a></li>`;
}
