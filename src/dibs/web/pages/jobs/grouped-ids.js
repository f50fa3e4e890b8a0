// A list of jobs in which the runs of a sweep and the jobs of a batch stand behind one row. Pure.
import { Ranges } from "../../core/id-ranges.js";

/**
 * @typedef {import("../../core/id-ranges.js").Ids} Ids
 * @typedef {{sweep: number | null, batch: number | null, name: string, total: number, counts: Record<string, number>, ids: string}} Group one of GET /v1/jobs/bundles
 */

/** Longer lists are not grouped: every id would have to be looked at. */
export const MOST = 200_000;

/** What stands for a group in the address and among the open ones. @param {Group} group */
export const keyOf = (group) => (group.sweep !== null ? `s${group.sweep}` : `b${group.batch}`);

/** Rows: the id of a job, or for the nth group -(n + 1); the jobs of an open group follow it. */
export class Grouped {
  /** @param {Ids} base @param {readonly Group[]} groups @param {ReadonlySet<string>} opened */
  constructor(base, groups, opened) {
    this.groups = groups;
    /** The jobs of each group in the order of the list. @type {number[][]} */
    this.members = groups.map(() => []);
    /** @type {Map<number, number>} */
    const owner = new Map();
    groups.forEach((group, k) => {
      for (const [low, high] of Ranges.parse(group.ids, false).runs) for (let id = low; id <= high; id += 1) owner.set(id, k);
    });
    /** @type {number[]} */
    const order = [];
    for (let n = 0; n < base.length; n += 1) {
      const id = base.at(n);
      const k = owner.get(id);
      if (k === undefined) order.push(id);
      else if (this.members[k].push(id) === 1) order.push(-(k + 1));
    }
    this.rows = order.flatMap((id) => {
      if (id > 0) return [id];
      const own = this.members[-id - 1];
      // One job alone is no group: it changed since the groups were asked for.
      if (own.length === 1) return own;
      return opened.has(keyOf(groups[-id - 1])) ? [id, ...own] : [id];
    });
    this.length = this.rows.length;
    /** @type {Map<number, number> | null} */
    this.places = null;
  }

  /** @param {number} n */
  at(n) {
    return this.rows[n];
  }

  /** @param {number} id */
  indexOf(id) {
    this.places ??= new Map(this.rows.map((each, n) => [each, n]));
    return this.places.get(id) ?? -1;
  }

  /** The group of a row, null for a job. @param {number} id @returns {{group: Group, ids: number[]} | null} */
  groupOf(id) {
    return id > 0 ? null : { group: this.groups[-id - 1], ids: this.members[-id - 1] };
  }
}
