// Which rows of a long list are on the screen, and at which position.
//
// Browsers cannot make an element as high as a million rows: past `TALLEST` the scroll position is scaled, so that its
// end is still the end of the list.

/** Pixels: half of the smallest limit of any browser. */
export const TALLEST = 12_000_000;

/** @typedef {{count: number, row: number, viewport: number}} List rows in all, height of one, height that is seen */
/** @typedef {{first: number, end: number, top: number}} Window rows first to end-1; pixels at which the first stands */

/** Height of the element that scrolls. @param {List} list */
export function height(list) {
  return Math.min(list.count * list.row, TALLEST);
}

/** Tell whether a pixel of scrolling is more than a pixel of the list. @param {List} list */
export function isScaled(list) {
  return list.count * list.row > TALLEST;
}

/** Rows that fit, a part of one included. @param {List} list */
export function rowsSeen(list) {
  return list.viewport / list.row;
}

/** The row, with its fraction, that can be highest on the screen. @param {List} list */
function lastTop(list) {
  return Math.max(0, list.count - rowsSeen(list));
}

/** How far the element can be scrolled. @param {List} list */
export function farthest(list) {
  return Math.max(0, height(list) - list.viewport);
}

/**
 * Return the row, with its fraction, at the top of the screen.
 * @param {List} list
 * @param {number} scrollTop
 */
export function topRow(list, scrollTop) {
  const far = farthest(list);
  const at = Math.min(Math.max(0, scrollTop), far);
  if (!isScaled(list)) return at / list.row;
  return (at / far) * lastTop(list);
}

/**
 * Return the scroll position at which `row`, with its fraction, is at the top.
 * @param {List} list
 * @param {number} row
 */
export function scrollFor(list, row) {
  const top = Math.min(Math.max(0, row), lastTop(list));
  return isScaled(list) ? (top / lastTop(list)) * farthest(list) : Math.min(top * list.row, farthest(list));
}

/**
 * Return the rows to draw at a scroll position, with some above and below the screen.
 * @param {List} list
 * @param {number} scrollTop
 * @param {number} overscan rows
 * @returns {Window}
 */
export function view(list, scrollTop, overscan = 10) {
  const top = topRow(list, scrollTop);
  const first = Math.max(0, Math.floor(top) - overscan);
  const end = Math.min(list.count, Math.ceil(top + rowsSeen(list)) + overscan);
  const at = Math.min(Math.max(0, scrollTop), farthest(list));
  return { first, end: Math.max(first, end), top: at - (top - first) * list.row };
}

/**
 * Return the scroll position at which `row` is fully visible: the current one if it already is.
 * @param {List} list
 * @param {number} scrollTop
 * @param {number} row
 */
export function reveal(list, scrollTop, row) {
  const top = topRow(list, scrollTop);
  if (row < top) return scrollFor(list, row);
  if (row + 1 > top + rowsSeen(list)) return scrollFor(list, row + 1 - rowsSeen(list));
  return scrollTop;
}

/**
 * Return the scroll position with `row` in the middle of the screen.
 * @param {List} list
 * @param {number} row
 */
export function centre(list, row) {
  return scrollFor(list, row + 0.5 - rowsSeen(list) / 2);
}
