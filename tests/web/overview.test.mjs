// Calculations of the overview: lanes of the timeline, the summary, GPU cards, moves in the queue.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as facts from "../../src/dibs/web/core/facts.js";
import * as lanes from "../../src/dibs/web/pages/overview/lanes.js";

const NOW = Date.parse("2026-01-02T12:00:00Z");
const at = (seconds) => new Date(NOW + seconds * 1000).toISOString();
const range = (low, high) => ({ earliest: at(low), latest: at(high) });
const gpu = (more) => ({ state: "leased", holders: [], fault: null, drained: null, foreign: null, ...more });
const bar = (job, gpus, from, to, more = {}) => ({ job, name: `j${job}`, attempt: 1, gpu_ids: gpus, from: at(from), to: to === null ? null : at(to), state: "done", is_plan: false, expected_end: null, ...more });
const TIMELINE = { now: at(0), lanes: [{ gpu_id: "A", index: 0, name: "" }, { gpu_id: "B", index: 1, name: "" }], bars: [bar(1, ["A"], -3000, -1000), bar(2, ["A", "B"], -900, null), bar(3, ["B", "gone"], 900, 1800)] };

test("a bar is in each of its lanes, and a running job ends now", () => {
  const all = lanes.pieces(TIMELINE, NOW);
  assert.deepEqual(all.map((one) => [one.bar.job, one.lane]), [[1, 0], [2, 0], [2, 1], [3, 1]]);
  assert.equal(all[1].to, NOW);
});

test("a running job is drawn to its expected end, after now as expected", () => {
  const [one] = lanes.pieces({ ...TIMELINE, bars: [bar(2, ["A"], -900, null, { state: "running", expected_end: at(600) })] }, NOW);
  assert.deepEqual([one.from, one.to, one.until], [NOW - 900_000, NOW, NOW + 600_000]);
  assert.deepEqual(lanes.parts(one).map((part) => [part.from, part.to, part.fill, part.edge]), [[one.from, NOW, "run", ""], [NOW, one.until, "run-soft", "run"]]);
  const view = { from: NOW - 1000_000, to: NOW + 1000_000 };
  const x = (seconds) => lanes.scale(view, 862)(NOW + seconds * 1000);
  assert.equal(lanes.under([one], view, 862, x(500), lanes.TOP + 10)?.bar.job, 2);
  assert.equal(lanes.under([one], view, 862, x(700), lanes.TOP + 10), null);
});

test("finished, open-ended and overdue jobs have no expected part; planned jobs have only that", () => {
  const bars = [bar(1, ["A"], -900, -300), bar(2, ["A"], -300, null, { state: "running" }), bar(3, ["A"], -300, null, { state: "running", expected_end: at(-5) }), bar(4, ["A"], 900, 1800, { state: "queued", is_plan: true })];
  const drawn = lanes.pieces({ ...TIMELINE, bars }, NOW).map((one) => lanes.parts(one).map((part) => part.fill));
  assert.deepEqual(drawn, [["done-soft"], ["run"], ["run"], ["wait-soft"]]);
});

test("the pointer finds the bar under it and no other", () => {
  const all = lanes.pieces(TIMELINE, NOW);
  const view = { from: NOW - 4000_000, to: NOW + 4000_000 };
  const width = 862;
  const x = (seconds) => lanes.scale(view, width)(NOW + seconds * 1000);
  const y = (lane) => lanes.TOP + lane * lanes.LANE + 10;
  assert.equal(lanes.under(all, view, width, x(-2000), y(0))?.bar.job, 1);
  assert.equal(lanes.under(all, view, width, x(-2000), y(1)), null);
  assert.equal(lanes.under(all, view, width, x(-100), y(1))?.bar.job, 2);
  assert.equal(lanes.under(all, view, width, 10, y(0)), null);
  assert.ok(Math.abs(lanes.momentAt(view, width, x(-2000)) - (NOW - 2000_000)) < 1);
});

