// One card per GPU: its utilization in the last ten minutes, its memory, and its holder.
import { Empty, JobLink, Meter, Pill, Section } from "../../components/common.js";
import { holder, joined, shortName, sparkline } from "../../core/facts.js";
import { sizeOf, span } from "../../core/format.js";
import * as state from "../../core/state.js";
import * as themes from "../../core/themes.js";
import { useAnswer } from "../../core/use-answer.js";
import { html, useEffect, useRef } from "../../vendor/ui.js";

/** Milliseconds of the sparkline, and between two loads of it: in between the stream's own samples are added. */
const SHOWN_MS = 600_000;
const LOAD_MS = 15_000;

/**
 * @typedef {[string, number | null, number | null, number | null, number | null]} Sample
 * @typedef {{gpus: {id: string, recent: Sample[], minutes: Sample[]}[]}} History
 */

/** @param {{jobs: ReadonlyMap<number, import("../../core/types.js").Job>}} props running jobs by id, for their names */
export function GpuCards({ jobs }) {
  const { data } = useAnswer("/v1/gpus/history?minutes=10", { everyMs: LOAD_MS });
  const history = new Map(/** @type {History | null} */ (data)?.gpus.map((one) => [one.id, joined(one.minutes, one.recent)]));
  const { value: machine } = state.gpus;
  if (!machine) return null;
  if (!machine.gpus.length) {
    return html`<${Section} title="GPUs"><${Empty} title="No GPU here." text=${machine.problem ?? machine.restriction ?? "Jobs without GPUs run all the same."} /></${Section}>`;
  }
  return html`<${Section} title="GPUs">
    ${machine.problem && html`<p class="warn-text">${machine.problem}</p>`}
    ${machine.starts && html`<p class="warn-text">${machine.starts}</p>`}
    <ul class="gpus">
      ${machine.gpus.map((gpu) => html`<li key=${gpu.id}><${Card} gpu=${gpu} samples=${history.get(gpu.id) ?? []} jobs=${jobs} /></li>`)}
    </ul>
  </${Section}>`;
}

/** @param {{gpu: import("../../core/types.js").Gpu, samples: Sample[], jobs: ReadonlyMap<number, import("../../core/types.js").Job>}} props */
function Card({ gpu, samples, jobs }) {
  const who = holder(gpu, state.hello.value?.user);
  const job = who.job === null ? undefined : jobs.get(who.job);
  const left = job?.time_limit_s && job.started_at ? (Date.parse(job.started_at) + job.time_limit_s * 1000 - state.now.value) / 1000 : null;
  const heat = [gpu.temperature != null && `${gpu.temperature}°C`, gpu.power != null && `${Math.round(gpu.power)} W`].filter(Boolean).join(" ");
  const use = gpu.utilization == null ? "" : `${gpu.utilization}% · `;
  const memory = sizeOf(gpu.memory_used, gpu.memory_total);
  const isOdd = gpu.state === "drained" || gpu.state === "unhealthy";
  return html`<div class="panel gpu">
    <div class="line"><a href=${`/gpu/${gpu.index}`}><strong>GPU ${gpu.index}</strong> <span class="quiet">${shortName(gpu.name)}</span></a><span class="quiet">${heat}</span></div>
    <${Sparkline} samples=${samples} label=${`GPU ${gpu.index} busy ${gpu.utilization ?? "?"} % now, the last ten minutes as a line`} />
    <${Meter} part=${gpu.memory_used === null || !gpu.memory_total ? null : gpu.memory_used / gpu.memory_total} label=${`memory ${memory}`} kind=${gpu.state === "foreign" ? "warn" : ""} />
    <div class="line">
      <span class="who">${who.job !== null && html`<${JobLink} id=${who.job} name=${job?.name} /> `}<span class=${who.kind === "quiet" ? "quiet" : who.kind ? `${who.kind}-text` : ""} title=${who.text}>${who.text}</span>
        ${left !== null && left > 0 && html`<span class="quiet" title="left at most, by its time limit"> · ≤ ${span(left)}</span>`}${isOdd && html` <${Pill} word=${gpu.state} />`}</span>
      <span class="quiet number">${use}${memory}</span>
    </div>
    ${job?.marks?.map((mark) => html`<div key=${mark} class="warn-text">${mark}</div>`)}
  </div>`;
}

/** @param {{samples: Sample[], label: string}} props */
function Sparkline({ samples, label }) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const newest = samples.at(-1)?.[0];
  useEffect(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (ref.current);
    const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    g.scale(ratio, ratio);
    const colour = themes.colours();
    const end = newest ? Date.parse(newest) : 0;
    /** @type {[number, number][]} */
    let part = [];
    const finish = () => {
      if (!part.length) return;
      g.beginPath();
      part.forEach(([x, y]) => g.lineTo(x * width, 1.5 + (1 - y) * (height - 3)));
      g.strokeStyle = colour("accent");
      g.lineWidth = 1.4;
      g.stroke();
      g.lineTo(part[part.length - 1][0] * width, height);
      g.lineTo(part[0][0] * width, height);
      g.fillStyle = colour("accent-soft");
      g.globalCompositeOperation = "destination-over";
      g.fill();
      g.globalCompositeOperation = "source-over";
      part = [];
    };
    for (const point of sparkline(samples, end, SHOWN_MS)) point ? part.push(point) : finish();
    finish();
  }, [newest, samples.length, themes.changes.value, themes.chosen.value]);
  return html`<canvas class="spark" ref=${ref} role="img" aria-label=${label}></canvas>`;
}
