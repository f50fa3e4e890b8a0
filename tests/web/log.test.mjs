// How a line of output is rendered, and the lines of a log of any size.
import assert from "node:assert/strict";
import { test } from "node:test";
import { PLAIN, plain, spans } from "../../src/dibs/web/pages/job/log/ansi.js";
import { DARK, LEAST_CONTRAST, LIGHT, contrast, paint, pair } from "../../src/dibs/web/pages/job/log/ansi-colours.js";
import { Splitter } from "../../src/dibs/web/pages/job/log/line-splitter.js";
import { Log, TAIL } from "../../src/dibs/web/pages/job/log/log-lines.js";
import * as finds from "../../src/dibs/web/pages/job/log/finds.js";
import { tracebackRows } from "../../src/dibs/web/pages/job/log/tracebacks.js";
import * as writeTimes from "../../src/dibs/web/pages/job/log/write-times.js";

const encoder = new TextEncoder();

/** What is special about each span of a line. */
function dressed(line) {
  return spans(line).map(({ text, style }) => {
    const marks = Object.entries(style).filter(([name, value]) => value !== PLAIN[name]);
    return [text, Object.fromEntries(marks)];
  });
}

const STYLES = [
  ["plain", [["plain", {}]]],
  ["", []],
  ["\x1b[31mred\x1b[0m not", [["red", { fg: 1 }], [" not", {}]]],
  ["\x1b[1;2;3;4;7;9mall", [["all", { bold: true, dim: true, italic: true, underline: true, inverse: true, strike: true }]]],
  ["\x1b[1mbold\x1b[22mnot", [["bold", { bold: true }], ["not", {}]]],
  ["\x1b[4mu\x1b[24m\x1b[3mi\x1b[23m\x1b[7mv\x1b[27mn", [["u", { underline: true }], ["i", { italic: true }], ["v", { inverse: true }], ["n", {}]]],
  ["\x1b[4:0mno\x1b[4:3myes", [["no", {}], ["yes", { underline: true }]]],
  ["\x1b[97;104mbright", [["bright", { fg: 15, bg: 12 }]]],
  ["\x1b[38;5;9mnine", [["nine", { fg: 9 }]]],
  ["\x1b[38;5;196mcube", [["cube", { fg: [255, 0, 0] }]]],
  ["\x1b[48;5;244mgrey", [["grey", { bg: [128, 128, 128] }]]],
  ["\x1b[38;2;1;2;3mtrue\x1b[39mnot", [["true", { fg: [1, 2, 3] }], ["not", {}]]],
  ["\x1b[38:2::1:2:3mtrue", [["true", { fg: [1, 2, 3] }]]],
  ["\x1b[38:2:1:2:3mtrue", [["true", { fg: [1, 2, 3] }]]],
  ["\x1b[38;2;1;2;3;1mand bold", [["and bold", { fg: [1, 2, 3], bold: true }]]],
  ["\x1b[38;5;999mnone", [["none", {}]]],
  ["\x1b[38;7mnone", [["none", {}]]],
  ["\x1b[999mnone", [["none", {}]]],
  ["\x1b[mreset", [["reset", {}]]],
];

for (const [line, expected] of STYLES) {
  test(`styles of ${JSON.stringify(line)}`, () => assert.deepEqual(dressed(line), expected));
}

const SHOWN = [
  // tqdm: its last output.
  ["\r  0%|          |\r 50%|#####     |\r100%|##########|", "100%|##########|"],
  // A terminal keeps what is not overwritten.
  ["Downloading\rdone", "doneloading"],
  ["Downloading\r\x1b[Kdone", "done"],
  ["Downloading\x1b[2K\rdone", "done"],
  ["abc\x1b[1Kd", "   d"],
  ["abc\b\bX", "aXc"],
  ["\b\bX", "X"],
  ["a\tb", "a       b"],
  ["12345678\tb", "12345678        b"],
  ["abc\x1b[2Gx", "axc"],
  // Sequences that are ignored.
  ["\x1b]0;title\x07text", "text"],
  ["\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"],
  ["\x1b[2J\x1b[10;10Hhome", "home"],
  ["\x1b[?25lhidden cursor\x1b[?25h", "hidden cursor"],
  ["\x1b(Bcharset", "charset"],
  ["\x1bPdevice\x1b\\control", "control"],
  ["cut \x1b[3", "cut 3"],
  ["cut \x1b", "cut "],
  ["\x1b]0;never ended", ""],
  // Symbols for control characters.
  ["bell\x07null\x00del\x7f", "bell␇null␀del␡"],
  ["turned \u202eback\u202c", "turned \ufffdback\ufffd"],
  ["a\u2028b", "a\ufffdb"],
  ["\u009b31mc1", "\ufffd31mc1"],
  ["ünïcödé 🎉\r🎈", "🎈nïcödé 🎉"],
  ["<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"],
];