test("zooming keeps the time under the pointer, within bounds", () => {
  let view = lanes.viewOf("6h", NOW);
  const pointed = NOW - 3600_000;
  const part = (pointed - view.from) / (view.to - view.from);
  for (let i = 0; i < 100; i += 1) {
    view = lanes.zoomed(view, 0.8, pointed);
    assert.ok(Math.abs((pointed - view.from) / (view.to - view.from) - part) < 1e-6);
  }
  assert.equal(Math.round(view.to - view.from), 120_000);
  for (let i = 0; i < 200; i += 1) view = lanes.zoomed(view, 1.3, pointed);
  assert.equal(Math.round((view.to - view.from) / 86_400_000), 28);
});

test("an unknown range is the default", () => assert.deepEqual(lanes.viewOf("x", NOW), lanes.viewOf("6h", NOW)));

for (const [name] of Object.entries(lanes.RANGES)) {
  for (const width of [320, 900, 1700]) {
    test(`the hours of ${name} on ${width} pixels do not touch`, () => {
      const view = lanes.viewOf(name, NOW);
      const { found } = lanes.ticks(view, width);
      const place = lanes.scale(view, width);
      assert.ok(found.length >= 1);
      assert.ok(found.every((one, i) => i === 0 || place(one) - place(found[i - 1]) >= 69));
      assert.ok(found.every((one) => one >= view.from && one <= view.to));
    });
  }
}

test("the headline says what is free, or when", () => {
  const line = [{ id: 1, gpus: 0, expected_start: range(10, 20) }, { id: 2, gpus: 1, expected_start: range(600, 840) }];
  const free = (gpus, waiting, running) => facts.freeGpus(gpus, waiting, running, NOW);
  assert.deepEqual(free([gpu({ state: "free" }), gpu()], line, []), { count: 1, more: "jobs start at once" });
  assert.equal(free([gpu({ state: "free" }), gpu({ state: "free", reserved_for: 7 })], line, []).count, 1);
  assert.equal(facts.holder(gpu({ state: "free", reserved_for: 7 }), "me").text, "reserved for job 7");
  const reservation = { user: "ann", from: "2026-11-18T08:00:00Z", to: "2026-11-18T12:00:00Z" };
  assert.equal(free([gpu({ state: "free" }), gpu({ state: "free", reservation })], line, []).count, 1);
  assert.match(facts.holder(gpu({ state: "free", reservation }), "me").text, /^reserved for ann until \d\d:00$/);
  assert.equal(facts.holder(gpu({ state: "free", reservation }), "me").kind, "reserved");
  assert.match(facts.reservedText(reservation, "ann"), /^reserved for you until/);
  assert.equal(facts.holder(gpu({ state: "free", kept_by: "max_gpus" }), "me").text, "free, left for others (max_gpus)");
  assert.deepEqual(free([gpu()], line, []), { count: 0, more: "next in ~12 min" });
  const job = { gpu_ids: ["A"], time_limit_s: 3600, started_at: at(-1800) };
  assert.equal(free([gpu()], [], [job]).more, "next in 30 min at the latest");
  assert.equal(free([gpu()], [], []).more, "end unknown: no time limits");
  assert.deepEqual(free([], [], []), { count: 0, more: "" });
  assert.deepEqual(facts.nextStart([{ id: 3, expected_start: null }, { id: 4, expected_start: range(1080, 2400) }], NOW), { value: "~29 min", more: "18–40 min, job 4", job: 4 });
  assert.equal(facts.nextStart([{ id: 4, expected_start: range(0, 0) }], NOW).value, "now");
  assert.deepEqual(facts.nextStart([{ id: 7, expected_start: null, unknown: null, reason: "held by you" }], NOW), { value: "unknown", more: "job 7: held by you", job: 7 });
  assert.equal(facts.nextStart([], NOW).more, "no job is waiting");
});

