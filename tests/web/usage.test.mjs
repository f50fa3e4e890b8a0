// GPU usage: stacks, sums, other users, CSV.
import assert from "node:assert/strict";
import { test } from "node:test";

import * as usageSums from "../../src/dibs/web/pages/usage/usage-sums.js";

const DAYS = ["2026-01-01", "2026-01-02"];
const sum = (day, project, sweep, hours, idle = 0) => ({ day: DAYS[day], project, sweep, group: day ? "night" : "", gpu_s: hours * 3600, watched_s: hours * 3600, idle_s: idle * 3600, used_s: (hours - idle) * 3600, waited_s: 1800, jobs: 2 });
const SUMS = [sum(0, "vision", "lr", 4, 1), sum(0, "vision", null, 2), sum(1, "vision", "lr", 1), sum(1, "text", "lr", 3)];

test("a project is the sum of its sweeps per day, most hours first", () => {
  const groups = usageSums.grouped(SUMS, DAYS, "project");
  assert.deepEqual(groups.map((one) => [one.name, one.hours, one.total, one.idle]), [["vision", [6, 1], 7, 1], ["text", [0, 3], 3, 0]]);
  assert.deepEqual(usageSums.totals(groups), { total: 10, used: 9, watched: 10, idle: 1, waited: 2, jobs: 8 });
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
  assert.deepEqual(usageSums.totals([]), { total: 0, used: 0, watched: 0, idle: 0, waited: 0, jobs: 0 });
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

test("groups of jobs are summed, and jobs without one; days are in their order, the newest first", () => {
  assert.deepEqual(usageSums.grouped(SUMS, DAYS, "group").map((one) => [one.name, one.total, one.jobs]), [["no group", 6, 4], ["night", 4, 4]]);
  assert.deepEqual(usageSums.grouped(SUMS, DAYS, "day").map((one) => [one.name, one.total, one.waited]), [["2026-01-02", 4, 1], ["2026-01-01", 6, 1]]);
});

test("what was watched stands for the whole time", () => {
  const [one] = usageSums.grouped([{ ...sum(0, "p", null, 4), watched_s: 3600, used_s: 1800 }], DAYS, "project");
  assert.equal(one.used, 2);
});

const PEOPLE = [{ day: DAYS[0], user: "eve", gpu_s: 3600 }, { day: DAYS[1], user: "me", gpu_s: 36_000 }, { day: "2025-12-31", user: "eve", gpu_s: 7200 }];

test("of other users only what they held is known", () => {
  assert.deepEqual(
    usageSums.users(PEOPLE, SUMS, DAYS, "me").map((one) => [one.name, one.hours, one.total, one.used, one.idle, one.waited, one.jobs]),
    // On the first day the jobs say more: the daemon did not see all of their leases.
    [["me", [6, 10], 16, 9, 1, 2, 8], ["eve", [1, 0], 3, null, null, null, null]],
  );
  assert.deepEqual(usageSums.userSheet(PEOPLE), [["day", "user", "gpu_hours"], ["2025-12-31", "eve", 2], [DAYS[0], "eve", 1], [DAYS[1], "me", 10]]);
});

test("a sum with somebody of whom nothing is known is not known either", () => {
  const many = Array.from({ length: 12 }, (_, i) => ({ day: DAYS[0], user: `u${i}`, gpu_s: 3600 * (i + 1) }));
  const groups = usageSums.users(many, SUMS, DAYS, "u0");
  assert.deepEqual([groups.length, groups.at(-1).name, groups.at(-1).used], [usageSums.MOST_GROUPS, usageSums.REST, null]);
});

test("the CSV has hours per day", () => {
  assert.deepEqual(usageSums.sheet(SUMS), [
    ["day", "project", "group", "sweep", "gpu_hours", "used_hours", "watched_hours", "idle_hours", "waited_hours", "jobs"],
    ["2026-01-01", "vision", "", "lr", 4, 3, 4, 1, 0.5, 2],
    ["2026-01-01", "vision", "", null, 2, 2, 2, 0, 0.5, 2],
    ["2026-01-02", "text", "night", "lr", 3, 3, 3, 0, 0.5, 2],
    ["2026-01-02", "vision", "night", "lr", 1, 1, 1, 0, 0.5, 2],
  ]);
});
