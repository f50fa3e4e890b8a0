// A long list on the screen: measures its box, follows the scroll position, and computes which rows to draw.
import { useLayoutEffect, useRef, useState } from "../vendor/ui.js";
import * as rowWindow from "./row-window.js";

/**
 * @param {number} count
 * @param {number} row height of a row in pixels
 * @param {number} head pixels of the box that a sticky heading covers
 */
export function useVirtualScroll(count, row, head = 0) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [at, setAt] = useState({ top: 0, viewport: 600 });
  const list = { count, row, viewport: Math.max(row, at.viewport - head) };
  const latest = useRef(list);
  latest.current = list;
  const look = () => {
    const element = box.current;
    if (!element) return;
    const found = { top: element.scrollTop, viewport: element.clientHeight };
    setAt((before) => (before.top === found.top && before.viewport === found.viewport ? before : found));
  };
  useLayoutEffect(() => {
    const element = /** @type {HTMLDivElement} */ (box.current);
    let frame = 0;
    const soon = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        look();
      });
    };
    /** @param {WheelEvent} event */
    const wheel = (event) => {
      // Even if one pixel of the box stands for many rows, the wheel moves by rows.
      if (!rowWindow.isScaled(latest.current) || event.ctrlKey || event.deltaX) return;
      event.preventDefault();
      const top = rowWindow.topRow(latest.current, element.scrollTop) + event.deltaY / row;
      element.scrollTop = rowWindow.scrollFor(latest.current, top);
    };
    element.addEventListener("scroll", soon, { passive: true });
    element.addEventListener("wheel", wheel, { passive: false });
    const sizes = new ResizeObserver(soon);
    sizes.observe(element);
    look();
    return () => {
      cancelAnimationFrame(frame);
      sizes.disconnect();
      element.removeEventListener("scroll", soon);
      element.removeEventListener("wheel", wheel);
    };
  }, [row]);
  return {
    box,
    list,
    top: at.top,
    height: rowWindow.height(list),
    window: rowWindow.view(list, at.top),
    /** @param {number} scrollTop */
    scrollTo: (scrollTop) => {
      if (box.current) box.current.scrollTop = scrollTop;
      look();
    },
  };
}
