// Answers of the daemon inside components: loaded, kept fresh by the event stream, given up when nobody looks any more.
import * as api from "./api.js";
import * as state from "./state.js";
import { useEffect, useRef, useState } from "./vendor/ui.js";

/** Milliseconds between two loads of the same answer, however much happens. */
const EVERY_MS = 1000;

/**
 * @template T
 * @typedef {{data: T | null, error: unknown, isLoading: boolean, reload: () => void}} Answer
 */

/**
 * Return the answer to `GET path`, and load it again when something happened to a job (`isLive`) or `everyMs` is over.
 * The last good answer stays while the next is on its way, and when the daemon is gone. No path: nothing is asked.
 * @template T
 * @param {string | null} path
 * @param {{isLive?: boolean, everyMs?: number}} [options]
 * @returns {Answer<T>}
 */
export function useAnswer(path, { isLive = false, everyMs = 0 } = {}) {
  const [answer, setAnswer] = useState(/** @type {{path: string | null, data: T | null, error: unknown}} */ ({ path: null, data: null, error: null }));
  const [isLoading, setLoading] = useState(path !== null);
  const reload = useRef(() => {});
  useEffect(() => {
    if (path === null) return undefined;
    const leaving = new AbortController();
    let isAsking = false;
    let isWanted = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const ask = async () => {
      clearTimeout(timer);
      isAsking = true;
      isWanted = false;
      setLoading(true);
      try {
        const data = await api.get(path, { signal: leaving.signal });
        setAnswer({ path, data, error: null });
      } catch (error) {
        if (api.isAborted(error)) return;
        setAnswer((before) => ({ path, data: before.path === path ? before.data : null, error }));
      }
      setLoading(false);
      timer = setTimeout(() => {
        isAsking = false;
        if (isWanted) void ask();
        else if (everyMs) timer = setTimeout(whenVisible, Math.max(0, everyMs - EVERY_MS));
      }, EVERY_MS);
    };
    const want = () => (isAsking ? (isWanted = true) : void ask());
    const whenVisible = () => (document.visibilityState === "visible" ? want() : (timer = setTimeout(whenVisible, everyMs)));
    reload.current = want;
    const quiet = isLive ? state.onEvents(want) : () => {};
    void ask();
    return () => {
      quiet();
      clearTimeout(timer);
      leaving.abort();
    };
  }, [path, isLive, everyMs]);
  const isMine = answer.path === path;
  return { data: isMine ? answer.data : null, error: isMine ? answer.error : null, isLoading, reload: () => reload.current() };
}
