// The curves of all runs in one picture: what one opens a sweep for. Two canvases: all of them, and the one pointed at.
import { useCanvas } from "../../components/canvas.js";
import { Problem, Section } from "../../components/common.js";
import { options, SeriesOptions } from "../../components/series-options.js";
import { number, plural, span } from "../../core/format.js";
import * as router from "../../core/router.js";
import { smoothed } from "../../core/series.js";
import { useAnswer } from "../../core/use-answer.js";
import { html, useMemo, useSignal, useState } from "../../vendor/ui.js";
import { bands, nearest } from "./curve-data.js";
import * as plots from "./plots.js";
import { grouped, keyOf } from "./runs.js";

/**
 * @typedef {import("./curve-data.js").Curve} Curve
 * @typedef {import("./runs.js").Run} Run
 * @typedef {import("./runs.js").Measure} Measure
 * @typedef {{index: number, colour: string | null, isOpen: boolean}} Look how the line of a run is drawn
 */

/** Pixels within which the pointer is at a curve. */
const NEAR = 24;
/** Milliseconds between two loads while runs are active. */
const REFRESH_MS = 10_000;
/** Groups of seeds that have a band each; with more they would hide each other. */
const MOST_BANDS = 12;

/**
 * @param {object} props
 * @param {number} props.id of the sweep
 * @param {Run[]} props.runs
 * @param {Measure} props.measure
 * @param {readonly {key: number, colour: string | null, isOpen: boolean, isEarly: boolean}[]} props.lines of all runs, the best last
 * @param {ReadonlySet<number>} props.chosen
 * @param {import("../../vendor/ui.js").Signal<number | null>} props.pointed
 * @param {number | null} props.best
 * @param {boolean} props.isLive whether runs are active
 * @param {boolean} props.canGroup whether runs differ in their seed
 * @param {(index: number | null) => void} props.point
 * @param {(index: number) => void} props.open
 */
export function Curves({ id, runs, measure, lines, chosen, pointed, best, isLive, canGroup, point, open }) {
  const query = router.query.value;
  const { isTime, isLog, weight } = options();
  const isMean = canGroup && query.get("bands") === "1";
  const path = `/v1/sweeps/${id}/curves?metric=${encodeURIComponent(measure.metric)}&x=${isTime ? "time" : "step"}`;
  /** @type {import("../../core/use-answer.js").Answer<{curves: Curve[], more: boolean}>} */
  const { data, error } = useAnswer(path, { everyMs: isLive ? REFRESH_MS : 0 });
  const curves = useMemo(() => (data?.curves ?? []).map((curve) => ({ ...curve, y: smoothed(curve.y, weight) })), [data, weight]);
  const aside = html`<${SeriesOptions} />
    ${canGroup && html`<button type="button" class="small" aria-pressed=${isMean} onClick=${() => router.setQuery({ bands: isMean ? null : "1" })}>Mean ± sd over seeds</button>`}`;
  return html`<${Section} title=${`${measure.metric} of every run`} aside=${aside} class="curves">
    ${!data && (error ? html`<${Problem} error=${error} />` : html`<div class="panel plot is-empty quiet">Loading…</div>`)}
    ${data && !curves.length && html`<p class="panel quiet">No run has reported ${measure.metric} over time. In the job: <code>dibs report ${measure.metric}=0.3 step=10</code>, or <code>dibs.report(${measure.metric}=0.3, step=10)</code> in Python.</p>`}
    ${curves.length > 0 && html`<${Picture} curves=${curves} runs=${runs} measure=${measure} lines=${lines} chosen=${chosen} pointed=${pointed} best=${best} point=${point} open=${open} isTime=${isTime} isLog=${isLog} isMean=${isMean} />`}
    ${lines.some((line) => line.isEarly) && curves.length > 0 && html`<p class="quiet">× A run that was stopped early</p>`}
    ${data?.more && html`<p class="quiet">Only the first ${plural(1000, "run")} are drawn.</p>`}
  <//>`;
}

/** Seconds on an axis. @param {number} value */
const timeText = (value) => (value === 0 ? "0" : span(value));

/**
 * Scales of the picture: without the few points far beyond the others, but with the last value of every run.
 * @param {readonly Curve[]} curves @param {boolean} isLog
 */
export function scalesOf(curves, isLog) {
  const values = curves.flatMap((curve) => curve.y);
  const y = plots.scaleOf(values, { isLog, kept: curves.map((curve) => curve.y[curve.y.length - 1]) });
  const low = Math.min(0, ...curves.map((curve) => curve.x[0]));
  const high = Math.max(...curves.map((curve) => curve.x[curve.x.length - 1]));
  return { x: { low, high: high > low ? high : low + 1, isLog: false }, y };
}

