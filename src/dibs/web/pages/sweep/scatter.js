// One parameter against the metric: a dot per run.
import { useCanvas } from "../../components/canvas.js";
import { html } from "../../vendor/ui.js";
import * as axes from "./axes.js";

const EDGE = 34;

/**
 * @param {{across: import("./axes.js").Axis, up: import("./axes.js").Axis, dots: {key: number, x: import("./axes.js").Value, y: number | null, colour: string | null}[], chosen: ReadonlySet<number>, best: number | null}} props
 */
export function Scatter({ across, up, dots, chosen, best }) {
  const canvas = useCanvas(
    ({ ctx, width, height, colour }) => {
      ctx.clearRect(0, 0, width, height);
      const x = (/** @type {number} */ place) => EDGE + place * (width - 2 * EDGE);
      const y = (/** @type {number} */ place) => height - EDGE + 8 - place * (height - EDGE - 16);
      ctx.strokeStyle = colour("line");
      ctx.strokeRect(EDGE - 8, 4, width - 2 * EDGE + 16, height - EDGE + 8);
      for (const isChosen of [false, true]) {
        for (const dot of dots) {
          const [a, b] = [axes.placeOf(across, dot.x), axes.placeOf(up, dot.y)];
          if (a === null || b === null || chosen.has(dot.key) !== isChosen) continue;
          ctx.globalAlpha = isChosen ? 0.9 : 0.35;
          ctx.fillStyle = isChosen ? (dot.colour ?? colour("quiet")) : colour("line");
          ctx.beginPath();
          ctx.arc(x(a), y(b), dot.key === best ? 5 : 3, 0, 2 * Math.PI);
          ctx.fill();
          if (dot.key !== best) continue;
          ctx.strokeStyle = colour("text");
          ctx.stroke();
        }
      }
      ctx.globalAlpha = 1;
      ctx.fillStyle = colour("quiet");
      ctx.font = "11px system-ui, 'DejaVu Sans', sans-serif";
      ctx.textAlign = "center";
      for (const tick of axes.ticks(across)) ctx.fillText(tick.text.slice(0, 10), x(tick.at), height - 4);
      ctx.textAlign = "left";
      for (const tick of axes.ticks(up)) ctx.fillText(tick.text, 0, y(tick.at) + (tick.at ? 8 : 0));
    },
    [across, up, dots, chosen, best],
  );
  return html`<figure class="scatter panel"><figcaption>${across.name}</figcaption><canvas ref=${canvas} aria-hidden="true"></canvas></figure>`;
}
