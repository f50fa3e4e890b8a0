// The jobs of a filter and a sort: the first rows at once, then the ids of all, which then stay unchanged. New jobs
// are counted and shown on request, so that the list never jumps.
import * as api from "../../core/api.js";
import { Listed, Ranges, newcomers } from "../../core/id-ranges.js";
import * as state from "../../core/state.js";
import { useEffect, useRef, useState } from "../../vendor/ui.js";
import { Rows } from "./row-cache.js";

/** Rows of the first answer. */
const FIRST = 100;
/** Milliseconds between two checks for new rows; more when a check takes long. */
const LOOK_EVERY_MS = 2000;
/** Part of the time that may be spent on checking. */
const LOOK_SHARE = 20;

/**
 * @typedef {Ranges | Listed} Ids
 * @typedef {{total: number, ranges?: string, ids?: number[], more?: boolean}} Index GET /v1/jobs/index
 * @typedef {{key: string, ids: Ids | null, isWhole: boolean, isCut: boolean, error: unknown}} Found
 */

/**
 * Return what an index lists. @param {Index} index @param {string} sort
 * @returns {Ids}
 */
export function idsOf(index, sort) {
  return index.ranges === undefined ? new Listed(index.ids ?? []) : Ranges.parse(index.ranges, sort.startsWith("-"));
}

/** @param {Record<string, string>} params of GET /v1/jobs, with `sort` */
export function useJobList(params) {
  const key = api.address("", params);
  const [found, setFound] = useState(/** @type {Found} */ ({ key: "", ids: null, isWhole: false, isCut: false, error: null }));
  const [fresh, setFresh] = useState(/** @type {{key: string, ids: Ids} | null} */ (null));
  const [version, setVersion] = useState(0);
  const rows = useRef(/** @type {Rows | null} */ (null));
  rows.current ??= new Rows(() => setVersion((n) => n + 1));
  const known = rows.current;
  const [turn, setTurn] = useState(0);

  useEffect(() => {
    const leaving = new AbortController();
    const options = { signal: leaving.signal };
    const first = async () => {
      const { jobs, next } = await api.get("/v1/jobs", { query: { ...params, limit: FIRST }, ...options });
      known.put(jobs);
      const ids = new Listed(jobs.map((/** @type {import("../../core/types.js").Job} */ job) => job.id));
      setFound((before) => (before.key === key && before.isWhole ? before : { key, ids, isWhole: next === null, isCut: false, error: null }));
    };
    const whole = async () => {
      const index = /** @type {Index} */ (await api.get("/v1/jobs/index", { query: params, ...options }));
      setFound({ key, ids: idsOf(index, params.sort), isWhole: true, isCut: Boolean(index.more), error: null });
    };
    setFresh(null);
    Promise.all([first(), whole()]).catch((error) => {
      if (!api.isAborted(error)) setFound((before) => ({ ...before, key, ids: before.key === key ? before.ids : null, error }));
    });
    return () => leaving.abort();
  }, [key, turn]);

  useEffect(() => {
    const leaving = new AbortController();
    let isLooking = false;
    let isWanted = false;
    const look = async () => {
      isLooking = true;
      isWanted = false;
      const began = performance.now();
      try {
        const index = await api.get("/v1/jobs/index", { query: params, signal: leaving.signal });
        setFresh({ key, ids: idsOf(index, params.sort) });
      } catch (error) {
        if (api.isAborted(error)) return;
        // The header shows that the daemon is gone; the next event causes another request.
      }
      setTimeout(() => {
        isLooking = false;
        if (isWanted) void look();
      }, Math.max(LOOK_EVERY_MS, LOOK_SHARE * (performance.now() - began)));
    };
    const quiet = state.onEvents((events) => {
      known.mark(events);
      if (isLooking) isWanted = true;
      else void look();
    });
    return () => {
      quiet();
      leaving.abort();
    };
  }, [key]);

  const isMine = found.key === key;
  const ids = isMine ? found.ids : null;
  const added = ids && fresh?.key === key && found.isWhole ? newcomers(fresh.ids, ids) : 0;
  const adopt = () => fresh?.key === key && setFound({ ...found, ids: fresh.ids });
  // An empty list cannot jump.
  useEffect(() => {
    if (added && ids?.length === 0) adopt();
  }, [added, ids]);
  return {
    ids,
    isWhole: isMine && found.isWhole,
    isCut: isMine && found.isCut,
    error: isMine ? found.error ?? known.error : null,
    added,
    adopt,
    rows: known,
    /** Increases with every change of a row: a component with the same properties is not drawn again. */
    version,
    reload: () => setTurn((n) => n + 1),
  };
}
