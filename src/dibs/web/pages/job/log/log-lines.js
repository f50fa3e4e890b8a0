// The lines of a log of any size: its end at once, every other part when it is scrolled to.
//
// The end is read first and followed as the file grows. Meanwhile the daemon reports where every thousandth line begins;
// when both meet, lines have numbers and any block of them can be fetched. Blocks are kept while they are used and
// evicted afterwards. Nothing here draws: `changed` notifies the viewer.

import { lastAtMost } from "../../../core/id-ranges.js";
import { Splitter } from "./line-splitter.js";
import { see } from "./write-times.js";

/** @typedef {import("./line-splitter.js").Line} Line */
/**
 * Where the bytes come from. Ends are not included; `size` is that of the file at that moment.
 * @typedef {{
 *   tail(lines: number): Promise<{bytes: Uint8Array, from: number}>,
 *   read(from: number, to: number | null, take: (bytes: Uint8Array) => void): Promise<{size: number}>,
 *   index(from: number, line: number): Promise<Index>,
 * }} Source
 */
/**
 * @typedef {{size: number, every: number, offsets: number[], next: number | null, line: number | null,
 *   traceback: number | null}} Index
 */

/** Lines that are shown at once. */
export const TAIL = 1000;
/** Blocks that are kept besides the end. */
const MOST_BLOCKS = 16;
/** Bytes by which a file may be ahead before only its end is read instead of everything new. */
const FAR_BEHIND = 8 * 1024 * 1024;
/** Bytes of one read while following. */
const STEP = 1024 * 1024;
/** Milliseconds after a block that could not be read. */
const RETRY_MS = 3000;

export class Log {
  /**
   * @param {Source} source
   * @param {() => void} changed
   * @param {(error: unknown) => void} failed called for lines that could not be read; they are tried again later
   */
  constructor(source, changed = () => {}, failed = () => {}) {
    this.source = source;
    this.changed = changed;
    this.failed = failed;
    /** Before that time no block is read for display. */
    this.retryAt = 0;
    /** The end of the file, line by line. @type {Line[]} */
    this.end = [];
    /** The number of the first of them, once it is known. @type {number | null} */
    this.base = null;
    this.splitter = new Splitter(0);
    /** Where lines 0, `every`, 2·`every`... begin. @type {number[]} */
    this.offsets = [];
    this.every = 1000;
    /** How far that is known: a byte at which the line of that number begins. */
    this.known = { byte: 0, line: 0 };
    /** The byte of the first traceback. @type {number | null} */
    this.traceback = null;
    /** Newest last. @type {Map<number, Line[]>} */
    this.blocks = new Map();
    /** @type {Map<number, Promise<Line[]>>} */
    this.loading = new Map();
    this.isClosed = false;
    /** Sizes of the file at moments of this browser, for `write-times`. @type {import("./write-times.js").Mark[]} */
    this.seen = [];
  }

  /** Bytes that were read or are known to be there. */
  get size() {
    return this.splitter.at;
  }

  /** Lines that can be shown: all, or those of the end while nothing else is known. */
  get count() {
    return (this.base ?? 0) + this.end.length + (this.splitter.rest() === null ? 0 : 1);
  }

  /** Read the last lines. */
  async open() {
    const { bytes, from } = await this.source.tail(TAIL);
    this.splitter = new Splitter(from);
    this.end = this.splitter.push(bytes);
    this.base = from === 0 ? 0 : null;
    if (from === 0) this.note(this.end, 0);
    this.changed();
  }

  /** Learn where lines begin, all of the file, and number them. */
  async number() {
    // If the first byte was read, the lines are already counted.
    while (!this.isClosed && this.base === null) {
      const answer = await this.source.index(this.known.byte, this.known.line);
      this.every = answer.every;
      this.traceback ??= answer.traceback;
      const { byte, line } = this.known;
      if (line === this.offsets.length * this.every && byte < answer.size) this.offsets.push(byte);
      // Two consecutive answers overlap at their boundary.
      const last = this.offsets.at(-1) ?? -1;
      this.offsets.push(...answer.offsets.filter((offset) => offset > last));
      if (answer.next === null) break;
      this.known = { byte: answer.next, line: answer.line ?? this.known.line };
    }
    if (!this.isClosed && this.base === null) await this.join();
    this.changed();
  }

  /** Find the number of the first line of the end: through a line of the index in it, or by reading up to it. */
  async join() {
    const last = this.offsets.length - 1;
    const place = this.end.findIndex((line) => line.start === this.offsets[last]);
    if (place >= 0) this.base = last * this.every - place;
    else {
      const start = this.end[0]?.start ?? this.splitter.openStart;
      // Extremely long lines get no numbers: the page would read for minutes.
      if (start - (this.offsets[last] ?? 0) > FAR_BEHIND) return;
      const before = await this.split(this.offsets[last] ?? 0, start);
      this.end = [...before, ...this.end];
      this.base = Math.max(0, last) * this.every;
    }
    const open = this.splitter.openStart;
    this.known = { byte: open, line: this.base + this.end.length };
  }

