// Parallel coordinates: a line per run, a vertical axis per parameter, the metric last. Dragging along an axis brushes.
import { useCanvas } from "../../components/canvas.js";
import { html, useRef, useState } from "../../vendor/ui.js";
import * as axes from "./axes.js";

/**
 * @typedef {import("./axes.js").Axis} Axis
 * @typedef {import("./axes.js").Brush} Brush
 * @typedef {{key: number, values: import("./axes.js").Value[], colour: string | null, isOpen: boolean}} Line `isOpen`: it has not ended
 */

const HEIGHT = 280;
const TOP = 16;
const BOTTOM = 22;
/** Pixels beside the first and the last axis. */
const SIDE = 54;
/** Pixels within which the pointer is at an axis, or at a line. */
const NEAR = 14;
const STEP = 0.05;

/** @param {number} count @param {number} width @param {number} i */
const across = (count, width, i) => (count === 1 ? width / 2 : SIDE + ((width - 2 * SIDE) * i) / (count - 1));
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
 * @param {(names: string[]) => void} props.order
 * @param {ReadonlySet<number>} props.chosen keys of the lines within all brushes
 * @param {number | null} props.pointed key of the line that is pointed at, here or in the table
 * @param {number | null} props.best
 * @param {(key: number | null) => void} props.point
 * @param {(key: number) => void} props.open
 */
export function Parallel({ shown, lines, brushes, brush, order, chosen, pointed, best, point, open }) {
  const [drag, setDrag] = useState(/** @type {{name: string, from: number, to: number} | null} */ (null));
  const carried = useRef(/** @type {string | null} */ (null));
  const canvas = useCanvas(
    ({ ctx, width, colour }) => {
      ctx.clearRect(0, 0, width, HEIGHT);
      const path = (/** @type {Line} */ line) => {
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
      };
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
      for (const [key, thick] of /** @type {[number | null, number][]} */ ([[best, 2.5], [pointed, 3]])) {
        const line = lines.find((one) => one.key === key);
        if (!line) continue;
        ctx.lineWidth = thick;
        ctx.strokeStyle = key === pointed ? colour("accent") : colour("text");
        path(line);
      }
      ctx.font = "12px system-ui, 'DejaVu Sans', sans-serif";
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
        const isLast = i === shown.length - 1 && shown.length > 1;
        ctx.textAlign = isLast ? "right" : "left";
        for (const tick of axes.ticks(axis)) {
          const y = down(tick.at) + (tick.at === 1 ? -4 : tick.at === 0 ? 13 : 4);
          const label = tick.text.length > 16 ? `${tick.text.slice(0, 15)}…` : tick.text;
          // A background behind the text, so that it is readable across lines.
          const wide = ctx.measureText(label).width;
          ctx.fillStyle = colour("panel");
          ctx.globalAlpha = 0.8;
          ctx.fillRect(isLast ? x - 5 - wide : x + 5, y - 10, wide, 13);
          ctx.globalAlpha = 1;
          ctx.fillStyle = colour("text");
          ctx.fillText(label, isLast ? x - 5 : x + 5, y);
        }
      }
    },
    [shown, lines, brushes, chosen, pointed, best, drag],
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
    if (drag) setDrag({ ...drag, to: up(y) });
    else point(nearest(shown, lines, chosen, width, x, y));
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
          style=${{ left: shown.length === 1 ? "50%" : `calc(${SIDE}px + (100% - ${2 * SIDE}px) * ${i / (shown.length - 1)})` }}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => pressed(event, axis.name)}
          onDragStart=${() => (carried.current = axis.name)}
          onDragOver=${(/** @type {DragEvent} */ event) => event.preventDefault()}
          onDrop=${() => dropped(axis.name)}>${axis.name}</button>`,
      )}
    </div>
    <canvas ref=${canvas} aria-hidden="true" onPointerDown=${began} onPointerMove=${moved} onPointerUp=${ended} onPointerLeave=${() => point(null)}
      onDblClick=${() => shown.forEach((axis) => brush(axis.name, undefined))}></canvas>
  </div>`;
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
