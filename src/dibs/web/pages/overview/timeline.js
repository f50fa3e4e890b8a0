// The timeline: a lane per GPU with past, running and expected jobs. Drawn on a canvas; the table below it says the same.
import { Choice, JobLink, Pill, Problem, Section, Table } from "../../components/common.js";
import { Icon } from "../../components/icons.js";
import { clock, gpuNames, span } from "../../core/format.js";
import { useKeys } from "../../core/keys.js";
import * as router from "../../core/router.js";
import * as state from "../../core/state.js";
import * as themes from "../../core/themes.js";
import { useAnswer } from "../../core/use-answer.js";
import { html, useEffect, useMemo, useRef, useState } from "../../vendor/ui.js";
import * as lanes from "./lanes.js";

/** @typedef {import("../../core/types.js").Timeline} Answer */

const CHOICES = [["1h", "1 h"], ["6h", "6 h"], ["24h", "24 h"], ["7d", "7 d"]].map(([value, text]) => ({ value, text }));
/** Most bars in the table. */
const MOST_TOLD = 100;
/** Milliseconds of one request, so that its address, and with it the cached answer, stays the same for a while. */
const ROUND = 60_000;

/** The view of a range, or the zoomed one; null follows the time. */
export function Timeline() {
  const range = router.query.value.get("range") ?? "6h";
  const [own, setOwn] = useState(/** @type {lanes.View | null} */ (null));
  const [isTable, setTable] = useState(false);
  const minute = Math.floor(state.now.value / ROUND) * ROUND;
  const view = own ?? lanes.viewOf(range, minute);
  // The range is requested with a margin in whole steps: panning a little needs no request.
  const step = (view.to - view.from) / 4;
  const since = new Date(Math.floor(view.from / step - 1) * step).toISOString();
  const until = new Date(Math.ceil(view.to / step + 1) * step).toISOString();
  const { data, error, reload } = useAnswer(`/v1/timeline?since=${since}&until=${until}`, { isLive: true, restMs: 3000 });
  const last = useRef(/** @type {Answer | null} */ (null));
  if (data) last.current = data;
  const shown = data ?? last.current;
  /** @param {string} value */
  const choose = (value) => {
    setOwn(null);
    router.setQuery({ range: value === "6h" ? null : value });
  };
  const zoom = (/** @type {number} */ factor) => setOwn(lanes.zoomed(view, factor, (view.from + view.to) / 2));
  const pan = (/** @type {number} */ part) => setOwn(lanes.panned(view, (view.to - view.from) * part));
  useKeys(
    [
      { keys: "0", does: "Reset the timeline", group: "Overview", run: () => setOwn(null) },
      { keys: "+", does: "Zoom the timeline in", group: "Overview", run: () => zoom(0.7) },
      { keys: "-", does: "Zoom the timeline out", group: "Overview", run: () => zoom(1 / 0.7) },
      { keys: "[", does: "Timeline: earlier", group: "Overview", run: () => pan(-0.25) },
      { keys: "]", does: "Timeline: later", group: "Overview", run: () => pan(0.25) },
    ],
    [view.from, view.to],
  );
  const aside = html`<${Choice} label="Time shown" options=${CHOICES} value=${own ? "" : range} choose=${choose} />
    <${Legend} isDense=${view.to - view.from >= lanes.DENSE} hasReserved=${Boolean(shown?.reservations.length)} />
    <button type="button" class="small right" aria-expanded=${isTable} onClick=${() => setTable(!isTable)}><${Icon} name="table" />As a table</button>`;
  return html`<${Section} title="Timeline" aside=${aside}>
    ${!shown && (error ? html`<${Problem} error=${error} retry=${reload} />` : html`<div class="lanes panel quiet" style=${{ height: `${heightOf(state.gpus.value?.gpus.length ?? 0) + 10}px` }}>Loading…</div>`)}
    ${shown && html`<${Lanes} timeline=${shown} view=${view} setView=${setOwn} />
      <div class=${isTable ? "" : "hidden"}><${Told} timeline=${shown} view=${view} /></div>`}
  </${Section}>`;
}