for (const [line, expected] of SHOWN) {
  test(`shown of ${JSON.stringify(line)}`, () => assert.equal(plain(line), expected));
}

test("an endless line is truncated", () => {
  assert.ok(plain(`${"x".repeat(200_000)}\t`).length <= 65_536);
  assert.equal(plain("\x1b[999999999Gx"), "");
});

test("every colour is readable in both themes", () => {
  for (const theme of [LIGHT, DARK]) {
    for (let n = 0; n < 256; n += 1) {
      for (const parameters of [`38;5;${n}`, `48;5;${n}`, `7;38;5;${n}`, `31;48;5;${n}`, `38;5;${n};48;5;${255 - n}`]) {
        const [{ style }] = spans(`\x1b[${parameters}mx`);
        const { ink, paper } = pair(style, theme);
        assert.ok(contrast(ink, paper) >= LEAST_CONTRAST, `${parameters}: ${ink} on ${paper}`);
      }
    }
  }
});

test("plain text has the colours of the page, and each colour one value per theme", () => {
  assert.deepEqual(paint(PLAIN), { color: null, background: null });
  const { color, background } = paint({ ...PLAIN, fg: 1 });
  assert.match(color, /^light-dark\(rgb\(\d+ \d+ \d+\), rgb\(\d+ \d+ \d+\)\)$/);
  assert.equal(background, null);
  assert.notEqual(paint({ ...PLAIN, inverse: true }).background, null);
});

/** The lines of some bytes, handed over in pieces. */
function split(bytes, piece, longest) {
  const splitter = new Splitter(0, longest);
  const lines = [];
  for (let at = 0; at < bytes.length; at += piece) lines.push(...splitter.push(bytes.subarray(at, at + piece)));
  const rest = splitter.rest();
  return rest === null ? lines : [...lines, rest];
}

test("no boundary of two reads splits a character or a line", () => {
  const text = "één\n漢字🎉\r\n\n\nlast without feed";
  const bytes = encoder.encode(text);
  const whole = split(bytes, bytes.length);
  assert.deepEqual(whole.map((line) => line.text), ["één", "漢字🎉", "", "", "last without feed"]);
  assert.deepEqual(whole.map((line) => line.start), [0, 6, 18, 19, 20]);
  for (let piece = 1; piece < bytes.length; piece += 1) assert.deepEqual(split(bytes, piece), whole);
});

test("bytes that are no UTF-8 are shown as such", () => {
  assert.equal(split(Uint8Array.of(0x61, 0xff, 0x62, 0x0a), 9)[0].text, "a\ufffdb");
});

test("the end of a line that is too long is kept, from a whole character on", () => {
  const bytes = encoder.encode(`${"é".repeat(50)}\nshort\n`);
  for (const piece of [1, 3, 7, 1000]) {
    const [long, short] = split(bytes, piece, 21);
    assert.equal(long.text, "é".repeat(10));
    assert.equal(long.left, 80);
    assert.deepEqual(short, { text: "short", start: 101, left: 0 });
  }
});

/** A file in memory that answers as the daemon does; `every` lines are indexed, `work` bytes of it at a time. */
function file(text, { every = 10, work = 300 } = {}) {
  const source = {
    bytes: encoder.encode(text),
    reads: 0,
    append(more) {
      source.bytes = encoder.encode(new TextDecoder().decode(source.bytes) + more);
    },
    async tail(lines) {
      let from = source.bytes.length;
      for (let left = lines; from > 0; from -= 1) {
        if (source.bytes[from - 1] === 10 && from !== source.bytes.length && (left -= 1) === 0) break;
      }
      return { bytes: source.bytes.slice(from), from };
    },
    async read(from, to, take) {
      source.reads += 1;
      const part = source.bytes.slice(from, to ?? undefined);
      for (let at = 0; at < part.length; at += 7) take(part.slice(at, at + 7));
      return { size: source.bytes.length };
    },
    async index(from, line) {
      // In pieces of a fixed size, which may end within a line.
      const { bytes } = source;
      const end = Math.min(bytes.length, from + work);
      const offsets = from === 0 && bytes.length ? [0] : [];
      let number = line;
      for (let at = from; at < end; at += 1) {
        if (bytes[at] !== 10) continue;
        number += 1;
        if (number % every === 0 && at + 1 < bytes.length) offsets.push(at + 1);
      }
      const found = new TextDecoder().decode(bytes.slice(from, end)).indexOf("Traceback (most recent");
      return { size: bytes.length, every, offsets, next: end < bytes.length ? end : null, line: number, traceback: found < 0 ? null : from + found };
    },
  };
  return source;
}

