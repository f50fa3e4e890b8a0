// Search in a log: queries the daemon part by part until the whole file is searched, and keeps the matches.
import * as api from "../../../core/api.js";
import { useEffect, useState } from "../../../vendor/ui.js";
import * as finds from "./finds.js";

/** @typedef {{text: string, isCase: boolean, isRegex: boolean}} Sought */

/** Milliseconds after the last letter before the search begins. */
const TYPING_MS = 250;

/**
 * Return the matches so far, how to change them, and an error. `turn` searches again: the file may have grown.
 * @param {number} id @param {import("./source.js").Which} which @param {Sought} sought @param {number} turn
 * @param {() => number} from the byte at which one looks, for the match that comes first
 * @returns {{found: finds.Finds, setFound: (change: (before: finds.Finds) => finds.Finds) => void, error: unknown}}
 */
export function useSearch(id, which, sought, turn, from) {
  const [found, setFound] = useState(finds.NOTHING);
  const [error, setError] = useState(/** @type {unknown} */ (null));
  const { text, isCase, isRegex } = sought;
  useEffect(() => {
    setError(null);
    setFound(finds.NOTHING);
    if (text === "") return undefined;
    const leaving = new AbortController();
    const search = async () => {
      const query = { ...which, text, regex: isRegex ? 1 : null, case: isCase ? 1 : null, limit: 1000 };
      let state = finds.NOTHING;
      while (state.next !== null) {
        const answer = await api.get(`/v1/jobs/${id}/log/search`, { query: { ...query, from: state.next }, signal: leaving.signal });
        state = finds.add(state, answer);
        const isFirst = state.matches.length > 0;
        setFound((before) => (before.current < 0 && isFirst ? finds.from({ ...state, current: -1 }, from()) : { ...state, current: before.current }));
      }
    };
    const timer = setTimeout(() => search().catch((wrong) => api.isAborted(wrong) || setError(wrong)), TYPING_MS);
    return () => {
      clearTimeout(timer);
      leaving.abort();
    };
  }, [id, which.attempt, which.stream, text, isCase, isRegex, turn]);
  return { found, setFound, error };
}
