// Usage: GPU-hours per day, the idle part of them, and how long jobs waited.
import { useCanvas } from "../components/canvas.js";
import { Choice, Empty, JobLink, Problem, Section, Table } from "../components/common.js";
import { Icon } from "../components/icons.js";
import { csv, download } from "../core/csv.js";
import { count, plural, span } from "../core/format.js";
import * as router from "../core/router.js";
import * as state from "../core/state.js";
import { useAnswer } from "../core/use-answer.js";
import { viridis } from "../core/viridis.js";
import { html, useMemo } from "../vendor/ui.js";
import * as usageSums from "./usage/usage-sums.js";

/**
 * @typedef {import("./usage/usage-sums.js").Group} Group
 * @typedef {{days: {day: string, from: string, to: string}[], sums: import("./usage/usage-sums.js").Sum[], more: boolean, idle_below: number,
 *   waits: {count: number, median_s: number | null, longest: {job: number, name: string, wait_s: number}[]}}} Usage
 */

const RANGES = ["7", "14", "28"];
const HEIGHT = 220;
const LEFT = 44;
const BOTTOM = 22;
const TOP = 8;

/** Hours, short: "0.4 h", "12.5 h", "1,204 h". @param {number} value */
const hours = (value) => `${value >= 100 ? count(Math.round(value)) : Number(value.toFixed(value < 1 ? 2 : 1))} h`;
/** "Mon 16". @param {string} day */
const weekday = (day) => new Date(`${day}T12:00:00`).toLocaleDateString("en-GB", { weekday: "short", day: "numeric" });
/** @param {number} i @param {number} many */
const colourOf = (i, many) => viridis(many === 1 ? 0.5 : 0.15 + (0.75 * i) / (many - 1));

export default function Page() {
  const query = router.query.value;
  const range = RANGES.find((one) => one === query.get("days")) ?? "7";
  const by = query.get("by") === "sweep" ? "sweep" : "project";
  /** @type {import("../core/use-answer.js").Answer<Usage>} */
  const { data, error, reload } = useAnswer(`/v1/usage?days=${range}`, { everyMs: 60_000 });
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  const bar = html`
    <${Choice} label="Days" value=${range} choose=${(/** @type {string} */ one) => router.setQuery({ days: one === "7" ? null : one })}
      options=${RANGES.map((one) => ({ value: one, text: `${one} days` }))} />
    <${Choice} label="Stacked by" value=${by} choose=${(/** @type {string} */ one) => router.setQuery({ by: one === "sweep" ? one : null })}
      options=${[{ value: "project", text: "by project" }, { value: "sweep", text: "by sweep" }]} />
    <button type="button" class="small" disabled=${!data.sums.length} onClick=${() => download("usage.csv", csv(usageSums.sheet(data.sums)))}><${Icon} name="download" />CSV</button>`;
  return html`<${Whole} data=${data} by=${by} bar=${bar} /><${Others} />`;
}

/** @param {{data: Usage, by: "project" | "sweep", bar: unknown}} props */
function Whole({ data, by, bar }) {
  const days = useMemo(() => data.days.map((one) => one.day), [data]);
  const groups = useMemo(() => usageSums.grouped(data.sums, days, by), [data, by]);
  if (!groups.length) {
    return html`<${Section} title="GPU-hours" aside=${bar}>
      <${Empty} title="No job had a GPU on these days" text="What jobs with GPUs use is summed up here, day by day:" commands=${["dibs add -g 1 'python train.py'"]} />
    <//>`;
  }
  const all = usageSums.totals(groups);
  const { waits } = data;
  return html`
    <div class="facts">
      <span><b>${hours(all.total)}</b> of GPUs</span>
      ${all.watched > 0 && html`<span class=${all.idle / all.watched > 0.2 ? "warn-text" : ""}><b>${hours(all.idle)}</b> idle (of ${hours(all.watched)} watched)</span>`}
      ${waits.median_s !== null && html`<span><b>${span(waits.median_s)}</b> median wait of ${plural(waits.count, "job")}</span>`}
      ${waits.longest.length > 0 && html`<span><b>${span(waits.longest[0].wait_s)}</b> longest wait</span>`}
    </div>
    <${Section} title="GPU-hours" aside=${bar}>
      ${data.more && html`<p class="warn-text">The smallest projects and sweeps are left out.</p>`}
      <${Bars} days=${days} groups=${groups} />
      <${Table} label="GPU-hours" rows=${groups} keyOf=${(/** @type {Group} */ one) => one.name} columns=${columns(days, groups, data.idle_below)} />
      <p class="quiet">Idle: under ${data.idle_below} % of use in a minute. A GPU that is shared counts for each job on it; jobs that were cleaned do not count any more.</p>
    <//>
    ${waits.longest.length > 0 && html`<${Section} title="Longest waits" aside="from submission to the first start">
      <${Table} label="Longest waits" rows=${waits.longest} keyOf=${(/** @type {any} */ one) => one.job}
        columns=${[
          { title: "Job", cell: (/** @type {any} */ one) => html`<${JobLink} id=${one.job} />` },
          { title: "Name", class: "wide", cell: (/** @type {any} */ one) => one.name },
          { title: "Waited", phone: "side", class: "number", cell: (/** @type {any} */ one) => span(one.wait_s) },
        ]} /><//>`}`;
}

