// Parallel coordinates: a line per run, a vertical axis per parameter, the metric last. Dragging along an axis brushes.
import { useCanvas } from "../../components/canvas.js";
import { html, useRef, useState } from "../../vendor/ui.js";
import * as axes from "./axes.js";
import * as plots from "./plots.js";
import { shade } from "./shade.js";

/**
 * @typedef {import("./axes.js").Axis} Axis
 * @typedef {import("./axes.js").Brush} Brush
 * @typedef {{key: number, values: import("./axes.js").Value[], colour: string | null, isOpen: boolean}} Line `isOpen`: it has not ended
 */

const HEIGHT = 300;
const TOP = 14;
const BOTTOM = 14;
/** Pixels beside the first axis and, with the colour bar, the last one. */
const SIDE = 54;
const BAR = 96;
/** Pixels within which the pointer is at an axis, or at a line. */
const NEAR = 14;
const STEP = 0.05;

/** @param {number} count @param {number} width @param {number} i */
const across = (count, width, i) => (count === 1 ? width / 2 : SIDE + ((width - SIDE - BAR) * i) / (count - 1));
/** @param {number} place */
const down = (place) => TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
/** @param {number} y */
const up = (y) => Math.min(1, Math.max(0, 1 - (y - TOP) / (HEIGHT - TOP - BOTTOM)));

/**
 * @param {object} props
 * @param {Axis[]} props.shown
 * @param {Line[]} props.lines
 * @param {ReadonlyMap<string, Brush>} props.brushes
 * @param {(name: string, brush: Brush | undefined) => void} props.brush
 * @param {(name: string, brush: Brush | undefined) => void} props.preview the brush that is being drawn
 * @param {(names: string[]) => void} props.order
 * @param {{low: number, high: number, isReversed: boolean} | null} props.bar what the colours mean
 * @param {ReadonlySet<number>} props.chosen keys of the lines within all brushes
 * @param {import("../../vendor/ui.js").Signal<number | null>} props.pointed key of the line that is pointed at, here or in the table
 * @param {number | null} props.best
 * @param {(key: number | null) => void} props.point
 * @param {(key: number) => void} props.open
 */
