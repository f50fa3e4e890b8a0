// Long lists: visible rows, their jobs, what is requested, and the selection.
import assert from "node:assert/strict";
import { completions } from "../../src/dibs/web/pages/jobs/completions.js";
import { Grouped } from "../../src/dibs/web/pages/jobs/grouped-ids.js";
import { test } from "node:test";
import * as rowWindow from "../../src/dibs/web/components/row-window.js";
import { Listed, Ranges, compact, newcomers } from "../../src/dibs/web/core/id-ranges.js";
import * as filters from "../../src/dibs/web/pages/jobs/filters.js";
import { csv } from "../../src/dibs/web/pages/jobs/exports.js";
import { Rows } from "../../src/dibs/web/pages/jobs/row-cache.js";
import * as selection from "../../src/dibs/web/core/selection.js";

for (const count of [0, 1, 10, 1000, 400_000, 500_001, 3_000_000, 100_000_000]) {
  test(`${count} rows: from the first to the last, and back to the same place`, () => {
    const list = { count, row: 24, viewport: 600 };
    const far = rowWindow.farthest(list);
    assert.ok(rowWindow.height(list) <= rowWindow.TALLEST);
    assert.equal(rowWindow.view(list, 0).first, 0);
    assert.equal(rowWindow.view(list, far).end, count);
    // Also past both ends, where phones overscroll.
    assert.equal(rowWindow.view(list, -50).first, 0);
    assert.equal(rowWindow.view(list, far + 50).end, count);
    for (let step = 0; step <= 20; step += 1) {
      const scrollTop = (far * step) / 20;
      const seen = rowWindow.view(list, scrollTop, 3);
      const top = rowWindow.topRow(list, scrollTop);
      assert.ok(seen.first <= top && (count === 0 || top <= seen.end));
      assert.ok(seen.end - seen.first <= 26 + 7);
      // The first row is at the top of the screen.
      assert.ok(Math.abs(seen.top + (top - seen.first) * 24 - scrollTop) < 0.01);
      assert.ok(Math.abs(rowWindow.scrollFor(list, top) - scrollTop) < 0.01);
    }
  });
}

test("a row is scrolled into view, and not if it is visible", () => {
  for (const count of [1000, 5_000_000]) {
    const list = { count, row: 20, viewport: 200 };
    assert.equal(rowWindow.reveal(list, 0, 5), 0);
    for (const row of [0, 11, 500, count - 1]) {
      const scrollTop = rowWindow.reveal(list, 0, row);
      const top = rowWindow.topRow(list, scrollTop);
      assert.ok(row >= top - 1e-6 && row + 1 <= top + 10 + 1e-6, `${row} from ${top}`);
      const middle = rowWindow.topRow(list, rowWindow.centre(list, row));
      assert.ok(row >= middle - 1e-6 && row + 1 <= middle + 10 + 1e-6);
    }
  }
});

/** All ids of a list, one by one. */
const written = (list) => Array.from({ length: list.length }, (_, n) => list.at(n));

test("ranges are read in the order of the list", () => {
  const falling = Ranges.parse("8-10,5,1-2", true);
  assert.deepEqual(written(falling), [10, 9, 8, 5, 2, 1]);
  const rising = Ranges.parse("1-2,5,8-10", false);
  assert.deepEqual(written(rising), [1, 2, 5, 8, 9, 10]);
  for (const list of [falling, rising]) {
    written(list).forEach((id, n) => assert.equal(list.indexOf(id), n));
    for (const id of [0, 3, 4, 6, 7, 11]) assert.equal(list.indexOf(id), -1);
  }
  assert.equal(Ranges.parse("", true).length, 0);
  assert.equal(Ranges.parse("", true).indexOf(1), -1);
  assert.throws(() => rising.at(6), RangeError);
  assert.throws(() => Ranges.parse("1-x", true), /expected ids/);
});

