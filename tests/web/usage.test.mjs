// GPU usage: stacks, sums, other users, CSV.
import assert from "node:assert/strict";
import { test } from "node:test";

import * as usageSums from "../../src/dibs/web/pages/usage/usage-sums.js";

const DAYS = ["2026-01-01", "2026-01-02"];
const sum = (day, project, sweep, hours, idle = 0) => ({ day: DAYS[day], project, sweep, gpu_s: hours * 3600, watched_s: hours * 3600, idle_s: idle * 3600 });
const SUMS = [sum(0, "vision", "lr", 4, 1), sum(0, "vision", null, 2), sum(1, "vision", "lr", 1), sum(1, "text", "lr", 3)];

test("a project is the sum of its sweeps per day, most hours first", () => {
  const groups = usageSums.grouped(SUMS, DAYS, "project");
  assert.deepEqual(groups.map((one) => [one.name, one.hours, one.total, one.idle]), [["vision", [6, 1], 7, 1], ["text", [0, 3], 3, 0]]);
  assert.deepEqual(usageSums.totals(groups), { total: 10, watched: 10, idle: 1 });
});

test("sweeps with equal names in two projects are separate, and jobs outside sweeps are a group", () => {
  assert.deepEqual(usageSums.grouped(SUMS, DAYS, "sweep").map((one) => [one.name, one.total]), [["vision/lr", 5], ["text/lr", 3], ["vision, without a sweep", 2]]);
});

test("groups after the first few are summed as one", () => {
  const many = Array.from({ length: 20 }, (_, i) => sum(0, `p${i}`, null, i + 1));
  const groups = usageSums.grouped(many, DAYS, "project");
  assert.equal(groups.length, usageSums.MOST_GROUPS);
  assert.equal(groups[groups.length - 1].name, usageSums.REST);
  assert.equal(usageSums.totals(groups).total, 210);
});

test("without usage there is no group", () => {
  assert.deepEqual(usageSums.grouped([], DAYS, "project"), []);
  assert.deepEqual(usageSums.totals([]), { total: 0, watched: 0, idle: 0 });
});

for (const [most, end] of [[0, 1], [0.3, 0.5], [1, 1], [7, 10], [10, 10], [11, 20], [230, 500]]) {
  test(`an axis for ${most} ends at ${end}`, () => assert.equal(usageSums.ceiling(most), end));
}

test("other users are those who hold GPUs now; an unknown time gives no sum", () => {
  const now = Date.parse("2026-01-01T12:00:00Z");
  const holder = (user, since) => ({ user, since });
  const gpus = [
    { holders: [holder("me", "2026-01-01T00:00:00Z")] },
    { holders: [holder("eve", "2026-01-01T10:00:00Z")] },
    { holders: [holder("eve", "2026-01-01T11:00:00Z"), holder("bob", null)] },
  ];
  assert.deepEqual(usageSums.others(gpus, "me", now), [{ user: "eve", gpus: 2, hours: 3 }, { user: "bob", gpus: 1, hours: null }]);
});

test("the CSV has hours per day", () => {
  assert.deepEqual(usageSums.sheet(SUMS), [
    ["day", "project", "sweep", "gpu_hours", "watched_hours", "idle_hours"],
    ["2026-01-01", "vision", "lr", 4, 4, 1],
    ["2026-01-01", "vision", null, 2, 2, 0],
    ["2026-01-02", "text", "lr", 3, 3, 0],
    ["2026-01-02", "vision", "lr", 1, 1, 0],
  ]);
});