test("no card stands alone in the last row, whatever the number of GPUs", () => {
  for (const most of [3, 4]) {
    for (let cards = 2; cards <= 16; cards += 1) {
      const columns = facts.columnsFor(cards, most);
      assert.ok(columns <= most + 2 && (columns === 1 || cards % columns !== 1), `${cards} cards, ${most} columns: ${columns}`);
    }
  }
  assert.deepEqual([1, 2, 4, 8, 6, 5, 7].map((cards) => facts.columnsFor(cards, 4)), [1, 2, 4, 4, 3, 3, 4]);
});

test("planned runs of a sweep that follow each other are one bar with a count", () => {
  const plan = (job, gpus, from, to, sweep) => bar(job, gpus, from, to, { state: "queued", is_plan: true, sweep });
  const bars = [bar(1, ["A"], -900, -10), plan(2, ["A"], 0, 100, "lr"), plan(3, ["A"], 100, 200, "lr"), plan(4, ["A"], 200, 300, null), plan(5, ["A"], 300, 400, "lr"), plan(6, ["B"], 0, 100, "lr")];
  const all = lanes.collapsed(lanes.pieces({ ...TIMELINE, bars }, NOW));
  assert.deepEqual(all.map((one) => [one.bar.job, one.lane, one.count]), [[1, 0, 1], [2, 0, 2], [6, 1, 1], [4, 0, 1], [5, 0, 1]]);
  assert.equal(all[1].to, NOW + 200_000);
  assert.equal(lanes.label(all[1]), "lr × 2");
  assert.equal(lanes.label(all[0]), "j1");
});

test("a dense view has the used part of each column", () => {
  const view = { from: NOW - 1000_000, to: NOW + 1000_000 };
  const bars = [bar(1, ["A"], -1000, -500), bar(2, ["A"], -500, -250, { state: "failed" }), bar(3, ["B"], 0, 1000, { is_plan: true, state: "queued" })];
  const found = lanes.density(lanes.pieces({ ...TIMELINE, bars }, NOW), view, 4, 2);
  assert.deepEqual(found[0].map(({ done, bad }) => [done, bad]), [[1, 0], [0, 0.5], [0, 0], [0, 0]]);
  assert.deepEqual(found[1].map((one) => one.plan), [0, 0, 1, 1]);
});

test("a label is cut with an ellipsis, or left out", () => {
  const measure = (text) => text.length * 10;
  assert.equal(lanes.fitted("llama-ft", 80, measure), "llama-ft");
  assert.equal(lanes.fitted("llama-ft", 60, measure), "llama…");
  assert.equal(lanes.fitted("llama-ft", 30, measure), "");
});

test("failures of a day are counted, with a plus when there may be more", () => {
  const jobs = [{ finished_at: at(-60) }, { finished_at: at(-23 * 3600) }, { finished_at: at(-25 * 3600) }];
  assert.deepEqual(facts.failedLately(jobs, true, NOW), { count: 2, text: "2" });
  assert.deepEqual(facts.failedLately(jobs.slice(0, 2), true, NOW), { count: 2, text: "2+" });
  assert.deepEqual(facts.failedLately([], false, NOW), { count: 0, text: "0" });
});

test("users of a GPU are shown, the worst first; only jobs of our queue have a link", () => {
  const said = (more) => facts.holder(gpu(more), "me");
  assert.deepEqual(said({ fault: "ECC", holders: [{ job: "3", user: "me" }] }), { text: "ECC", job: null, kind: "unhealthy", since: null });
  assert.deepEqual(said({ holders: [{ job: "3", user: "me" }, { job: "4", user: "me" }] }), { text: "and 1 more", job: 3, kind: "mine", since: null });
  assert.deepEqual(said({ holders: [{ job: "3", user: "eve" }] }), { text: "leased by eve", job: null, kind: "leased", since: null });
  assert.equal(said({ holders: [{ job: null, user: "me", uid: 7 }] }).text, "leased by me");
  const blocked = { text: "blocked by eve (pid 7), who keeps the lock of the GPU without a lease", fix: "`sudo kill 7` ends it." };
  assert.deepEqual(said({ blocked }), { text: `${blocked.text}: sudo kill 7 ends it.`, job: null, kind: "blocked", since: null });
  assert.equal(said({ blocked, holders: [{ job: "3", user: "eve" }] }).text, "leased by eve");
  assert.equal(said({ foreign: "used without a lease by eve's python (pid 31337)" }).text, "foreign process: eve's python (pid 31337)");
  assert.equal(said({ drained: "drained by root: fan" }).text, "drained by root: fan");
  assert.equal(said({ state: "free" }).text, "free");
});

