// Which lines of a log belong to a traceback of Python. Pure.

/** Lines before the first one that are looked at for the beginning of a traceback. */
const LOOK_BACK = 200;
/** What torchrun and loggers write before a line. */
const RANK = /^\[[^\]]*\]:? ?/;
const BEGIN = /^Traceback \(most recent call last\)/;
const SAID_BETWEEN = /^(During handling of the above exception|The above exception was the direct cause)/;

// eslint-disable-next-line no-control-regex
const plain = (/** @type {string} */ text) => text.replace(/\x1b\[[0-9;]*m/g, "").replace(RANK, "");

/**
 * Return what the rows from `first` to before `end` are: "trace" within a traceback, "cause" for its last line.
 * @param {number} first @param {number} end @param {(row: number) => string | undefined} textAt
 * @returns {Map<number, "trace" | "cause">}
 */
export function tracebackRows(first, end, textAt) {
  /** @type {Map<number, "trace" | "cause">} */
  const found = new Map();
  let isWithin = false;
  for (let row = Math.max(0, first - LOOK_BACK); row < end; row += 1) {
    const text = plain(textAt(row) ?? "");
    const isBegin = BEGIN.test(text);
    const isCause = isWithin && !isBegin && /^\S/.test(text);
    if (isBegin) isWithin = true;
    else if (isWithin && text === "") isWithin = false;
    if (row >= first && (isWithin || SAID_BETWEEN.test(text))) found.set(row, isCause ? "cause" : "trace");
    if (isCause) isWithin = false;
  }
  return found;
}
