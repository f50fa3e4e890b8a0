// One card per GPU: its state as a coloured edge, its utilization in the last ten minutes, its memory, and its holder.
import { Empty, JobLink, Meter, Section } from "../../components/common.js";
import { columnsFor, holder, joined, reservedText, shortName, sparkline } from "../../core/facts.js";
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
    return html`<${Section} title="GPUs"><${Empty} title="No GPU on this machine" text=${machine.problem ?? machine.restriction ?? "Jobs without GPUs can run: -g 0. To try pretend GPUs: DIBS_DEVICES=fake:4."} /></${Section}>`;
  }
  return html`<${Section} title="GPUs">
    ${machine.problem && html`<p class="warn-text">${machine.problem}</p>`}
    ${machine.starts && html`<p class="warn-text">${machine.starts}</p>`}
    <ul class="gpus" style=${{ "--wide": columnsFor(machine.gpus.length, 4), "--middle": columnsFor(machine.gpus.length, machine.gpus.length % 4 === 0 ? 4 : 3), "--narrow": machine.gpus.length > 1 ? 2 : 1 }}>
      ${machine.gpus.map((gpu) => html`<li key=${gpu.id}><${Card} gpu=${gpu} samples=${history.get(gpu.id) ?? []} jobs=${jobs} /></li>`)}
    </ul>
  </${Section}>`;
}

/** @param {{gpu: import("../../core/types.js").Gpu, samples: Sample[], jobs: ReadonlyMap<number, import("../../core/types.js").Job>}} props */
function Card({ gpu, samples, jobs }) {
  const who = holder(gpu, state.hello.value?.user);
  const job = who.job === null ? undefined : jobs.get(who.job);
  const heat = [gpu.temperature != null && `${gpu.temperature} °C`, gpu.power != null && `${Math.round(gpu.power)} W`].filter(Boolean).join(" · ");
  const memory = sizeOf(gpu.memory_used, gpu.memory_total);
  return html`<div class=${`panel gpu is-${who.kind}`}>
    <div class="line"><a href=${`/gpu/${gpu.index}`}><strong>GPU ${gpu.index}</strong> <span class="quiet model">${shortName(gpu.name)}</span></a><small class="heat">${heat}</small></div>
    <${Sparkline} samples=${samples} label=${`GPU ${gpu.index} busy ${gpu.utilization ?? "?"} % now, the last ten minutes as a line`} />
    <div class="pair">
      <div><div class="line"><span>Use</span><span class="number">${gpu.utilization == null ? "–" : `${gpu.utilization} %`}</span></div>
        <${Meter} part=${gpu.utilization == null ? null : gpu.utilization / 100} label=${`use ${gpu.utilization ?? "unknown"} %`} /></div>
      <div><div class="line"><span>Memory</span><span class="number">${memory}</span></div>
        <${Meter} part=${gpu.memory_used === null || !gpu.memory_total ? null : gpu.memory_used / gpu.memory_total} label=${`memory ${memory}`} kind="memory" /></div>
    </div>
    <${Owner} gpu=${gpu} who=${who} job=${job} />
  </div>`;
}

/** The holder's line, and how much of its time is over. @param {{gpu: import("../../core/types.js").Gpu, who: ReturnType<typeof holder>, job?: import("../../core/types.js").Job}} props */
function Owner({ gpu, who, job }) {
  const ink = { foreign: "warn-text", drained: "warn-text", unhealthy: "bad-text", blocked: "bad-text", free: "done-text" }[/** @type {string} */ (who.kind)] ?? "";
  const began = job?.started_at ?? who.since;
  const ran = began ? Math.max(0, state.now.value - Date.parse(began)) / 1000 : null;
  const limit = job?.time_limit_s ?? null;
  const idle = gpu.idle_since && who.kind === "free" ? (state.now.value - Date.parse(gpu.idle_since)) / 1000 : null;
  const most = limit ? ` of ${span(limit)}` : "";
  const time = ran !== null ? span(ran) : idle !== null && idle > 60 ? `idle for ${span(idle)}` : "";
  const kept = gpu.reservation && who.kind !== "reserved" ? reservedText(gpu.reservation, state.hello.value?.user) : "";
  return html`<div class="line owner">
      <span title=${who.text}>${who.job !== null && html`<${JobLink} id=${who.job} name=${job?.name} /> `}<span class=${ink}>${who.text}</span>
        ${job?.marks?.map((mark) => html`<span key=${mark} class="warn-text" title=${mark}> · ${mark}</span>`)}</span>
      <small>${time}<span class="most">${ran !== null && most}</span></small>
    </div>
    ${kept && html`<small class="clip" title=${kept}>${kept}</small>`}
    ${limit && ran !== null && html`<${Meter} part=${ran / limit} label=${`${time}${most}`} kind=${ran > 0.9 * limit ? "warn" : "time"} />`}`;
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
