// Notifications about finished jobs: single ones, or one for many.
import assert from "node:assert/strict";
import { test } from "node:test";

import { MOST, noticesOf } from "../../src/dibs/web/components/notifications.js";

const event = (job, state, kind = "Ended") => ({ job, at: "2026-01-01T00:00:00Z", kind, detail: null, state, attempt: 1 });

test("an end is notified with its state; other events are not", () => {
  assert.deepEqual(noticesOf([event(7, "running", "Started"), event(9, "queued"), event(8, "failed", "Started"), event(8, "failed")]), [{ title: "Job 8: failed", tag: "dibs-8-1", path: "/job/8" }]);
  assert.deepEqual(noticesOf([]), []);
});

test("many ends at once are one notification, with their states", () => {
  const many = Array.from({ length: MOST + 1 }, (_, i) => event(i + 1, i ? "done" : "failed"));
  assert.deepEqual(noticesOf(many).map((one) => one.title), ["4 jobs ended: 1 failed, 3 done"]);
  assert.equal(noticesOf(many.slice(1)).length, MOST);
});