/**
 * A column for each day with usage, after the sum of the group.
 * @param {string[]} days @param {Group[]} groups @param {number} idleBelow
 * @returns {{title: string, class?: string, cell: (one: Group) => unknown}[]}
 */
function columns(days, groups, idleBelow) {
  const all = usageSums.totals(groups).total;
  return [
    { title: "Used by", cell: (one) => html`<i class="swatch" style=${{ background: colourOf(groups.indexOf(one), groups.length) }}></i> ${one.name}` },
    { title: "GPU-hours", class: "number", cell: (one) => hours(one.total) },
    { title: "Share", class: "number", cell: (one) => `${Math.round((100 * one.total) / all)} %` },
    { title: `Idle (< ${idleBelow} %)`, class: "number", cell: (one) => (one.watched ? `${hours(one.idle)} of ${hours(one.watched)}` : "not watched") },
    ...days
      .map((day, i) => ({ isUsed: groups.some((one) => one.hours[i]), title: weekday(day), class: "number", cell: (/** @type {Group} */ one) => (one.hours[i] ? hours(one.hours[i]) : "") }))
      .filter(({ isUsed }) => isUsed),
  ];
}

/** A bar a day, a piece of it a group; the table below says the same. @param {{days: string[], groups: Group[]}} props */
function Bars({ days, groups }) {
  const canvas = useCanvas(
    ({ ctx, width, colour }) => {
      ctx.clearRect(0, 0, width, HEIGHT);
      const most = usageSums.ceiling(Math.max(...days.map((_, i) => groups.reduce((sum, one) => sum + one.hours[i], 0))));
      const up = (/** @type {number} */ value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - TOP);
      ctx.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      ctx.textAlign = "right";
      for (const part of [0, 0.5, 1]) {
        ctx.fillStyle = colour("faint");
        ctx.fillRect(LEFT, up(most * part), width - LEFT, 1);
        ctx.fillStyle = colour("quiet");
        ctx.fillText(String(most * part), LEFT - 6, up(most * part) + 4);
      }
      const step = (width - LEFT) / days.length;
      const wide = Math.min(56, step * 0.7);
      // As many labels as there is room for.
      const every = Math.ceil(50 / step);
      ctx.textAlign = "center";
      days.forEach((day, i) => {
        const middle = LEFT + step * (i + 0.5);
        let below = 0;
        groups.forEach((one, j) => {
          ctx.fillStyle = colourOf(j, groups.length);
          ctx.fillRect(middle - wide / 2, up(below + one.hours[i]), wide, up(below) - up(below + one.hours[i]));
          below += one.hours[i];
        });
        ctx.fillStyle = colour("quiet");
        if ((days.length - 1 - i) % every === 0) ctx.fillText(weekday(day), middle, HEIGHT - 6);
      });
    },
    [days, groups],
  );
  return html`<canvas class="bars" ref=${canvas} role="img" aria-label="GPU-hours of each day, as in the table below"></canvas>`;
}

/** Other users who hold GPUs now. */
function Others() {
  const rows = usageSums.others(state.gpus.value?.gpus ?? [], state.hello.value?.user, state.now.value);
  if (!rows.length) return null;
  return html`<${Section} title="Others, now" aside="their past GPU-hours: dibs usage --by user">
    <${Table} label="Others, now" rows=${rows} keyOf=${(/** @type {any} */ one) => one.user}
      columns=${[
        { title: "User", class: "wide", cell: (/** @type {any} */ one) => one.user },
        { title: "GPUs", class: "number", cell: (/** @type {any} */ one) => one.gpus },
        { title: "GPU-hours so far", class: "number", cell: (/** @type {any} */ one) => (one.hours === null ? "" : hours(one.hours)) },
      ]} /><//>`;
}
