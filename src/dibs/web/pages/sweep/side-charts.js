// Beside the curves: the best value so far, and which parameters matter.
import { useCanvas } from "../../components/canvas.js";
import { Meter, Section } from "../../components/common.js";
import { number, plural } from "../../core/format.js";
import { html, useMemo } from "../../vendor/ui.js";
import * as importances from "./importance.js";
import * as plots from "./plots.js";

/**
 * @typedef {import("./runs.js").Run} Run
 * @typedef {import("./runs.js").Measure} Measure
 */

/** Each finished run as a dot, in the order of their ends, and the best until then as a line. @param {{runs: Run[], measure: Measure}} props */
export function BestSoFar({ runs, measure }) {
  const course = useMemo(() => importances.bestSoFar(runs, measure), [runs, measure]);
  const canvas = useCanvas(
    (board) => {
      const values = course.map((one) => one.value);
      const y = plots.scaleOf(values, { kept: course.map((one) => one.best) });
      const high = Math.max(2, course.length);
      const { box, across, up } = plots.frame(board, { x: { low: 0, high, isLog: false }, y, xTicks: plots.ticks(0, high, 4).filter(Number.isInteger) });
      const { ctx, colour } = board;
      ctx.save();
      ctx.beginPath();
      ctx.rect(box.left, box.top, box.width + 4, box.height);
      ctx.clip();
      ctx.fillStyle = colour("run");
      ctx.globalAlpha = 0.45;
      course.forEach((one, i) => {
        ctx.beginPath();
        ctx.arc(across(i + 1), up(one.value), 2.5, 0, 2 * Math.PI);
        ctx.fill();
      });
      ctx.globalAlpha = 1;
      ctx.strokeStyle = colour("done");
      ctx.lineWidth = 2;
      ctx.beginPath();
      course.forEach((one, i) => {
        if (i) ctx.lineTo(across(i + 1), up(course[i - 1].best));
        ctx.lineTo(across(i + 1), up(one.best));
      });
      ctx.stroke();
      ctx.restore();
    },
    [course],
  );
  if (course.length < 2) return null;
  const label = `Best ${measure.metric} after each of ${plural(course.length, "finished run")}: from ${number(course[0].best)} to ${number(course[course.length - 1].best)}`;
  return html`<${Section} title="Best so far" aside="by finished runs"><div class="panel plot low"><canvas ref=${canvas} role="img" aria-label=${label}></canvas></div><//>`;
}

/** The parameters by what they say about the metric. @param {{runs: Run[], measure: Measure}} props */
export function Importance({ runs, measure }) {
  const found = useMemo(() => importances.importance(runs, measure), [runs, measure]);
  if (!found.length) return null;
  return html`<${Section} title="Parameter importance" aside=${html`<span title="Share of the variance of finished runs that each parameter explains by itself. The arrow shows whether a higher parameter goes with a higher or lower metric.">variance explained</span>`}>
    <ul class="panel importance" aria-label="Parameter importance">
      ${found.slice(0, 8).map(({ name, share, trend }) => {
        const way = trend === null || Math.abs(trend) < 0.2 ? "" : trend > 0 ? " ↗" : " ↘";
        return html`<li key=${name}><span class="clip" title=${name}>${name}${way && html`<span class="quiet" title=${`rank correlation with ${measure.metric}: ${number(trend)}`}>${way}</span>`}</span>
          <${Meter} part=${share} label=${`${name} explains ${Math.round(100 * share)} %`} /><span class="number">${Math.round(100 * share)} %</span></li>`;
      })}
    </ul><//>`;
}