test("a million consecutive ids are stored as one run", () => {
  const list = Ranges.parse("1-1000000", true);
  assert.equal(list.runs.length, 1);
  assert.deepEqual([list.length, list.at(0), list.at(999_999), list.indexOf(17)], [1_000_000, 1_000_000, 1, 999_983]);
});

test("all but some ids are written as runs", () => {
  assert.equal(Ranges.parse("8-10,5,1-2", true).without([9, 1]), "2,5,8,10");
  assert.equal(Ranges.parse("1-100", false).without([]), "1-100");
  assert.equal(Ranges.parse("1-100", false).without([1, 100, 50, 999]), "2-49,51-99");
  assert.equal(Ranges.parse("5", false).without([5]), "");
  assert.equal(new Listed([9, 3, 4, 5]).without([9]), "3-5");
  assert.equal(compact([3, 1, 2, 7, 7]), "1-3,7");
});

test("positions of ids in any order are found", () => {
  const list = new Listed([9, 3, 4]);
  assert.deepEqual([list.at(0), list.indexOf(4), list.indexOf(7), list.length], [9, 2, -1, 3]);
});

const TEXTS = [
  ["state:failed name:vit* tag:x gpu:3 since:2d", { state: "failed", name: "vit*", tag: "x", gpu: "3", since: "2d" }],
  ['cmd:"--lr 0.1"', { text: "--lr 0.1" }],
  ["train.py", { text: "train.py" }],
  ["two words", { text: "two words" }],
  ["state:failed state:timeout", { state: "failed,timeout" }],
  ['name:"a \\"b\\" c"', { name: 'a "b" c' }],
  ["  ", {}],
  ["project:vision sweep:12 until:1h", { project: "vision", sweep: "12", until: "1h" }],
];

for (const [text, filter] of TEXTS) {
  test(`the filter ${text} survives a round trip through text and address`, () => {
    assert.deepEqual(filters.parse(text), { filter, problem: null });
    assert.deepEqual(filters.parse(filters.write(filter)).filter, filter);
    assert.deepEqual(filters.fromQuery(new URLSearchParams(filters.toQuery(filter))), filter);
  });
}

test("an unknown filter is reported", () => {
  assert.match(filters.parse("colour:red").problem, /there is no filter colour:/);
  assert.match(filters.parse("state:fai").problem, /there is no state fai;/);
  assert.equal(filters.parse("state:bad,queued").problem, null);
  assert.match(filters.parse("state:").problem, /expected a value/);
  assert.deepEqual(filters.parse("state:").filter, {});
});

test("other parameters of an address are no filter", () => {
  assert.deepEqual(filters.fromQuery(new URLSearchParams("sort=-id&state=failed&tab=log&name=")), { state: "failed" });
});

test("rows are selected one by one, in ranges, and all but some", () => {
  const list = Ranges.parse("1-10", true);
  let some = selection.toggle(selection.NONE, 8);
  some = selection.extend(some, 5, list);
  assert.deepEqual([...some.ids].sort(), [5, 6, 7, 8]);
  assert.equal(selection.count(some, 10), 4);
  assert.ok(selection.has(some, 6) && !selection.has(some, 4));
  assert.ok(!selection.has(selection.toggle(some, 6), 6));
  let most = selection.toggle(selection.ALL, 3);
  assert.equal(selection.count(most, 10), 9);
  assert.ok(!selection.has(most, 3) && selection.has(most, 4));
  most = selection.toggle(selection.toggle(most, 4), 5);
  most = selection.extend({ ...most, anchor: 3 }, 5, list);
  assert.equal(selection.count(most, 10), 10);
  assert.equal(selection.extend(selection.NONE, 7, list).anchor, 7);
  assert.equal(selection.extend(selection.NONE, 77, list), selection.NONE);
});