/** Pixels, also while it is loaded: nothing below it moves then. @param {number} many lanes */
const heightOf = (many) => many * lanes.LANE + lanes.TOP + lanes.BELOW;

/** What the colours mean. @param {{isDense: boolean, hasReserved: boolean}} props */
function Legend({ isDense, hasReserved }) {
  const all = [["done", "done"], ["failed", "failed"], ["running", "running"], ...(isDense ? [] : [["expected", "expected end"]]), ["planned", "planned"], ...(hasReserved ? [["reserved", "reserved"]] : [])];
  return html`<div class="legend" aria-hidden="true">${all.map(([kind, text]) => html`<span key=${kind}><i class=${`is-${kind}`}></i>${text}</span>`)}</div>`;
}

/** @param {{timeline: Answer, view: lanes.View, setView: (view: lanes.View) => void}} props */
function Lanes({ timeline, view, setView }) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState(/** @type {{x: number, y: number, piece: lanes.Piece | null, block: lanes.Block | null} | null} */ (null));
  const drag = useRef(/** @type {{x: number, view: lanes.View, isMoved: boolean} | null} */ (null));
  const now = state.now.value;
  const all = useMemo(() => lanes.collapsed(lanes.pieces(timeline, now)), [timeline, now]);
  const kept = useMemo(() => lanes.blocks(timeline), [timeline]);
  const height = heightOf(timeline.lanes.length);
  const latest = useRef({ view, width });
  latest.current = { view, width };

  useEffect(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (ref.current);
    const watching = new ResizeObserver(() => setWidth(canvas.clientWidth));
    watching.observe(canvas);
    /** @param {WheelEvent} event */
    const wheel = (event) => {
      // A plain wheel scrolls the page unless the pointer is on the lanes of a page that has been clicked into.
      if (!event.ctrlKey && !event.shiftKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const { view: seen, width: wide } = latest.current;
      const x = event.clientX - canvas.getBoundingClientRect().left;
      setView(lanes.zoomed(seen, Math.exp(Math.sign(event.deltaY || event.deltaX) * 0.18), lanes.momentAt(seen, wide, x)));
    };
    canvas.addEventListener("wheel", wheel, { passive: false });
    return () => {
      watching.disconnect();
      canvas.removeEventListener("wheel", wheel);
    };
  }, []);
  useEffect(() => {
    if (ref.current && width) draw(ref.current, timeline, all, kept, view, width, height, now, hover?.piece?.bar.job ?? null);
  }, [timeline, all, kept, view.from, view.to, width, height, hover, themes.changes.value, themes.chosen.value]);

  /** @param {PointerEvent} event */
  const point = (event) => {
    const box = /** @type {HTMLCanvasElement} */ (ref.current).getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  /** @param {PointerEvent} event */
  const move = (event) => {
    const { x, y } = point(event);
    const held = drag.current;
    if (held && (held.isMoved || Math.abs(x - held.x) > 4)) {
      held.isMoved = true;
      setHover(null);
      setView(lanes.panned(held.view, ((held.x - x) / (width - lanes.LEFT)) * (held.view.to - held.view.from)));
      return;
    }
    const piece = lanes.under(all, view, width, x, y);
    const block = piece ? null : lanes.blockUnder(kept, view, width, x, y);
    setHover(piece || block ? { x, y, piece, block } : null);
  };
  /** @param {PointerEvent} event */
  const down = (event) => {
    drag.current = { x: point(event).x, view, isMoved: false };
    /** @type {HTMLCanvasElement} */ (ref.current).setPointerCapture(event.pointerId);
  };
  /** @param {PointerEvent} event */
  const up = (event) => {
    const { x, y } = point(event);
    const piece = drag.current && !drag.current.isMoved ? lanes.under(all, view, width, x, y) : null;
    drag.current = null;
    if (piece) router.go(piece.count > 1 ? `/sweep/${encodeURIComponent(piece.bar.sweep ?? "")}` : `/job/${piece.bar.job}`);
  };
  return html`<div class="lanes panel">
    <canvas ref=${ref} tabindex="0" role="img" style=${{ height: `${height}px` }} class=${hover?.piece ? "on-job" : ""}
      aria-label="What ran, runs, is expected to run and is reserved on each GPU; the table says the same."
      onPointerMove=${move} onPointerDown=${down} onPointerUp=${up} onPointerLeave=${() => setHover(null)}></canvas>
    ${hover && html`<${Card} ...${hover} width=${width} />`}
  </div>`;
}