export function Parallel({ shown, lines, brushes, brush, preview, order, bar, chosen, pointed, best, point, open }) {
  const [drag, setDrag] = useState(/** @type {{name: string, from: number, to: number} | null} */ (null));
  const carried = useRef(/** @type {string | null} */ (null));
  const canvas = useCanvas(
    ({ ctx, width, colour }) => {
      ctx.clearRect(0, 0, width, HEIGHT);
      const path = (/** @type {Line} */ line) => trace(ctx, shown, line, width);
      const isBrushed = brushes.size > 0;
      ctx.lineWidth = 1;
      ctx.strokeStyle = colour("line");
      ctx.globalAlpha = 0.55;
      for (const line of lines) if (isBrushed && !chosen.has(line.key)) path(line);
      ctx.globalAlpha = lines.length > 400 ? 0.5 : 0.85;
      for (const line of lines) {
        if (!chosen.has(line.key)) continue;
        ctx.strokeStyle = line.colour ?? colour("quiet");
        ctx.setLineDash(line.isOpen ? [3, 3] : []);
        path(line);
      }
      ctx.globalAlpha = 1;
      ctx.setLineDash([]);
      const first = lines.find((one) => one.key === best);
      if (first) {
        ctx.lineWidth = 2.5;
        ctx.strokeStyle = colour("text");
        path(first);
      }
      ctx.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
      if (bar) drawBar(ctx, width, bar, colour);
      for (const [i, axis] of shown.entries()) {
        const x = across(shown.length, width, i);
        ctx.lineWidth = 1;
        ctx.strokeStyle = colour("text");
        ctx.beginPath();
        ctx.moveTo(x, down(1));
        ctx.lineTo(x, down(0));
        ctx.stroke();
        const held = drag?.name === axis.name ? /** @type {Brush} */ ([Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)]) : brushes.get(axis.name);
        if (held) {
          ctx.fillStyle = colour("accent");
          ctx.globalAlpha = 0.35;
          ctx.fillRect(x - 7, down(held[1]), 14, Math.max(3, down(held[0]) - down(held[1])));
          ctx.globalAlpha = 1;
        }
        const marks = axes.ticks(axis);
        // Long words of the first axis have no room at its left.
        const isRight = i === 0 && marks.some((tick) => ctx.measureText(tick.text.slice(0, 14)).width > SIDE - 12);
        ctx.textAlign = isRight ? "left" : "right";
        for (const tick of marks) {
          const y = Math.round(down(tick.at)) + 0.5;
          ctx.beginPath();
          ctx.moveTo(x - (tick.text ? 5 : 3), y);
          ctx.lineTo(x, y);
          ctx.stroke();
          if (!tick.text) continue;
          const label = tick.text.length > 14 ? `${tick.text.slice(0, 13)}…` : tick.text;
          // A background behind the text, so that it is readable across lines.
          const wide = ctx.measureText(label).width;
          ctx.fillStyle = colour("panel");
          ctx.globalAlpha = 0.85;
          ctx.fillRect(isRight ? x + 6 : x - 9 - wide, y - 8, wide + 3, 15);
          ctx.globalAlpha = 1;
          ctx.fillStyle = colour("text");
          ctx.fillText(label, isRight ? x + 8 : x - 7, y + 4);
        }
      }
    },
    [shown, lines, brushes, chosen, best, drag],
  );

  /** @param {PointerEvent} event */
  const where = (event) => {
    const box = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const axis = shown.find((_, i) => Math.abs(across(shown.length, box.width, i) - x) <= NEAR);
    return { x, y, width: box.width, axis };
  };
  /** @param {PointerEvent} event */
  const began = (event) => {
    const { y, axis } = where(event);
    if (!axis || event.button !== 0) return;
    /** @type {HTMLElement} */ (event.currentTarget).setPointerCapture(event.pointerId);
    setDrag({ name: axis.name, from: up(y), to: up(y) });
  };
  /** @param {PointerEvent} event */
  const moved = (event) => {
    const { x, y, width } = where(event);
    if (drag) {
      setDrag({ ...drag, to: up(y) });
      preview(drag.name, [Math.min(drag.from, up(y)), Math.max(drag.from, up(y))]);
    } else point(nearest(shown, lines, chosen, width, x, y));
  };
  /** @param {PointerEvent} event */
  const ended = (event) => {
    if (!drag) {
      const { x, y, width } = where(event);
      const key = nearest(shown, lines, chosen, width, x, y);
      if (key !== null) open(key);
      return;
    }
    const [from, to] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
    // A click on an axis removes its brush.
    brush(drag.name, to - from < 0.01 ? undefined : [from, to]);
    preview(drag.name, undefined);
    setDrag(null);
  };
  /** @param {KeyboardEvent} event @param {string} name */
  const pressed = (event, name) => {
    const names = shown.map((one) => one.name);
    const at = names.indexOf(name);
    const by = event.key === "ArrowUp" ? STEP : event.key === "ArrowDown" ? -STEP : 0;
    if (by) brush(name, axes.nudged(brushes.get(name), event.shiftKey ? "high" : "low", by));
    else if (event.key === "Delete" || event.key === "Backspace") brush(name, undefined);
    else if (event.key === "ArrowLeft" && at > 0) order(swapped(names, at, at - 1));
    else if (event.key === "ArrowRight" && at < names.length - 1) order(swapped(names, at, at + 1));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  /** @param {string} name */
  const dropped = (name) => {
    const names = shown.map((one) => one.name);
    const [from, to] = [names.indexOf(carried.current ?? ""), names.indexOf(name)];
    carried.current = null;
    if (from < 0 || from === to) return;
    names.splice(to, 0, ...names.splice(from, 1));
    order(names);
  };
  return html`<div class="panel parallel">
    <div class="titles">
      ${shown.map(
        (axis, i) => html`<button type="button" class="link" key=${axis.name} draggable="true" aria-label=${titleOf(axis, brushes.get(axis.name))}
          title="Drag to move this axis. Arrows: left and right move it, up and down brush it (with Shift the upper end), Delete clears."
          style=${{ left: shown.length === 1 ? "50%" : `calc(${SIDE}px + (100% - ${SIDE + BAR}px) * ${i / (shown.length - 1)})` }}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => pressed(event, axis.name)}
          onDragStart=${() => (carried.current = axis.name)}
          onDragOver=${(/** @type {DragEvent} */ event) => event.preventDefault()}
          onDrop=${() => dropped(axis.name)}><span class="clip">${axis.name}</span>${axis.kind === "log" && html`<small>log</small>`}</button>`,
      )}
    </div>
    <div class="stack"><${Pointed} pointed=${pointed} shown=${shown} lines=${lines} /><canvas ref=${canvas} aria-hidden="true" onPointerDown=${began} onPointerMove=${moved} onPointerUp=${ended} onPointerLeave=${() => point(null)}
      onDblClick=${() => shown.forEach((axis) => brush(axis.name, undefined))}></canvas></div>
  </div>`;
}

