// A day of each GPU as a strip: how busy it was, how full its memory, and whose jobs had it. The page of a GPU has the charts.
import { useCanvas } from "../../components/canvas.js";
import { clock } from "../../core/format.js";
import * as router from "../../core/router.js";
import * as state from "../../core/state.js";
import { html, useRef, useState } from "../../vendor/ui.js";
import * as lanes from "../overview/lanes.js";
import * as strips from "./strip-columns.js";

/**
 * @typedef {import("../../core/types.js").Gpu} Gpu
 * @typedef {import("./gpu-facts.js").Day} Day
 * @typedef {import("../../core/types.js").Timeline} Timeline
 */

/** Pixels of a lane: use, memory, jobs, and the space below; at the left its name, below all the hours. */
const [USE, MEMORY, JOBS, SPACE] = [16, 6, 18, 12];
const LANE = USE + MEMORY + JOBS + SPACE;
const { LEFT, BELOW } = lanes;

/** @param {{gpus: readonly Gpu[], days: readonly Day[], timeline: Timeline | null, view: lanes.View}} props */
export function HeatStrips({ gpus, days, timeline, view }) {
  const [at, setAt] = useState(/** @type {{x: number, y: number, width: number, text: string[], job: number | null} | null} */ (null));
  const shown = useRef(/** @type {lanes.Piece[]} */ ([]));
  const height = gpus.length * LANE + BELOW;
  const canvas = useCanvas(
    ({ ctx, width, colour }) => {
      ctx.clearRect(0, 0, width, height);
      ctx.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
      ctx.textBaseline = "middle";
      const place = lanes.scale(view, width);
      const bottom = height - BELOW;
      for (const tick of lanes.ticks(view, width).found) {
        ctx.fillStyle = colour("faint");
        ctx.fillRect(Math.round(place(tick)), 0, 1, bottom);
      }
      ctx.fillStyle = colour("quiet");
      for (const { text, x } of lanes.tickLabels(view, width, (word) => ctx.measureText(word).width)) ctx.fillText(text, x, bottom + BELOW / 2);
      const many = Math.max(1, Math.floor((width - LEFT) / strips.COLUMN));
      gpus.forEach((gpu, i) => {
        const top = i * LANE;
        ctx.fillStyle = colour("text");
        ctx.fillText(`GPU ${gpu.index}`, 4, top + USE / 2 + 1);
        for (const [values, ink, y, high] of /** @type {[(number | null)[], string, number, number][]} */ ([[days[i]?.use ?? [], "run", top, USE], [days[i]?.memory ?? [], "wait", top + USE + 1, MEMORY]])) {
          ctx.fillStyle = colour("faint");
          ctx.fillRect(LEFT, y, width - LEFT, high);
          ctx.fillStyle = colour(ink);
          strips.columns(days[i]?.at ?? [], values, view, many).forEach((value, n) => {
            if (value === null || value < 1) return;
            ctx.globalAlpha = 0.12 + 0.88 * Math.min(1, value / 100);
            ctx.fillRect(LEFT + n * strips.COLUMN, y, strips.COLUMN, high);
          });
          ctx.globalAlpha = 1;
        }
      });
      const lane = new Map(gpus.map((gpu, i) => [gpu.id, i]));
      shown.current = timeline ? lanes.pieces(timeline, state.now.peek()).flatMap((piece) => {
        const own = lane.get(timeline.lanes[piece.lane].gpu_id);
        return own === undefined || piece.bar.is_plan ? [] : [{ ...piece, lane: own }];
      }) : [];
      for (const piece of shown.current) {
        const [left, right] = [Math.max(LEFT, place(piece.from)), Math.min(width, place(piece.to))];
        if (right <= left) continue;
        const top = piece.lane * LANE + USE + MEMORY + 3;
        const [part] = lanes.parts(piece);
        ctx.fillStyle = colour(part.fill);
        ctx.fillRect(left, top, Math.max(1.5, right - left - 1), JOBS - 3);
        const text = lanes.fitted(lanes.label(piece), right - left - 8, (one) => ctx.measureText(one).width);
        ctx.fillStyle = colour(part.ink);
        if (text) ctx.fillText(text, left + 4, top + (JOBS - 3) / 2 + 0.5);
      }
    },
    [gpus.map((gpu) => gpu.id).join(), days, timeline, view.from, view.to],
  );
  /** @param {PointerEvent} event */
  const moved = (event) => {
    const box = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const i = Math.floor(y / LANE);
    if (x < LEFT || !gpus[i]) return setAt(null);
    const moment = lanes.momentAt(view, box.width, x);
    const { use, memory } = strips.near(days[i], moment / 1000);
    const piece = shown.current.findLast((one) => one.lane === i && one.from <= moment && moment <= one.to);
    const text = [
      `GPU ${gpus[i].index} · ${clock(new Date(moment).toISOString(), state.now.peek())}`,
      use === null ? "not observed" : `use ${Math.round(use)} %${memory === null ? "" : `, memory ${Math.round(memory)} %`}`,
      piece ? `#${piece.bar.job} ${piece.bar.name} (${piece.bar.state})` : "no job of yours",
    ];
    setAt({ x, y, width: box.width, text, job: piece?.bar.job ?? null });
  };
  return html`<div class="panel lanes strips">
    <canvas ref=${canvas} role="img" aria-label="Use, memory and jobs of each GPU over the last 24 hours; the page of a GPU has them as charts and as a table" style=${{ height: `${height}px` }} class=${at?.job ? "on-job" : ""}
      onPointerMove=${moved} onPointerLeave=${() => setAt(null)} onClick=${() => at?.job && router.go(`/job/${at.job}`)}></canvas>
    ${at && html`<div class="card panel" style=${at.x > at.width - 280 ? { right: `${at.width - at.x + 12}px`, top: `${at.y + 12}px` } : { left: `${at.x + 12}px`, top: `${at.y + 12}px` }}>${at.text.map((one, i) => html`<div key=${i} class=${i ? "quiet" : ""}>${one}</div>`)}</div>`}
  </div>`;
}
