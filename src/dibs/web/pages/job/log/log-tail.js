// A log that is read while it is shown: its end at once, its line numbers as they come, and new output.
import * as api from "../../../core/api.js";
import { useEffect, useState } from "../../../vendor/ui.js";
import { Log } from "./log-lines.js";
import { source } from "./source.js";

/** Milliseconds between two polls: while it grows, and at most when it does not. */
const SOON_MS = 500;
const LATER_MS = 2000;

/**
 * @param {number} id @param {import("./source.js").Which} which
 * @param {boolean} isOver nothing is added any more
 * @returns {{log: Log | null, version: number, numbered: Promise<void>, error: unknown}}
 */
export function useLog(id, which, isOver) {
  const [opened, setOpened] = useState(/** @type {{log: Log, numbered: Promise<void>} | null} */ (null));
  const [version, setVersion] = useState(0);
  const [error, setError] = useState(/** @type {unknown} */ (null));
  useEffect(() => {
    const leaving = new AbortController();
    let frame = 0;
    const complain = (/** @type {unknown} */ wrong) => void (api.isAborted(wrong) || setError(wrong));
    const changed = () => {
      // Many lines may come between two frames.
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        setVersion((n) => n + 1);
      });
    };
    const log = new Log(source(id, which, leaving.signal), changed, complain);
    setError(null);
    const numbered = log.open().then(() => {
      setOpened({ log, numbered });
      return log.number();
    });
    numbered.catch(complain);
    return () => {
      log.close();
      cancelAnimationFrame(frame);
      leaving.abort();
    };
  }, [id, which.attempt, which.stream]);

  useEffect(() => {
    if (!opened) return undefined;
    const { log, numbered } = opened;
    let isLeft = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let wait = SOON_MS;
    const look = async () => {
      try {
        await numbered;
        const hasGrown = document.visibilityState === "visible" && (await log.grow());
        wait = hasGrown ? SOON_MS : Math.min(LATER_MS, wait * 1.5);
        setError(null);
        // The log of a finished job is read to its last byte.
        if (isOver && !hasGrown && document.visibilityState === "visible") return;
      } catch (wrong) {
        if (api.isAborted(wrong)) return;
        setError(wrong);
        wait = LATER_MS;
      }
      if (!isLeft) timer = setTimeout(look, wait);
    };
    void look();
    return () => {
      isLeft = true;
      clearTimeout(timer);
    };
  }, [opened, isOver]);
  return { log: opened?.log ?? null, version, numbered: opened?.numbered ?? Promise.resolve(), error };
}
