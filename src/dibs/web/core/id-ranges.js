// Lists of job ids as long as the queue: as ranges that are never expanded, or as the numbers themselves.
import { compact, word } from "./format.js";

export { compact };

/** The least that a table needs of its rows. @typedef {{length: number, at(n: number): number, indexOf(id: number): number}} Ids */

/** Ids in runs, such as `900-1000,1-20`; of a descending list every run is read from its end. */
export class Ranges {
  /**
   * @param {[number, number][]} runs low and high, in the order of the list
   * @param {boolean} isDescending
   */
  constructor(runs, isDescending) {
    this.runs = runs;
    this.isDescending = isDescending;
    /** How many ids stand before each run. @type {number[]} */
    this.before = [];
    this.length = 0;
    for (const [low, high] of runs) {
      this.before.push(this.length);
      this.length += high - low + 1;
    }
  }

  /**
   * @param {string} text
   * @param {boolean} isDescending
   */
  static parse(text, isDescending) {
    /** @type {[number, number][]} */
    const runs = [];
    for (const part of text === "" ? [] : text.split(",")) {
      const found = /^(\d+)(?:-(\d+))?$/.exec(part);
      if (found === null) throw new Error(`expected ids such as 900-1000,7, got "${part}"`);
      runs.push([Number(found[1]), Number(found[2] ?? found[1])]);
    }
    return new Ranges(runs, isDescending);
  }

  /** Return the nth id. @param {number} n */
  at(n) {
    if (n < 0 || n >= this.length) throw new RangeError(`expected 0 to ${this.length - 1}, got ${n}`);
    const run = lastAtMost(this.before, n);
    const [low, high] = this.runs[run];
    const inside = n - this.before[run];
    return this.isDescending ? high - inside : low + inside;
  }

  /** Return where an id stands, -1 if nowhere. @param {number} id */
  indexOf(id) {
    // Runs are in order and do not overlap: search by their ends, from the side where the list begins.
    const key = (/** @type {[number, number]} */ run) => (this.isDescending ? -run[1] : run[0]);
    const run = lastAtMostBy(this.runs, key, this.isDescending ? -id : id);
    if (run < 0) return -1;
    const [low, high] = this.runs[run];
    if (id < low || id > high) return -1;
    return this.before[run] + (this.isDescending ? high - id : id - low);
  }

  /** Return the word that selects all of them but some. @param {Iterable<number>} ids */
  without(ids) {
    const out = [...ids].sort((a, b) => a - b);
    return rising(this).flatMap(([low, high]) => {
      /** @type {[number, number][]} */
      const left = [];
      let from = low;
      for (let i = firstAtLeast(out, low); i < out.length && out[i] <= high; i += 1) {
        if (out[i] > from) left.push([from, out[i] - 1]);
        from = out[i] + 1;
      }
      if (from <= high) left.push([from, high]);
      return left;
    }).map(word).join(",");
  }
}

/** Ids in any order. */
export class Listed {
  /** @param {number[]} ids */
  constructor(ids) {
    this.ids = ids;
    this.length = ids.length;
    /** @type {Map<number, number> | null} */
    this.places = null;
  }

  /** @param {number} n */
  at(n) {
    if (n < 0 || n >= this.length) throw new RangeError(`expected 0 to ${this.length - 1}, got ${n}`);
    return this.ids[n];
  }

  /** @param {number} id */
  indexOf(id) {
    this.places ??= new Map(this.ids.map((each, n) => [each, n]));
    return this.places.get(id) ?? -1;
  }

  /** @param {Iterable<number>} ids */
  without(ids) {
    const out = new Set(ids);
    return compact(this.ids.filter((id) => !out.has(id)));
  }
}

/** @param {Ranges} ranges */
function rising(ranges) {
  return ranges.isDescending ? [...ranges.runs].reverse() : ranges.runs;
}

/**
 * @param {number[]} sorted
 * @param {number} value
 */
function firstAtLeast(sorted, value) {
  return lastAtMost(sorted, value - 1) + 1;
}

/**
 * Return the index of the last number that is at most `value`, -1 if there is none.
 * @param {number[]} sorted
 * @param {number} value
 */
export function lastAtMost(sorted, value) {
  return lastAtMostBy(sorted, (each) => each, value);
}

/**
 * @template T
 * @param {T[]} sorted
 * @param {(each: T) => number} key
 * @param {number} value
 */
export function lastAtMostBy(sorted, key, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(sorted[middle]) <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/**
 * Return how many ids of a list are not in another.
 * @param {Ids} fresh
 * @param {Ids} shown
 */
export function newcomers(fresh, shown) {
  if (fresh instanceof Ranges && shown instanceof Ranges) return fresh.length - common(rising(fresh), rising(shown));
  let found = 0;
  for (let n = 0; n < fresh.length; n += 1) found += shown.indexOf(fresh.at(n)) < 0 ? 1 : 0;
  return found;
}

/**
 * Return how many ids are in runs of both lists.
 * @param {[number, number][]} ones
 * @param {[number, number][]} others
 */
function common(ones, others) {
  let found = 0;
  for (let i = 0, k = 0; i < ones.length && k < others.length; ) {
    found += Math.max(0, Math.min(ones[i][1], others[k][1]) - Math.max(ones[i][0], others[k][0]) + 1);
    if (ones[i][1] < others[k][1]) i += 1;
    else k += 1;
  }
  return found;
}
