// Answers of the daemon in components: loaded, kept fresh by the event stream, dropped with the component.
import { useEffect, useRef, useState } from "../vendor/ui.js";
import * as api from "./api.js";
import * as state from "./state.js";

/** Least milliseconds between two loads of the same answer. */
const REST_MS = 1000;

/**
 * @template T
 * @typedef {{data: T | null, error: unknown, isLoading: boolean, reload: () => void}} Answer
 */

/**
 * Return the answer to `GET path`, and reload it when a job changed (`isLive`) or after `everyMs`.
 * The last good answer is kept during a reload, and while the daemon is gone. Nothing is requested without a path, and
 * nothing while the tab is hidden. `restMs` is the shortest time between two loads, for expensive answers.
 * @template T
 * @param {string | null} path
 * @param {{isLive?: boolean, everyMs?: number, restMs?: number}} [options]
 * @returns {Answer<T>}
 */
export function useAnswer(path, { isLive = false, everyMs = 0, restMs = REST_MS } = {}) {
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
        if (isWanted) want();
        else if (everyMs) timer = setTimeout(want, Math.max(0, everyMs - restMs));
      }, restMs);
    };
    const want = () => {
      if (isAsking || document.visibilityState === "hidden") isWanted = true;
      else void ask();
    };
    const looked = () => isWanted && want();
    document.addEventListener("visibilitychange", looked);
    reload.current = want;
    const quiet = isLive ? state.onEvents(want) : () => {};
    void ask();
    return () => {
      quiet();
      document.removeEventListener("visibilitychange", looked);
      clearTimeout(timer);
      leaving.abort();
    };
  }, [path, isLive, everyMs, restMs]);
  const isMine = answer.path === path;
  return { data: isMine ? answer.data : null, error: isMine ? answer.error : null, isLoading, reload: () => reload.current() };
}
