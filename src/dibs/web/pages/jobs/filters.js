// Which jobs a list shows: as typed (`state:failed name:vit* cmd:"--lr 0.1"`), in the address, and asked of the daemon.
//
// The address and the daemon's interface use the same names, so there is one table for both.

/** What may be said, and the parameter that it becomes. @type {Record<string, string>} */
export const FIELDS = {
  state: "state", name: "name", tag: "tag", project: "project", sweep: "sweep", gpu: "gpu",
  since: "since", until: "until", cmd: "text",
};
const WORDS = new Map(Object.entries(FIELDS).map(([word, parameter]) => [parameter, word]));

/** What `state:` may be: the words of states, and groups of them. */
export const STATES = new Set([
  "held", "queued", "starting", "running", "paused", "stopping", "done", "failed", "cancelled", "timeout", "lost",
  "unfinished", "finished", "active", "bad",
]);

/** @typedef {Record<string, string>} Filter a value for each parameter that is set */

/** A word, with a quoted part or without. */
const TOKEN = /(?:([a-z]+):)?(?:"((?:[^"\\]|\\.)*)"|(\S+))/gy;

/**
 * Parse a filter; return it and an error, if any.
 * @param {string} text
 * @returns {{filter: Filter, problem: string | null}}
 */
export function parse(text) {
  /** @type {Filter} */
  const filter = {};
  /** @type {string | null} */
  let problem = null;
  /** @type {string[]} */
  const free = [];
  TOKEN.lastIndex = 0;
  for (let at = skipSpace(text, 0); at < text.length; at = skipSpace(text, TOKEN.lastIndex)) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (found === null) break;
    const [, key, quoted, bare] = found;
    const value = quoted === undefined ? bare : quoted.replace(/\\(.)/g, "$1");
    if (key === undefined && quoted === undefined && value.slice(0, -1) in FIELDS && value.endsWith(":")) {
      problem ??= `${value} expected a value, got none`;
    } else if (key === undefined) free.push(value);
    else if (!(key in FIELDS)) problem ??= `there is no filter ${key}:; there are ${Object.keys(FIELDS).join(", ")}`;
    else if (key === "cmd") free.push(value);
    else if (key === "state" && filter.state) filter.state += `,${value}`;
    else filter[FIELDS[key]] = value;
  }
  const unknown = filter.state?.split(",").find((word) => !STATES.has(word));
  if (unknown !== undefined) problem ??= `there is no state ${unknown}; there are ${[...STATES].join(", ")}`;
  if (free.length > 0) filter.text = free.join(" ");
  return { filter, problem };
}

/**
 * @param {string} text
 * @param {number} at
 */
function skipSpace(text, at) {
  while (at < text.length && /\s/.test(text[at])) at += 1;
  return at;
}

/** Return the text that asks for a filter. @param {Filter} filter */
export function write(filter) {
  return chips(filter).map((chip) => chip.text).join(" ");
}

/**
 * Return the parts of a filter, each as it is typed, in the order of the table.
 * @param {Filter} filter
 * @returns {{parameter: string, text: string}[]}
 */
export function chips(filter) {
  return Object.values(FIELDS)
    .filter((parameter) => filter[parameter] !== undefined && filter[parameter] !== "")
    .map((parameter) => ({ parameter, text: `${WORDS.get(parameter)}:${quote(filter[parameter])}` }));
}

/** @param {string} value */
function quote(value) {
  return /[\s"]/.test(value) ? `"${value.replace(/["\\]/g, "\\$&")}"` : value;
}

/** Return the filter that an address holds. @param {URLSearchParams} query */
export function fromQuery(query) {
  /** @type {Filter} */
  const filter = {};
  for (const parameter of WORDS.keys()) {
    const value = query.get(parameter);
    if (value) filter[parameter] = value;
  }
  return filter;
}

/**
 * Return the parameters of a filter, for an address or a request.
 * @param {Filter} filter
 * @returns {Record<string, string>}
 */
export function toQuery(filter) {
  /** @type {Record<string, string>} */
  const query = {};
  for (const { parameter } of chips(filter)) query[parameter] = filter[parameter];
  return query;
}