  /** Read what was added; return whether there was anything. A truncated file is read again. */
  async grow() {
    const before = this.size;
    const asked = Date.now();
    const { size } = await this.source.read(before, before + STEP, (bytes) => this.take(bytes));
    // What is not read yet may have been written long before.
    this.seen = size === this.size ? see(this.seen, size, asked, Date.now()) : [];
    if (size < before || size - this.size > FAR_BEHIND) {
      if (size < before) this.forget();
      this.base = null;
      await this.open();
      await this.number();
    }
    if (this.size !== before) this.changed();
    return this.size !== before;
  }

  /** @param {Uint8Array} bytes */
  take(bytes) {
    const lines = this.splitter.push(bytes);
    if (this.base !== null) this.note(lines, this.base + this.end.length);
    this.end.push(...lines);
    this.trim();
  }

  /**
   * Note where every thousandth of some new lines begins.
   * @param {Line[]} lines
   * @param {number} first
   */
  note(lines, first) {
    lines.forEach((line, i) => {
      if (first + i === this.offsets.length * this.every) this.offsets.push(line.start);
      if (this.traceback === null && line.text.startsWith("Traceback (most recent call last)")) this.traceback = line.start;
    });
    const number = first + lines.length;
    this.known = { byte: this.splitter.openStart, line: number };
    // The line that is still open may be such a one too.
    if (number === this.offsets.length * this.every && this.splitter.rest() !== null) this.offsets.push(this.splitter.openStart);
  }

  /** Drop lines of the end that can be fetched again. */
  trim() {
    if (this.base === null) return;
    const spare = this.end.length - 2 * TAIL;
    if (spare < TAIL) return;
    this.end = this.end.slice(spare);
    this.base += spare;
  }

  forget() {
    this.offsets = [];
    this.known = { byte: 0, line: 0 };
    this.traceback = null;
    this.blocks.clear();
  }

  /**
   * Return a line if it is loaded; otherwise undefined, and `changed` is called when it is.
   * @param {number} row
   * @returns {Line | undefined}
   */
  line(row) {
    const base = this.base ?? 0;
    if (row >= base + this.end.length) return row < this.count ? this.splitter.rest() ?? undefined : undefined;
    if (row >= base) return this.end[row - base];
    const number = Math.floor(row / this.every);
    const block = this.blocks.get(number);
    if (block === undefined) {
      if (!this.loading.has(number) && Date.now() >= this.retryAt) this.block(number).then(this.changed, (error) => this.complain(error));
      return undefined;
    }
    this.blocks.delete(number);
    this.blocks.set(number, block);
    return block[row - number * this.every];
  }

  /** Return a line if it is loaded, and load nothing. @param {number} row @returns {Line | undefined} */
  peek(row) {
    const number = Math.floor(row / this.every);
    return row >= (this.base ?? 0) ? this.line(row) : this.blocks.get(number)?.[row - number * this.every];
  }

  /** @param {unknown} error */
  complain(error) {
    if (this.isClosed) return;
    this.retryAt = Date.now() + RETRY_MS;
    setTimeout(this.changed, RETRY_MS);
    this.failed(error);
  }

  /**
   * Return the row of the line that holds a byte.
   * @param {number} offset
   * @returns {Promise<number>}
   */
  async rowAt(offset) {
    const base = this.base ?? 0;
    const first = this.end[0]?.start ?? this.splitter.openStart;
    if (offset >= this.splitter.openStart) return Math.max(0, this.count - 1);
    if (offset >= first) return base + lastAtMost(this.end.map((line) => line.start), offset);
    const number = Math.max(0, lastAtMost(this.offsets, offset));
    const block = await this.block(number);
    return number * this.every + Math.max(0, lastAtMost(block.map((line) => line.start), offset));
  }

  /**
   * Return a block of lines that is not at the end, fetched once.
   * @param {number} number
   * @returns {Promise<Line[]>}
   */
  block(number) {
    const here = this.blocks.get(number);
    if (here !== undefined) return Promise.resolve(here);
    let coming = this.loading.get(number);
    if (coming === undefined) {
      const to = this.offsets[number + 1] ?? this.end[0]?.start ?? this.splitter.openStart;
      coming = this.split(this.offsets[number], to).finally(() => this.loading.delete(number));
      this.loading.set(number, coming);
      coming.then((lines) => this.keep(number, lines), () => {});
    }
    return coming;
  }

  /**
   * @param {number} number
   * @param {Line[]} lines
   */
  keep(number, lines) {
    this.blocks.set(number, lines);
    for (const oldest of this.blocks.keys()) {
      if (this.blocks.size <= MOST_BLOCKS) break;
      this.blocks.delete(oldest);
    }
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  async split(from, to) {
    /** @type {Line[]} */
    const lines = [];
    if (from >= to) return lines;
    const splitter = new Splitter(from);
    await this.source.read(from, to, (bytes) => lines.push(...splitter.push(bytes)));
    return lines;
  }

  close() {
    this.isClosed = true;
  }
}
