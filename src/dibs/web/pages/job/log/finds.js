// The matches in a log so far, and the current one. The daemon searches; the file may be of any size.

/** @typedef {{offset: number, line: number | null, text: string}} Match */
/** @typedef {{matches: Match[], current: number, next: number | null, isCapped: boolean}} Finds next: byte at which to continue; null: all searched */

/** Most matches that are kept: more than anybody steps through. */
export const MOST = 10_000;

/** @type {Finds} */
export const NOTHING = Object.freeze({ matches: [], current: -1, next: 0, isCapped: false });

/**
 * Return the matches after one more answer.
 * @param {Finds} finds
 * @param {{matches: Match[], next: number | null}} answer
 * @returns {Finds}
 */
export function add(finds, answer) {
  const matches = finds.matches.concat(answer.matches);
  const isCapped = matches.length > MOST || (matches.length === MOST && answer.next !== null);
  return { ...finds, matches: matches.slice(0, MOST), next: isCapped ? null : answer.next, isCapped };
}

/**
 * Return the matches with the first one at or after a byte of the file as current; the first if there is none.
 * @param {Finds} finds
 * @param {number} offset
 * @returns {Finds}
 */
export function from(finds, offset) {
  const found = finds.matches.findIndex((match) => match.offset >= offset);
  return { ...finds, current: finds.matches.length === 0 ? -1 : Math.max(0, found) };
}

/**
 * Return the matches one step further, wrapping around.
 * @param {Finds} finds
 * @param {1 | -1} step
 * @returns {Finds}
 */
export function step(finds, step) {
  const count = finds.matches.length;
  if (count === 0) return finds;
  const start = finds.current < 0 && step < 0 ? 0 : finds.current;
  return { ...finds, current: (start + step + count) % count };
}

/** Return `3/15`; with a plus while the search continues or gave up counting. @param {Finds} finds */
export function label(finds) {
  const isOpen = finds.next !== null || finds.isCapped;
  if (finds.matches.length === 0) return isOpen ? "searching…" : "nothing found";
  return `${finds.current + 1}/${finds.matches.length}${isOpen ? "+" : ""}`;
}

/**
 * Return where a text is in a line, for marking it; case is ignored.
 * @param {string} line
 * @param {string} text
 * @param {boolean} isCase
 * @returns {[number, number][]} beginnings and ends
 */
export function marks(line, text, isCase) {
  /** @type {[number, number][]} */
  const found = [];
  if (text === "") return found;
  // Lower case may be longer than upper; then nothing is marked rather than the wrong letters.
  const [where, what] = isCase ? [line, text] : [line.toLowerCase(), text.toLowerCase()];
  if (where.length !== line.length) return found;
  for (let at = where.indexOf(what); at >= 0; at = where.indexOf(what, at + what.length)) found.push([at, at + what.length]);
  return found;
}

/**
 * Return spans split at the beginnings and ends of matches.
 * @param {import("./ansi.js").Span[]} spans
 * @param {[number, number][]} found
 * @returns {(import("./ansi.js").Span & {isFound: boolean})[]}
 */
export function marked(spans, found) {
  if (found.length === 0) return spans.map((span) => ({ ...span, isFound: false }));
  const edges = found.flat();
  let at = 0;
  return spans.flatMap((span) => {
    const start = at;
    at += span.text.length;
    const cuts = [start, ...edges.filter((edge) => edge > start && edge < at), at];
    return cuts.slice(1).map((end, i) => ({
      text: span.text.slice(cuts[i] - start, end - start),
      style: span.style,
      isFound: found.some(([from, to]) => cuts[i] >= from && end <= to),
    }));
  });
}

/**
 * Return the lines that a fragment names, from 1: `#L12`, `#L12-L20`; null for another fragment.
 * @param {string} fragment
 * @returns {[number, number] | null}
 */
export function linesOf(fragment) {
  const said = /^#L(\d{1,12})(?:-L?(\d{1,12}))?$/.exec(fragment);
  if (said === null) return null;
  const [one, other] = [Number(said[1]), Number(said[2] ?? said[1])];
  return [Math.min(one, other), Math.max(one, other)];
}

/** Return the fragment that names lines, from 1. @param {number} one @param {number} [other] */
export function fragmentOf(one, other = one) {
  return one === other ? `#L${one}` : `#L${Math.min(one, other)}-L${Math.max(one, other)}`;
}