const lines = (from, to, word = "line") => Array.from({ length: to - from }, (_, i) => `${word} ${from + i}\n`).join("");

/** The text of a row, waited for. */
async function textOf(log, row) {
  if (log.line(row) === undefined) await log.block(Math.floor(row / log.every));
  return log.line(row)?.text;
}

test("a short log is shown at once, with line numbers", async () => {
  const log = new Log(file(lines(0, 25)));
  await log.open();
  assert.equal(log.count, 25);
  assert.equal(log.base, 0);
  assert.equal(log.line(24).text, "line 24");
  assert.equal(log.line(25), undefined);
});

test("an empty log has no lines and can grow", async () => {
  const source = file("");
  const log = new Log(source);
  await log.open();
  await log.number();
  assert.equal(log.count, 0);
  assert.equal(await log.grow(), false);
  source.append("first\nsec");
  assert.equal(await log.grow(), true);
  assert.deepEqual([log.count, log.line(1).text], [2, "sec"]);
  source.append("ond\n");
  await log.grow();
  assert.deepEqual([log.count, log.line(1).text], [2, "second"]);
});

for (const count of [1, 999, 1000, 1001, 1009, 1010, 2345, 5000]) {
  test(`${count} lines: the end first, then any line by its number`, async () => {
    const log = new Log(file(lines(0, count)));
    await log.open();
    assert.equal(log.count, Math.min(count, TAIL));
    assert.equal(log.line(log.count - 1).text, `line ${count - 1}`);
    await log.number();
    assert.equal(log.count, count);
    for (const row of [0, 9, 10, Math.floor(count / 2), count - 2, count - 1].filter((each) => each >= 0 && each < count)) {
      assert.equal(await textOf(log, row), `line ${row}`);
      const { start } = log.line(row);
      assert.equal(await log.rowAt(start), row);
      assert.equal(await log.rowAt(start + 3), row);
    }
  });
}

test("a log that grows much keeps few lines and all numbers", async () => {
  const source = file(lines(0, 3000));
  const log = new Log(source);
  await log.open();
  await log.number();
  for (let at = 3000; at < 12_000; at += 500) {
    source.append(lines(at, at + 500));
    await log.grow();
  }
  assert.equal(log.count, 12_000);
  assert.ok(log.end.length < 4 * TAIL);
  for (const row of [0, 2999, 3000, 5555, 8999, 11_999]) assert.equal(await textOf(log, row), `line ${row}`);
});

test("a log may grow while its lines are being counted", async () => {
  const source = file(lines(0, 4000), { work: 5000 });
  const log = new Log(source);
  await log.open();
  const index = source.index;
  let turns = 0;
  source.index = async (from, line) => {
    const answer = await index(from, line);
    source.append(lines(4000 + 50 * turns, 4050 + 50 * turns));
    turns += 1;
    await log.grow();
    return turns > 100 ? { ...answer, next: null } : answer;
  };
  await log.number();
  source.index = index;
  await log.grow();
  assert.equal(log.line(log.count - 1).text, `line ${log.count - 1}`);
  for (const row of [0, 1234, 3999, 4000]) assert.equal(await textOf(log, row), `line ${row}`);
});

test("a truncated file is read again", async () => {
  const source = file(lines(0, 3000));
  const log = new Log(source);
  await log.open();
  await log.number();
  source.bytes = encoder.encode(lines(0, 7, "other"));
  await log.grow();
  assert.deepEqual([log.count, log.line(6).text], [7, "other 6"]);
});

test("blocks are fetched once and evicted when there are too many", async () => {
  const source = file(lines(0, 5000));
  const log = new Log(source);
  await log.open();
  await log.number();
  source.reads = 0;
  await Promise.all([log.block(3), log.block(3)]);
  await log.block(3);
  assert.equal(source.reads, 1);
  for (let number = 10; number < 60; number += 1) await log.block(number);
  assert.ok(log.blocks.size <= 16);
});

