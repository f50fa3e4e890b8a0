// Which rows of a list are selected: some, or all but some, so that selecting a hundred thousand costs nothing.

/** @typedef {import("./id-ranges.js").Ids} Ids */
/** @typedef {{isInverse: boolean, ids: ReadonlySet<number>, anchor: number | null}} Picks anchor: the id a range begins at */

/** @type {Picks} */
export const NONE = Object.freeze({ isInverse: false, ids: new Set(), anchor: null });
/** All that the list matches. @type {Picks} */
export const ALL = Object.freeze({ isInverse: true, ids: new Set(), anchor: null });

/**
 * @param {Picks} picks
 * @param {number} id
 */
export function has(picks, id) {
  return picks.ids.has(id) !== picks.isInverse;
}

/**
 * Return the picks with one row toggled; a range begins there.
 * @param {Picks} picks
 * @param {number} id
 * @returns {Picks}
 */
export function toggle(picks, id) {
  const ids = new Set(picks.ids);
  if (!ids.delete(id)) ids.add(id);
  return { ...picks, ids, anchor: id };
}

/**
 * Return the picks with everything between the anchor and `id` selected too.
 * @param {Picks} picks
 * @param {number} id
 * @param {Ids} list
 * @returns {Picks}
 */
export function extend(picks, id, list) {
  const from = picks.anchor === null ? -1 : list.indexOf(picks.anchor);
  const to = list.indexOf(id);
  if (to < 0) return picks;
  const start = from < 0 ? to : from;
  const ids = new Set(picks.ids);
  for (let n = Math.min(start, to); n <= Math.max(start, to); n += 1) {
    if (picks.isInverse) ids.delete(list.at(n));
    else ids.add(list.at(n));
  }
  return { ...picks, ids, anchor: from < 0 ? id : picks.anchor };
}

/**
 * Return how many rows of a list are selected.
 * @param {Picks} picks
 * @param {number} total
 */
export function count(picks, total) {
  return picks.isInverse ? total - picks.ids.size : picks.ids.size;
}