/** What is pointed at. @param {{x: number, y: number, piece: lanes.Piece | null, block: lanes.Block | null, width: number}} props */
function Card({ x, y, piece, block, width }) {
  const isLeft = x > width - 300;
  const where = isLeft ? { right: `${width - x + 12}px`, top: `${y + 12}px` } : { left: `${x + 12}px`, top: `${y + 12}px` };
  return html`<div class="card panel" style=${where}>${piece ? html`<${JobCard} piece=${piece} />` : block && html`<${ReservedCard} one=${block.reservation} />`}</div>`;
}

/** @param {{piece: lanes.Piece}} props */
function JobCard({ piece }) {
  const { bar, from, to } = piece;
  const now = state.now.value;
  const end = piece.count > 1 ? new Date(to).toISOString() : bar.to;
  const when = `${clock(bar.from, now)} – ${end ? clock(end, now) : "now"}`;
  return html`
    <div><strong>${piece.count > 1 ? `${piece.count} runs of ${bar.sweep}` : `#${bar.job} ${bar.name}`}</strong> <${Pill} word=${bar.is_plan ? "planned" : bar.state} /></div>
    <div>${when} · ${span((to - from) / 1000)}${bar.attempt > 1 ? ` · attempt ${bar.attempt}` : ""}${bar.gpu_ids.length > 1 ? ` · ${bar.gpu_ids.length} GPUs` : ""}</div>
    ${bar.is_plan && html`<div class="quiet">An estimate: it may be sooner or later</div>`}
    ${bar.expected_end && html`<div class="quiet">Expected to end by ${clock(bar.expected_end, now)}</div>`}`;
}

/** @param {{one: import("../../core/types.js").Reservation}} props */
function ReservedCard({ one }) {
  const now = state.now.value;
  return html`
    <div><strong>Reserved for ${one.user}</strong> <${Pill} word=${one.state} /></div>
    <div>${clock(one.from, now)} – ${clock(one.to, now)} · ${gpuNames(one.gpus)}${one.every ? ` · every ${one.every}` : ""}</div>
    ${one.name && html`<div class="quiet">${one.name}</div>`}`;
}

/** The same in a table. @param {{timeline: Answer, view: lanes.View}} props */
function Told({ timeline, view }) {
  const now = state.now.value;
  const names = new Map(timeline.lanes.map((lane) => [lane.gpu_id, lane.index]));
  const rows = lanes
    .pieces(timeline, now)
    .filter((one, i, all) => one.until >= view.from && one.from <= view.to && all.findIndex((other) => other.bar === one.bar) === i)
    .sort((a, b) => b.from - a.from)
    .slice(0, MOST_TOLD);
  /** @typedef {{cell: (row: lanes.Piece) => any, title: string, class?: string, phone?: string}} Column */
  /** @type {Column[]} */
  const columns = [
    { title: "GPUs", cell: (row) => row.bar.gpu_ids.map((id) => names.get(id) ?? id).join(", ") },
    { title: "Job", cell: (row) => html`<${JobLink} id=${row.bar.job} name=${row.bar.name} />` },
    { title: "State", phone: "side", cell: (row) => html`<${Pill} word=${row.bar.is_plan ? "planned" : row.bar.state} />` },
    { title: "From", cell: (row) => clock(row.bar.from, now) },
    { title: "To", cell: (row) => (row.bar.to ? clock(row.bar.to, now) : row.bar.expected_end ? `by ${clock(row.bar.expected_end, now)}` : "still running") },
  ];
  return html`<${Table} label="Timeline" columns=${columns} rows=${rows} keyOf=${(/** @type {lanes.Piece} */ row) => `${row.bar.job}.${row.bar.attempt}.${row.bar.is_plan}`} />
    ${timeline.reservations.length > 0 && html`<ul aria-label="Reserved">${timeline.reservations.map((one) => html`<li key=${`${one.user} ${one.id} ${one.from}`}>${gpuNames(one.gpus)} reserved for ${one.user}, ${clock(one.from, now)} – ${clock(one.to, now)}${one.name ? ` (${one.name})` : ""}</li>`)}</ul>`}`;
}

/**
 * Redraw everything: a few hundred rectangles take less than a frame.
 * @param {HTMLCanvasElement} canvas @param {Answer} timeline @param {lanes.Piece[]} all @param {lanes.Block[]} kept @param {lanes.View} view
 * @param {number} width @param {number} height @param {number} now @param {number | null} lit
 */
function draw(canvas, timeline, all, kept, view, width, height, now, lit) {
  const colour = themes.colours();
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  g.scale(ratio, ratio);
  g.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
  g.textBaseline = "middle";
  const at = lanes.scale(view, width);
  const bottom = height - lanes.BELOW;
  for (const tick of lanes.ticks(view, width).found) {
    g.fillStyle = colour("line");
    g.fillRect(Math.round(at(tick)), 0, 1, bottom);
  }
  g.fillStyle = colour("quiet");
  for (const { text, x } of lanes.tickLabels(view, width, (text) => g.measureText(text).width)) g.fillText(text, x, bottom + lanes.BELOW / 2);
  for (const block of kept) drawBlock(g, block, at, width, colour);
  if (view.to - view.from >= lanes.DENSE) drawDensity(g, all, view, width, timeline.lanes.length, colour);
  else for (const piece of all) drawPiece(g, piece, at, width, lit, colour);
  g.fillStyle = colour("panel");
  g.fillRect(0, 0, lanes.LEFT - 2, bottom);
  g.fillStyle = colour("quiet");
  timeline.lanes.forEach((lane, i) => g.fillText(`GPU ${lane.index}`, 6, lanes.TOP + i * lanes.LANE + lanes.LANE / 2));
  if (at(now) > lanes.LEFT && at(now) < width) {
    g.fillStyle = colour("text");
    g.fillRect(Math.round(at(now)) - 1, 0, 2, bottom);
  }
}

/**
 * A reservation: stripes behind the bars, with the name of the user in the room that they leave.
 * @param {CanvasRenderingContext2D} g @param {lanes.Block} block @param {(at: number) => number} at
 * @param {number} width @param {(name: string) => string} colour
 */
function drawBlock(g, block, at, width, colour) {
  const [left, right] = [Math.max(lanes.LEFT, at(block.from)), Math.min(width, at(block.to))];
  if (right < lanes.LEFT || left > width) return;
  const [top, wide, high] = [lanes.TOP + block.lane * lanes.LANE + 1, Math.max(2, right - left - 1), lanes.LANE - 2];
  g.save();
  g.beginPath();
  g.roundRect(left, top, wide, high, 3);
  g.fillStyle = colour("held-wash");
  g.fill();
  g.strokeStyle = colour("held");
  g.stroke();
  g.clip();
  g.globalAlpha = 0.35;
  g.beginPath();
  for (let x = left - high; x < left + wide; x += 7) {
    g.moveTo(x, top + high);
    g.lineTo(x + high, top);
  }
  g.stroke();
  g.globalAlpha = 1;
  const text = wide > 30 ? lanes.fitted(`reserved: ${block.reservation.user}`, wide - 12, (one) => g.measureText(one).width) : "";
  if (text) {
    // A ground of its own: stripes would make it hard to read.
    g.fillStyle = colour("held-wash");
    g.fillRect(left + 3, top + 2, g.measureText(text).width + 6, high - 4);
    g.fillStyle = colour("held-ink");
    g.fillText(text, left + 6, top + high / 2 + 0.5);
  }
  g.restore();
}

/**
 * One bar of a lane, with its name in the room that it has.
 * @param {CanvasRenderingContext2D} g @param {lanes.Piece} piece @param {(at: number) => number} at
 * @param {number} width @param {number | null} lit @param {(name: string) => string} colour
 */
function drawPiece(g, piece, at, width, lit, colour) {
  const [first, last] = [Math.max(lanes.LEFT, at(piece.from)), Math.min(width, at(piece.until))];
  if (last < lanes.LEFT || first > width) return;
  const top = lanes.TOP + piece.lane * lanes.LANE + 2;
  const text = last - first > 27 ? lanes.fitted(lanes.label(piece), last - first - 12, (one) => g.measureText(one).width) : "";
  g.globalAlpha = lit !== null && lit !== piece.bar.job ? 0.55 : 1;
  for (const part of lanes.parts(piece)) {
    const [left, right] = [Math.max(lanes.LEFT, at(part.from)), Math.min(width, at(part.to))];
    if (right < lanes.LEFT || left > width) continue;
    const box = /** @type {const} */ ([left, top, Math.max(2, right - left - 1), lanes.LANE - 4]);
    g.fillStyle = colour(part.fill);
    g.beginPath();
    g.roundRect(...box, 3);
    g.fill();
    if (part.edge) {
      g.setLineDash([4, 3]);
      g.strokeStyle = colour(part.edge);
      g.strokeRect(box[0] + 0.5, box[1] + 0.5, box[2] - 1, box[3] - 1);
      g.setLineDash([]);
    }
    if (!text) continue;
    // The name continues across all parts, in the text colour of each.
    g.save();
    g.beginPath();
    g.rect(...box);
    g.clip();
    g.fillStyle = colour(part.ink);
    g.fillText(text, first + 6, top + box[3] / 2 + 0.5);
    g.restore();
  }
  g.globalAlpha = 1;
}

/**
 * Many days: how busy each GPU was, in columns of a few pixels, from the bottom of its lane up.
 * @param {CanvasRenderingContext2D} g @param {readonly lanes.Piece[]} all @param {lanes.View} view @param {number} width
 * @param {number} many lanes @param {(name: string) => string} colour
 */
function drawDensity(g, all, view, width, many, colour) {
  const columns = Math.max(1, Math.floor((width - lanes.LEFT) / lanes.COLUMN));
  const high = lanes.LANE - 4;
  lanes.density(all, view, columns, many).forEach((row, lane) => {
    const floor = lanes.TOP + (lane + 1) * lanes.LANE - 2;
    g.fillStyle = colour("faint");
    g.fillRect(lanes.LEFT, floor - 1, width - lanes.LEFT, 1);
    row.forEach((part, i) => {
      let y = floor;
      for (const [kind, fill] of /** @type {const} */ ([["done", "done-soft"], ["run", "run"], ["bad", "bad-soft"], ["plan", "wait-soft"]])) {
        const tall = Math.min(part[kind], (y - floor + high) / high) * high;
        if (tall < 0.5) continue;
        g.fillStyle = colour(fill);
        g.fillRect(lanes.LEFT + i * lanes.COLUMN, y - tall, lanes.COLUMN - 1, tall);
        y -= tall;
      }
    });
  });
}