/** The line that is pointed at, on a canvas of its own. @param {{pointed: import("../../vendor/ui.js").Signal<number | null>, shown: Axis[], lines: Line[]}} props */
function Pointed({ pointed, shown, lines }) {
  const key = pointed.value;
  const canvas = useCanvas(
    ({ ctx, width, height, colour }) => {
      ctx.clearRect(0, 0, width, height);
      const line = lines.find((one) => one.key === key);
      if (!line) return;
      ctx.lineWidth = 3;
      ctx.strokeStyle = colour("accent");
      trace(ctx, shown, line, width);
    },
    [key, shown, lines],
  );
  return html`<canvas class="over" ref=${canvas} aria-hidden="true"></canvas>`;
}

/** Draw one line over all axes; where it has no value there is a gap. @param {CanvasRenderingContext2D} ctx @param {Axis[]} shown @param {Line} line @param {number} width */
function trace(ctx, shown, line, width) {
  ctx.beginPath();
  let isDown = false;
  for (const [i, axis] of shown.entries()) {
    const place = axes.placeOf(axis, line.values[i]);
    if (place === null) isDown = false;
    else if (isDown) ctx.lineTo(across(shown.length, width, i), down(place));
    else {
      ctx.moveTo(across(shown.length, width, i), down(place));
      isDown = true;
    }
  }
  ctx.stroke();
}

/**
 * The colours and the values that they stand for, at the right.
 * @param {CanvasRenderingContext2D} ctx @param {number} width @param {{low: number, high: number, isReversed: boolean}} bar @param {(name: string) => string} colour
 */
function drawBar(ctx, width, { low, high, isReversed }, colour) {
  const [x, top, bottom] = [width - BAR + 34, down(1), down(0)];
  const shades = ctx.createLinearGradient(0, bottom, 0, top);
  for (let i = 0; i <= 8; i += 1) shades.addColorStop(i / 8, shade(isReversed ? 1 - i / 8 : i / 8));
  ctx.fillStyle = shades;
  ctx.fillRect(x, top, 10, bottom - top);
  ctx.fillStyle = colour("quiet");
  ctx.textAlign = "left";
  for (const value of plots.ticks(low, high, 4)) {
    const y = bottom - ((value - low) / (high - low || 1)) * (bottom - top);
    ctx.fillRect(x + 10, Math.round(y), 4, 1);
    ctx.fillText(plots.tickText(value), x + 17, y + 4);
  }
}

/** @param {string[]} names @param {number} a @param {number} b */
function swapped(names, a, b) {
  const found = [...names];
  [found[a], found[b]] = [found[b], found[a]];
  return found;
}

/** @param {Axis} axis @param {Brush | undefined} brush */
function titleOf(axis, brush) {
  return brush ? `${axis.name}, brushed from ${axes.textAt(axis, brush[0])} to ${axes.textAt(axis, brush[1])}` : `${axis.name}, not brushed`;
}

/**
 * The key of the line under the pointer, or null.
 * @param {Axis[]} shown @param {Line[]} lines @param {ReadonlySet<number>} chosen @param {number} width @param {number} x @param {number} y
 */
function nearest(shown, lines, chosen, width, x, y) {
  let [found, distance] = [/** @type {number | null} */ (null), NEAR / 2];
  for (const line of lines) {
    if (!chosen.has(line.key)) continue;
    for (let i = 0; i + 1 < shown.length; i += 1) {
      const [left, right] = [across(shown.length, width, i), across(shown.length, width, i + 1)];
      if (x < left || x > right) continue;
      const [a, b] = [axes.placeOf(shown[i], line.values[i]), axes.placeOf(shown[i + 1], line.values[i + 1])];
      if (a === null || b === null) continue;
      const away = Math.abs(down(a + ((b - a) * (x - left)) / (right - left)) - y);
      if (away < distance) [found, distance] = [line.key, away];
    }
  }
  return found;
}