test("a sparkline has gaps without readings", () => {
  const samples = [[at(-900), 1, 5], [at(-600), 1, 10], [at(-590), 1, 20], [at(-100), 1, 150], [at(0), 1, null]];
  const points = facts.sparkline(samples, NOW, 600_000);
  assert.deepEqual(points.map((one) => one && one[1]), [0.1, 0.2, null, 1]);
  assert.equal(points[0]?.[0], 0);
});

test("minutes are used for the time before the first reading", () => {
  const minutes = [[at(-180), 1], [at(-120), 2], [at(-60), 3]];
  assert.deepEqual(facts.joined(minutes, [[at(-100), 4], [at(-90), 5]]).map((one) => one[1]), [1, 2, 4, 5]);
  assert.deepEqual(facts.joined(minutes, []).map((one) => one[1]), [1, 2, 3]);
});

test("a move can be undone", () => {
  const line = [{ id: 5, priority: 10 }, { id: 6, priority: 0 }, { id: 7, priority: 0 }, { id: 8, priority: 0 }];
  assert.deepEqual(facts.moveTo(line, 3, 1), { to: "before", other: 6 });
  assert.deepEqual(facts.moveTo(line, 1, 3), { to: "after", other: 8 });
  assert.equal(facts.moveTo(line, 1, 1), null);
  assert.equal(facts.moveTo(line, 3, 4), null);
  assert.deepEqual(facts.placeOf(line, 1), { to: "before", other: 7 });
  assert.deepEqual(facts.placeOf(line, 3), { to: "after", other: 7 });
  assert.deepEqual(facts.placeOf(line, 0), { to: "last" });
});

test("GPU names are shortened", () => assert.equal(facts.shortName("NVIDIA GeForce RTX 4090"), "RTX 4090"));

test("a reservation is a block in each of its lanes, found under the pointer", () => {
  const reservation = { id: 1, user: "ada", gpus: [0, 1], gpu_ids: ["a", "b", "gone"], from: "2026-01-01T10:00:00Z", to: "2026-01-01T12:00:00Z", every: null, state: "planned", name: "", is_ours: false };
  const timeline = { lanes: [{ gpu_id: "a" }, { gpu_id: "b" }], bars: [], reservations: [reservation] };
  const kept = lanes.blocks(timeline);
  assert.deepEqual(kept.map((one) => [one.lane, one.to - one.from]), [[0, 7_200_000], [1, 7_200_000]]);
  const view = { from: Date.parse("2026-01-01T08:00:00Z"), to: Date.parse("2026-01-01T16:00:00Z") };
  const across = lanes.scale(view, 1000);
  const y = lanes.TOP + 1.5 * lanes.LANE;
  assert.equal(lanes.blockUnder(kept, view, 1000, across(Date.parse("2026-01-01T11:00:00Z")), y)?.lane, 1);
  assert.equal(lanes.blockUnder(kept, view, 1000, across(Date.parse("2026-01-01T13:00:00Z")), y), null);
  assert.equal(lanes.blockUnder(kept, view, 1000, 3, y), null);
});

test("no label of a tick touches another or leaves the picture", () => {
  const measure = (text) => text.length * 7;
  for (const width of [300, 390, 861, 1392]) {
    for (let minute = 0; minute < 180; minute += 7) {
      const to = NOW + minute * 60_000;
      const labels = lanes.tickLabels({ from: to - 86_400_000, to }, width, measure);
      assert.ok(labels.length > 1);
      labels.forEach(({ text, x }, i) => {
        assert.ok(x + measure(text) <= width);
        if (i) assert.ok(x > labels[i - 1].x + measure(labels[i - 1].text));
      });
    }
  }
});