/** @param {any} props see `Curves` */
function Picture({ curves, runs, measure, lines, chosen, pointed, best, point, open, isTime, isLog, isMean }) {
  const { x, y } = useMemo(() => scalesOf(curves, isLog), [curves, isLog]);
  // A signal: the canvas on top is drawn after this one knows where its curves are.
  const places = useSignal(/** @type {{drawn: any[], frame: any}} */ ({ drawn: [], frame: null }));
  const [at, setAt] = useState(/** @type {{left: number, top: number, width: number, text: string, index: number} | null} */ (null));
  const order = useMemo(() => ordered(curves, lines), [curves, lines]);
  const groups = useMemo(() => (isMean ? bands(curves, seedGroups(runs, measure)) : []), [isMean, curves, runs, measure]);
  const base = useCanvas(
    (board) => {
      const frame = plots.frame(board, { x, y, xText: isTime ? timeText : undefined });
      const drawn = placed(frame, order, isLog);
      places.value = { frame, drawn };
      // All of them in grey, once: a brush then draws only those that it takes.
      const { ctx, colour } = board;
      inside(ctx, frame, () => {
        ctx.globalAlpha = 0.5;
        ctx.strokeStyle = colour("line");
        if (!isMean) for (const one of drawn) stroke(ctx, one.xs, one.ys);
      });
    },
    [order, x, y, isTime, isMean],
  );
  const middle = useCanvas(
    ({ ctx, width, height, colour }) => {
      ctx.clearRect(0, 0, width, height);
      const { frame, drawn } = places.peek();
      if (!frame) return;
      inside(ctx, frame, () => {
        drawChosen(ctx, drawn, chosen, colour, isMean);
        if (isMean) drawBands(ctx, frame, groups, lines, colour);
      });
    },
    [order, groups, chosen, x, y, isTime, isMean],
  );
  /** @param {PointerEvent} event */
  const moved = (event) => {
    const rect = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    const { drawn } = places.peek();
    const found = nearest(drawn.filter((/** @type {{index: number}} */ one) => chosen.has(one.index)), event.clientX - rect.left, event.clientY - rect.top, NEAR);
    point(found?.index ?? null);
    const one = found && drawn.find((/** @type {{index: number}} */ each) => each.index === found.index);
    const curve = found && curves.find((/** @type {Curve} */ each) => each.index === found.index);
    if (!found || !one || !curve) return setAt(null);
    const place = isTime ? timeText(curve.x[found.at]) : `step ${number(curve.x[found.at])}`;
    setAt({ left: one.xs[found.at], top: one.ys[found.at], width: rect.width, index: found.index, text: `#${curve.job} · ${place} · ${measure.metric} ${number(curve.y[found.at])}` });
  };
  const leave = () => {
    setAt(null);
    point(null);
  };
  const summary = `${measure.metric} of ${plural(curves.length, "run")} over ${isTime ? "time" : "steps"}${lines.some((/** @type {{isEarly: boolean}} */ line) => line.isEarly) ? "; a cross is where a run was stopped early" : ""}; the table below has their last values`;
  return html`<div class="panel plot" onPointerMove=${moved} onPointerLeave=${leave} onClick=${() => at && open(at.index)}>
    <canvas ref=${base} role="img" aria-label=${summary}></canvas><canvas class="over" ref=${middle} aria-hidden="true"></canvas><${Over} places=${places} pointed=${pointed} best=${isMean ? null : best} at=${at} />
    ${at && html`<div class="card panel" style=${at.left > at.width / 2 ? { right: `${at.width - at.left + 12}px`, top: `${at.top + 12}px` } : { left: `${at.left + 12}px`, top: `${at.top + 12}px` }}>${at.text}</div>`}
  </div>`;
}

/** The curve that is pointed at, and the best one, on top: the others need not be drawn again. @param {any} props */
function Over({ places, pointed, best, at }) {
  const index = pointed.value;
  const { frame, drawn } = places.value;
  const canvas = useCanvas(
    ({ ctx, width, height, colour }) => {
      ctx.clearRect(0, 0, width, height);
      if (!frame) return;
      inside(ctx, frame, () => {
        for (const [which, ink, thick] of /** @type {[number | null, string, number][]} */ ([[best, "text", 2.2], [index, "accent", 2.6]])) {
          const one = drawn.find((/** @type {{index: number}} */ each) => each.index === which);
          if (!one) continue;
          ctx.strokeStyle = colour(ink);
          ctx.lineWidth = thick;
          stroke(ctx, one.xs, one.ys);
        }
      });
      if (!at) return;
      ctx.fillStyle = colour("accent");
      ctx.beginPath();
      ctx.arc(at.left, at.top, 4, 0, 2 * Math.PI);
      ctx.fill();
    },
    [index, best, at, frame, drawn],
  );
  return html`<canvas class="over" ref=${canvas} aria-hidden="true"></canvas>`;
}

