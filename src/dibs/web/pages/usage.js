// Usage: GPU-hours by user, project, sweep, group or day: held, used, wasted and waited.
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
 * @typedef {import("./usage/usage-sums.js").By} By
 * @typedef {import("../core/types.js").Usage} Usage
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

/** Most days that have a column of their own. */
const MOST_DAYS = 7;
const NOT_OURS = "Visible only to them";

export default function Page() {
  const query = router.query.value;
  const range = RANGES.find((one) => one === query.get("days")) ?? "7";
  const by = usageSums.BYS.find((one) => one === query.get("by")) ?? "project";
  /** @type {import("../core/use-answer.js").Answer<Usage>} */
  const { data, error, reload } = useAnswer(`/v1/usage?days=${range}`, { everyMs: 60_000 });
  if (!data) return html`<${Problem} error=${error} retry=${reload} />`;
  const rows = by === "user" ? data.people : data.sums;
  const save = () => download(`usage-by-${by}.csv`, csv(by === "user" ? usageSums.userSheet(data.people) : usageSums.sheet(data.sums)));
  const bar = html`
    <${Choice} label="Days" value=${range} choose=${(/** @type {string} */ one) => router.setQuery({ days: one === "7" ? null : one })}
      options=${RANGES.map((one) => ({ value: one, text: `${one} days` }))} />
    <${Choice} label="Summed by" value=${by} choose=${(/** @type {string} */ one) => router.setQuery({ by: one === "project" ? null : one })}
      options=${usageSums.BYS.map((one) => ({ value: one, text: one[0].toUpperCase() + one.slice(1) }))} />
    ${rows.length > 0 && html`<button type="button" class="small right" onClick=${save}><${Icon} name="download" />CSV</button>`}`;
  return html`<${Whole} data=${data} by=${by} bar=${bar} /><${Others} />`;
}

/** @param {{data: Usage, by: By, bar: unknown}} props */
function Whole({ data, by, bar }) {
  const me = state.hello.value?.user;
  const days = useMemo(() => data.days.map((one) => one.day), [data]);
  const groups = useMemo(() => (by === "user" ? usageSums.users(data.people, data.sums, days, me) : usageSums.grouped(data.sums, days, by)), [data, by, me]);
  const stack = useMemo(() => (by === "day" ? usageSums.grouped(data.sums.map((one) => ({ ...one, project: "all" })), days, "project") : groups), [groups]);
  if (!groups.length) {
    return html`<${Section} title="GPU-hours" aside=${bar}>
      <${Empty} title="No job had a GPU on these days" text="The GPU-hours of your jobs will be shown here, by day:" commands=${["dibs add -g 1 'python train.py'"]} />
    <//>`;
  }
  return html`
    <${Tiles} data=${data} days=${days} />
    <${Section} title="GPU-hours" aside=${bar}>
      ${data.more && html`<p class="warn-text">The smallest projects and sweeps are left out.</p>`}
      <div class="panel usage-chart"><${Bars} days=${days} groups=${stack} /></div>
      <${Table} label="GPU-hours" rows=${groups} keyOf=${(/** @type {Group} */ one) => one.name} columns=${columns(by, days, groups, me)} />
      <p class="quiet">Held: while a job had the GPU. Used: by utilization. Wasted: held, but under ${data.idle_below} % utilization in a minute, where it was observed.
        ${by === "user" ? " Of other people only what they held is known; their days are those of UTC." : " A GPU that is shared counts for each job on it; jobs that were cleaned do not count any more."}</p>
    <//>
    ${data.waits.longest.length > 0 && html`<${Section} title="Longest waits" aside="from submission to the first start">
      <${Table} label="Longest waits" rows=${data.waits.longest} keyOf=${(/** @type {any} */ one) => one.job}
        columns=${[
          { title: "Job", cell: (/** @type {any} */ one) => html`<${JobLink} id=${one.job} name=${one.name} />` },
          { title: "Waited", phone: "side", class: "number", cell: (/** @type {any} */ one) => span(one.wait_s) },
        ]} /><//>`}`;
}

