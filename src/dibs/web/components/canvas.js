// Drawing on a canvas: sharp on every screen, and redrawn when its size, its data or the colours change.
import * as themes from "../core/themes.js";
import { useLayoutEffect, useRef, useState } from "../vendor/ui.js";

/** @typedef {{ctx: CanvasRenderingContext2D, width: number, height: number, colour: (name: string) => string}} Board in CSS pixels */

/**
 * Return the ref for a `<canvas ref=...>` that `draw` fills; `deps` is everything the picture depends on.
 * @param {(board: Board) => void} draw @param {unknown[]} deps
 */
export function useCanvas(draw, deps) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const canvas = ref.current;
    if (!canvas) return undefined;
    const watch = new ResizeObserver(() => setSize({ width: canvas.clientWidth, height: canvas.clientHeight }));
    watch.observe(canvas);
    return () => watch.disconnect();
  }, []);
  const theme = themes.changes.value;
  useLayoutEffect(() => {
    const canvas = ref.current;
    const ctx = canvas?.getContext("2d");
    if (!canvas || !ctx || !size.width || !size.height) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(size.width * ratio);
    canvas.height = Math.round(size.height * ratio);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw({ ctx, ...size, colour: themes.colours() });
  }, [size, theme, ...deps]);
  return ref;
}
