// Bytes of a log, as they come, into lines of text.
//
// Lines are cut at line feeds before anything is decoded, so that no character is split between two reads. Of a line
// that is too long to show, only its end is kept: for a progress bar that is its last state.

/** Bytes of a line that are kept. */
export const LONGEST = 16_384;

/** @typedef {{text: string, start: number, left: number}} Line text, its first byte in the file, bytes left out */

const LINE_FEED = 0x0a;
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

export class Splitter {
  /**
   * @param {number} from the byte of the file at which the first line begins
   * @param {number} longest
   */
  constructor(from, longest = LONGEST) {
    /** The byte that comes next. */
    this.at = from;
    this.longest = longest;
    /** @type {Uint8Array[]} */
    this.open = [];
    this.openBytes = 0;
    this.openStart = from;
  }

  /**
   * Return the lines that `bytes` complete.
   * @param {Uint8Array} bytes
   * @returns {Line[]}
   */
  push(bytes) {
    /** @type {Line[]} */
    const lines = [];
    let from = 0;
    while (from < bytes.length) {
      const feed = bytes.indexOf(LINE_FEED, from);
      const to = feed === -1 ? bytes.length : feed;
      this.keep(bytes.subarray(from, to));
      this.at += to - from;
      if (feed === -1) break;
      lines.push(this.line());
      this.at += 1;
      this.open = [];
      this.openBytes = 0;
      this.openStart = this.at;
      from = feed + 1;
    }
    return lines;
  }

  /** @param {Uint8Array} part */
  keep(part) {
    if (part.length === 0) return;
    // A copy: the end of a line must not keep the whole buffer alive.
    this.open.push(part.slice(-this.longest));
    this.openBytes += this.open[this.open.length - 1].length;
    while (this.openBytes - this.open[0].length >= this.longest) this.openBytes -= /** @type {Uint8Array} */ (this.open.shift()).length;
  }

  /** Return the line that no line feed has ended yet; null if it has not begun. @returns {Line | null} */
  rest() {
    return this.at === this.openStart ? null : this.line();
  }

  /** @returns {Line} */
  line() {
    let kept = this.open.length === 1 ? this.open[0] : joined(this.open, this.openBytes);
    if (kept.length > this.longest) kept = kept.subarray(kept.length - this.longest);
    const length = this.at - this.openStart;
    if (kept.length < length) kept = fromLetter(kept);
    return { text: decoder.decode(kept).replace(/\r$/, ""), start: this.openStart, left: length - kept.length };
  }
}

/**
 * @param {Uint8Array[]} parts
 * @param {number} length
 */
function joined(parts, length) {
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/**
 * Return the bytes from the first that begins a UTF-8 character.
 * @param {Uint8Array} bytes
 */
function fromLetter(bytes) {
  let at = 0;
  while (at < 3 && at < bytes.length && (bytes[at] & 0xc0) === 0x80) at += 1;
  return bytes.subarray(at);
}