/** Our own jobs in short. @param {{data: Usage, days: string[]}} props */
function Tiles({ data, days }) {
  const all = usageSums.totals(usageSums.grouped(data.sums, days, "project"));
  const { waits } = data;
  const isIdle = all.watched > 0 && (all.idle ?? 0) / all.watched > 0.2;
  const percent = (/** @type {number | null} */ part, /** @type {number} */ whole) => `${Math.round((100 * (part ?? 0)) / whole)} %`;
  return html`<ul class="tiles" aria-label="Your jobs at a glance">
    <li><div class="tile"><span class="what">You held</span> <b>${hours(all.total)}</b> <span class="more">${plural(all.jobs ?? 0, "job")}</span></div></li>
    <li><div class="tile"><span class="what">Used</span> <b>${all.watched ? hours(all.used ?? 0) : "–"}</b> <span class="more">${all.watched && all.total ? `${percent(all.used, all.total)} of it` : "not observed"}</span></div></li>
    <li><div class=${`tile${isIdle ? " is-bad" : ""}`}><span class="what">Wasted</span> <b>${all.watched ? hours(all.idle ?? 0) : "–"}</b> <span class="more">${all.watched ? `idle ${percent(all.idle, all.watched)} of it` : "not observed"}</span></div></li>
    <li><div class="tile"><span class="what">Typical wait</span> <b>${waits.median_s === null ? "–" : span(waits.median_s)}</b> <span class="more">${waits.median_s === null ? "no job started" : `median wait of ${plural(waits.count, "job")}`}</span></div></li>
    <li><div class="tile"><span class="what">Longest wait</span> <b>${waits.longest.length ? span(waits.longest[0].wait_s) : "–"}</b> <span class="more">${waits.longest.length ? html`<${JobLink} id=${waits.longest[0].job} name=${waits.longest[0].name} />` : ""}</span></div></li>
  </ul>`;
}

/**
 * What each group held, used, wasted and waited; and a column for each day with usage, if these are few.
 * @param {By} by @param {string[]} days @param {Group[]} groups @param {string | undefined} me
 * @returns {{title: string, class?: string, phone?: string, cell: (one: Group) => unknown}[]}
 */
function columns(by, days, groups, me) {
  const all = usageSums.totals(groups).total;
  const known = (/** @type {number | null} */ value) => (value === null ? html`<span class="quiet" title=${NOT_OURS}>–</span>` : hours(value));
  const nameOf = (/** @type {Group} */ one) => (by === "day" ? weekday(one.name) : one.name);
  const inDays = days
    .map((day, i) => ({ isUsed: groups.some((one) => one.hours[i]), title: weekday(day), class: "number", phone: "nothing", cell: (/** @type {Group} */ one) => (one.hours[i] ? hours(one.hours[i]) : "") }))
    .filter(({ isUsed }) => isUsed);
  const watched = (/** @type {Group} */ one, /** @type {number | null} */ value) => (value !== null && !one.watched ? html`<span class="quiet">not observed</span>` : known(value));
  return [
    { title: by[0].toUpperCase() + by.slice(1), cell: (one) => html`${by !== "day" && html`<i class="swatch" style=${{ background: colourOf(groups.indexOf(one), groups.length) }}></i> `}${nameOf(one)}${by === "user" && one.name === me ? html` <span class="quiet">you</span>` : ""}` },
    { title: "Held", phone: "side", class: "number strong", cell: (one) => hours(one.total) },
    { title: "Share", class: "number", cell: (one) => (all ? `${Math.round((100 * one.total) / all)} %` : "") },
    { title: "Used", class: "number", cell: (one) => watched(one, one.used) },
    { title: "Wasted", class: "number", cell: (one) => watched(one, one.idle) },
    { title: "Waited", class: "number", cell: (one) => known(one.waited) },
    { title: "Jobs", class: "number", cell: (one) => (one.jobs === null ? known(null) : count(one.jobs)) },
    ...(by !== "day" && inDays.length <= MOST_DAYS ? inDays : []),
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
  return html`<canvas class="bars" ref=${canvas} role="img" aria-label="GPU-hours of each day; the sums are in the table below, and those of each day in the table by day"></canvas>`;
}

/** Other users who hold GPUs now. */
function Others() {
  const rows = usageSums.others(state.gpus.value?.gpus ?? [], state.hello.value?.user, state.now.value);
  if (!rows.length) return null;
  return html`<${Section} title="Others, now" aside=${html`<a href="/people">Everyone on this machine</a>`}>
    <${Table} label="Others, now" rows=${rows} keyOf=${(/** @type {any} */ one) => one.user}
      columns=${[
        { title: "User", class: "wide", cell: (/** @type {any} */ one) => one.user },
        { title: "GPUs", class: "number", cell: (/** @type {any} */ one) => one.gpus },
        { title: "GPU-hours so far", class: "number", cell: (/** @type {any} */ one) => (one.hours === null ? "" : hours(one.hours)) },
      ]} /><//>`;
}