test("unreadable lines are reported, and not requested again at once", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const source = file(lines(0, 5000));
  const told = [];
  const log = new Log(source, () => told.push("changed"), (error) => told.push(error.message));
  await log.open();
  await log.number();
  const { read } = source;
  source.read = async () => {
    source.reads += 1;
    throw new Error("gone");
  };
  told.length = source.reads = 0;
  assert.equal(log.line(5), undefined);
  await log.block(0).catch(() => {});
  await Promise.resolve();
  assert.equal(log.line(5), undefined);
  assert.deepEqual([told, source.reads], [["gone"], 1]);
  source.read = read;
  context.mock.timers.tick(3000);
  assert.deepEqual(told, ["gone", "changed"]);
  assert.equal(await textOf(log, 5), "line 5");
});

test("the first traceback is found, even while following", async () => {
  const source = file(`${lines(0, 1500)}Traceback (most recent call last):\n${lines(0, 1500)}`);
  const log = new Log(source);
  await log.open();
  await log.number();
  assert.equal(await log.rowAt(log.traceback), 1500);
  const fresh = file(lines(0, 20));
  const other = new Log(fresh);
  await other.open();
  fresh.append("Traceback (most recent call last):\n");
  await other.grow();
  assert.equal(await other.rowAt(other.traceback), 20);
});

const found = (offsets, next) => ({ matches: offsets.map((offset) => ({ offset, line: null, text: "" })), next });

test("stepping through matches wraps around", () => {
  let state = finds.add(finds.NOTHING, found([10, 20], 100));
  assert.equal(finds.label(finds.NOTHING), "searching…");
  state = finds.from(state, 15);
  assert.equal(finds.label(state), "2/2+");
  state = finds.add(state, found([150], null));
  assert.equal(finds.label(state), "2/3");
  assert.equal(finds.step(state, 1).current, 2);
  assert.equal(finds.step(finds.step(state, 1), 1).current, 0);
  assert.equal(finds.step(finds.from(state, 0), -1).current, 2);
  assert.equal(finds.from(state, 999).current, 0);
  assert.equal(finds.label(finds.add(finds.NOTHING, found([], null))), "nothing found");
});

test("more matches than are kept are shown by a plus", () => {
  const many = Array.from({ length: finds.MOST }, (_, i) => i);
  const state = finds.add(finds.add(finds.NOTHING, found(many, 5)), found([1], 9));
  assert.equal(state.matches.length, finds.MOST);
  assert.equal(state.next, null);
  assert.match(finds.label(state), /\+$/);
});

test("a match is cut out of its spans", () => {
  const [a, b] = [{ ...PLAIN, fg: 1 }, PLAIN];
  const cut = finds.marked([{ text: "lo", style: a }, { text: "ss 1 loss", style: b }], [[0, 4], [7, 11]]);
  assert.deepEqual(cut.map(({ text, style, isFound }) => [text, style.fg, isFound]), [["lo", 1, true], ["ss", null, true], [" 1 ", null, false], ["loss", null, true]]);
  assert.deepEqual(finds.marked([{ text: "x", style: b }], []), [{ text: "x", style: b, isFound: false }]);
});

test("a link to lines is parsed and written", () => {
  assert.deepEqual(finds.linesOf("#L12"), [12, 12]);
  assert.deepEqual(finds.linesOf("#L20-L12"), [12, 20]);
  for (const other of ["", "#", "#L", "#Lx", "#code=1", "#L1-"]) assert.equal(finds.linesOf(other), null);
  assert.deepEqual([finds.fragmentOf(7), finds.fragmentOf(9, 7)], ["#L7", "#L7-L9"]);
});

test("a log that grows fast is read at its end, with continued line numbers", async () => {
  const source = file(lines(0, 4000), { work: 100_000 });
  const log = new Log(source);
  await log.open();
  await log.number();
  const filler = `${"x".repeat(9999)}\n`.repeat(1000);
  source.append(filler + lines(5000, 7000));
  await log.grow();
  assert.equal(log.count, 7000);
  for (const row of [17, 3999, 5003, 6999]) assert.equal(await textOf(log, row), `line ${row}`);
});