test("jobs missing from the list are counted, also between others", () => {
  const shown = Ranges.parse("8-10,5,1-2", true);
  assert.equal(newcomers(Ranges.parse("8-12,4-5,1", true), shown), 3);
  assert.equal(newcomers(shown, shown), 0);
  assert.equal(newcomers(Ranges.parse("1-1000000", true), shown), 999_994);
  assert.equal(newcomers(shown, Ranges.parse("", true)), 6);
  assert.equal(newcomers(new Listed([7, 8, 99]), new Listed([8])), 2);
  assert.equal(newcomers(new Listed([10, 11]), shown), 1);
});

test("a line of CSV is quoted where needed", () => {
  const job = { id: 7, name: 'a "b", c', state: "failed", exit_code: 1, gpu_indices: [0, 1], tags: [], report: { loss: 0.5 }, command: "x\ny" };
  const line = csv([job]);
  assert.ok(line.startsWith('7,"a ""b"", c",,failed,,1,,,"[0,1]"'));
  assert.ok(line.includes('"{""loss"":0.5}"'));
  assert.ok(line.endsWith('"x\ny"\r\n'));
});

test("visible rows are requested when missing, and again after a change", () => {
  const rows = new Rows(() => {});
  rows.freshenedAt = -1e9;
  rows.put([{ id: 1, state: "queued" }, { id: 2, state: "queued" }]);
  rows.wanted = [1, 2, 3];
  assert.deepEqual(rows.due(), { ids: [3], wait: 0 });
  rows.mark([{ job: 2, state: "running" }, { job: 9, state: "done" }]);
  assert.equal(rows.get(2).state, "running");
  assert.equal(rows.get(9), undefined);
  assert.deepEqual(rows.due(), { ids: [3, 2], wait: 0 });
  // At most once a second, however many changes there are.
  rows.freshenedAt = performance.now() + 1e6;
  assert.deepEqual(rows.due(), { ids: [3], wait: 0 });
  rows.gone.add(3);
  assert.deepEqual(rows.due().ids, []);
  assert.ok(rows.due().wait > 0);
  rows.mark([]);
  rows.freshenedAt = -1e9;
  assert.deepEqual(rows.due().ids, [1, 2]);
});

test("sweeps and batches are one row each, whose jobs follow when it is open", () => {
  const groups = [{ sweep: 3, batch: null, name: "lr", total: 3, counts: {}, ids: "2-4" }, { sweep: null, batch: 7, name: "b", total: 2, counts: {}, ids: "6,8" }, { sweep: null, batch: 9, name: "gone", total: 2, counts: {}, ids: "5,90" }];
  const base = Ranges.parse("1-8", true);
  const rows = (opened) => {
    const list = new Grouped(base, groups, new Set(opened));
    return Array.from({ length: list.length }, (_, n) => list.at(n));
  };
  assert.deepEqual(rows([]), [-2, 7, 5, -1, 1]);
  assert.deepEqual(rows(["s3"]), [-2, 7, 5, -1, 4, 3, 2, 1]);
  const list = new Grouped(base, groups, new Set(["b7"]));
  assert.deepEqual(list.groupOf(-2)?.ids, [8, 6]);
  assert.equal(list.groupOf(7), null);
  assert.equal(list.indexOf(6), 2);
  assert.equal(list.indexOf(4), -1);
});

test("the filter box completes words, states and what is known", () => {
  const known = { tag: ["paper", "two words"], project: [], name: ["vit-*"], sweep: [{ id: 12, name: "lr" }] };
  const texts = (text) => completions(text, known).map((one) => one.text);
  assert.deepEqual(texts("s"), ["state:", "sweep:", "since:"]);
  assert.deepEqual(texts("state:failed s"), ["sweep:", "since:"]);
  assert.deepEqual(texts("state:fai"), ["failed", "bad"]);
  assert.equal(completions("x state:failed,tim", known)[0].result, "x state:failed,timeout ");
  assert.equal(completions("tag:two", known)[0].result, 'tag:"two words" ');
  assert.deepEqual(completions("sweep:l", known).map((one) => [one.text, one.about]), [["12", "lr"]]);
  assert.deepEqual(texts("colour:"), []);
});
