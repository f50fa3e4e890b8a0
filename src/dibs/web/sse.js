// Server-sent events out of a stream of text: the parser, and how long to wait before the next try. Pure.

/** @typedef {{event: string, data: string, id: string | null}} Message */

/**
 * Return a function that takes text in pieces of any size and returns the messages that became complete.
 * @returns {(text: string) => Message[]}
 */
export function parser() {
  let rest = "";
  let event = "";
  /** @type {string[]} */
  let data = [];
  /** @type {string | null} */
  let id = null;

  /** @param {string} line @param {Message[]} found */
  function take(line, found) {
    if (line === "") {
      if (data.length) found.push({ event: event || "message", data: data.join("\n"), id });
      event = "";
      data = [];
      id = null;
      return;
    }
    const colon = line.indexOf(":");
    // A comment: it only says that the other side lives.
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event = value;
    else if (field === "data") data.push(value);
    else if (field === "id") id = value;
  }

  return (text) => {
    /** @type {Message[]} */
    const found = [];
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) take(line, found);
    return found;
  };
}

/** Milliseconds before the next try after so many failures; the last one holds from then on. */
const BACK_OFF_MS = [300, 700, 1500, 3000, 6000, 10_000];

/**
 * Return how long to wait after so many failures in a row; `chance` in 0..1 spreads many tabs and users a little.
 * @param {number} failures @param {number} chance
 */
export function backOff(failures, chance) {
  const base = BACK_OFF_MS[Math.min(Math.max(failures, 1), BACK_OFF_MS.length) - 1];
  return Math.round(base * (0.8 + 0.4 * chance));
}