/** Curves in the order of their lines, with how they are drawn: the best last, on top. @param {readonly Curve[]} curves @param {readonly {key: number, colour: string | null, isOpen: boolean, isEarly: boolean}[]} lines */
function ordered(curves, lines) {
  const byIndex = new Map(curves.map((curve) => [curve.index, curve]));
  return lines.flatMap((line) => {
    const curve = byIndex.get(line.key);
    return curve ? [{ ...curve, colour: line.colour, isOpen: line.isOpen, isEarly: line.isEarly }] : [];
  });
}

/** @param {readonly Run[]} runs @param {Measure} measure */
const seedGroups = (runs, measure) => grouped(runs, measure).slice(0, MOST_BANDS).map((group) => ({ key: keyOf(group.params), indices: group.runs.map((run) => run.index) }));

/** Return where each curve is, in pixels. @param {any} frame @param {ReturnType<typeof ordered>} order @param {boolean} isLog */
function placed(frame, order, isLog) {
  const below = frame.box.top + frame.box.height + 9;
  return order.map((curve) => ({
    index: curve.index,
    colour: curve.colour,
    isOpen: curve.isOpen,
    isEarly: curve.isEarly,
    xs: Float32Array.from(curve.x, frame.across),
    ys: Float32Array.from(curve.y, (value) => (isLog && value <= 0 ? below : frame.up(value))),
  }));
}

/** Draw within the axes. @param {CanvasRenderingContext2D} ctx @param {any} frame @param {() => void} draw */
function inside(ctx, frame, draw) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(frame.box.left, frame.box.top, frame.box.width, frame.box.height);
  ctx.clip();
  draw();
  ctx.restore();
}

/** @param {CanvasRenderingContext2D} ctx @param {ReturnType<typeof placed>} drawn @param {ReadonlySet<number>} chosen @param {(name: string) => string} colour @param {boolean} isMean */
function drawChosen(ctx, drawn, chosen, colour, isMean) {
  ctx.lineWidth = 1;
  ctx.globalAlpha = isMean ? 0.18 : drawn.length > 100 ? 0.6 : 0.9;
  for (const one of drawn) {
    if (!chosen.has(one.index)) continue;
    ctx.strokeStyle = one.colour ?? colour("quiet");
    ctx.setLineDash(one.isOpen ? [4, 3] : []);
    stroke(ctx, one.xs, one.ys);
    if (one.isEarly && !isMean) cross(ctx, one.xs[one.xs.length - 1], one.ys[one.ys.length - 1]);
  }
  ctx.globalAlpha = 1;
  ctx.setLineDash([]);
}

/** The end of a run that was stopped early. @param {CanvasRenderingContext2D} ctx @param {number} x @param {number} y */
function cross(ctx, x, y) {
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.moveTo(x - 3.5, y - 3.5);
  ctx.lineTo(x + 3.5, y + 3.5);
  ctx.moveTo(x + 3.5, y - 3.5);
  ctx.lineTo(x - 3.5, y + 3.5);
  ctx.stroke();
}

/** @param {CanvasRenderingContext2D} ctx @param {any} frame @param {import("./curve-data.js").Band[]} groups @param {readonly {key: number, colour: string | null}[]} lines @param {(name: string) => string} colour */
function drawBands(ctx, frame, groups, lines, colour) {
  const inks = new Map(lines.map((line) => [line.key, line.colour]));
  // The best group last, on top.
  for (const band of groups.toReversed()) {
    const ink = band.indices.map((index) => inks.get(index)).find(Boolean) ?? colour("quiet");
    const xs = band.x.map(frame.across);
    ctx.beginPath();
    band.high.forEach((value, i) => ctx.lineTo(xs[i], frame.up(value)));
    for (let i = xs.length - 1; i >= 0; i -= 1) ctx.lineTo(xs[i], frame.up(band.low[i]));
    ctx.fillStyle = ink;
    ctx.globalAlpha = 0.18;
    ctx.fill();
    ctx.globalAlpha = 1;
    ctx.strokeStyle = ink;
    ctx.lineWidth = 2;
    stroke(ctx, xs, band.mean.map(frame.up));
  }
}

/** @param {CanvasRenderingContext2D} ctx @param {ArrayLike<number>} xs @param {ArrayLike<number>} ys */
function stroke(ctx, xs, ys) {
  ctx.beginPath();
  for (let i = 0; i < xs.length; i += 1) ctx.lineTo(xs[i], ys[i]);
  ctx.stroke();
}