test("every occurrence of a text is marked", () => {
  assert.deepEqual(finds.marks("Loss loss", "loss", false), [[0, 4], [5, 9]]);
  assert.deepEqual(finds.marks("Loss loss", "loss", true), [[5, 9]]);
  assert.deepEqual(finds.marks("aaa", "aa", false), [[0, 2]]);
  assert.deepEqual(finds.marks("a", "", false), []);
  assert.deepEqual(finds.marks("İstanbul", "i", false), []);
});

const at = (text) => new Date(`2026-01-02T${text}`).getTime();
const MARKS = [{ at: at("14:00:00"), size: 0 }, { at: at("14:00:30"), size: 100 }, { at: at("14:05:00"), size: 100 }, { at: at("14:05:30"), size: 300 }];

test("a line was written after the last moment without it and before the first with all of it", () => {
  assert.deepEqual(writeTimes.rangeOf(MARKS, 0, 40), { after: at("14:00:00"), before: at("14:00:30") });
  // The log had not grown for minutes: the line after that is from after them.
  assert.deepEqual(writeTimes.rangeOf(MARKS, 100, 200), { after: at("14:05:00"), before: at("14:05:30") });
  assert.deepEqual(writeTimes.rangeOf(MARKS, 40, 160), { after: at("14:00:00"), before: at("14:05:30") });
  assert.deepEqual(writeTimes.rangeOf(MARKS, 200, 400), { after: at("14:05:00"), before: null });
  assert.deepEqual(writeTimes.rangeOf(MARKS.slice(1), 0, 40), { after: null, before: at("14:00:30") });
  assert.deepEqual(writeTimes.rangeOf([], 0, 40), { after: null, before: null });
});

test("a range is told as one, and a moment as a moment", () => {
  const now = at("15:00:00");
  assert.equal(writeTimes.shortText({ after: at("14:02:10"), before: at("14:03:10") }, now), "14:02–14:03");
  assert.equal(writeTimes.shortText({ after: at("14:02:10"), before: at("14:02:40") }, now), "14:02");
  assert.equal(writeTimes.shortText({ after: at("14:02:30"), before: at("14:02:31") }, now), "14:02:31");
  assert.equal(writeTimes.shortText({ after: null, before: at("14:02:31") }, now), "before 14:02");
  assert.equal(writeTimes.shortText({ after: at("14:02:31"), before: null }, now), "after 14:02");
  assert.equal(writeTimes.shortText({ after: null, before: null }, now), "");
  assert.equal(writeTimes.shortText({ after: at("14:02:30"), before: at("14:02:31") }, now + 86_400_000), "2 Jan 14:02:31");
  assert.equal(writeTimes.longText({ after: at("14:02:10"), before: at("14:03:10") }), "Written between 02/01/2026, 14:02:10 and 02/01/2026, 14:03:10");
});

test("a browser remembers of each size the first and the last moment", () => {
  let seen = [];
  for (const [size, asked, answered] of [[10, 1, 2], [10, 3, 4], [10, 5, 6], [30, 7, 8]]) seen = writeTimes.see(seen, size, asked, answered);
  assert.deepEqual(seen, [{ at: 2, size: 10 }, { at: 5, size: 10 }, { at: 8, size: 30 }]);
  assert.deepEqual(writeTimes.rangeOf(writeTimes.merged([{ at: 0, size: 0 }], seen), 10, 30), { after: 5, before: 8 });
  // The log was emptied.
  assert.deepEqual(writeTimes.see(seen, 5, 9, 10), [{ at: 10, size: 5 }]);
});

test("the rows of a traceback are known wherever one begins to look", () => {
  const lines = ["epoch 1", "[rank0]: Traceback (most recent call last):", '[rank0]:   File "a.py", line 1', "[rank0]: \x1b[31mValueError: no\x1b[0m", "",
    "During handling of the above exception, another exception occurred:", "", "Traceback (most recent call last):", "  File", "KeyError: 1", "saved"];
  const rows = (first, end) => [...tracebackRows(first, end, (row) => lines[row])];
  assert.deepEqual(rows(0, 11), [[1, "trace"], [2, "trace"], [3, "cause"], [5, "trace"], [7, "trace"], [8, "trace"], [9, "cause"]]);
  assert.deepEqual(rows(2, 5), [[2, "trace"], [3, "cause"]]);
  assert.deepEqual(rows(10, 11), []);
  assert.deepEqual([...tracebackRows(0, 3, () => undefined)], []);
});
