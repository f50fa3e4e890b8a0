// The rows of jobs that were recently visible: requested in batches, updated after changes.
import * as api from "../../core/api.js";
import { compact } from "../../core/id-ranges.js";

/** @typedef {import("../../core/types.js").Job} Job */
/** @typedef {import("../../core/types.js").JobEvent} JobEvent */

/** Rows that are kept; a screen has fifty. */
const MOST = 3000;
/** Rows of one request. */
const AT_ONCE = 200;
/** Milliseconds between two requests, so that fast scrolling requests only where it stops. */
const BETWEEN_MS = 60;
/** Milliseconds between two requests for loaded rows that may have changed. */
const FRESHEN_MS = 1000;
/** Milliseconds after a request that failed. */
const FAILED_MS = 3000;

export class Rows {
  /** @param {() => void} changed called when there is something new to draw */
  constructor(changed) {
    this.changed = changed;
    /** Newest last. @type {Map<number, Job>} */
    this.jobs = new Map();
    /** Jobs to which something happened since they were asked for. @type {Set<number>} */
    this.stale = new Set();
    /** Jobs that are not there any more. @type {Set<number>} */
    this.gone = new Set();
    /** @type {number[]} */
    this.wanted = [];
    this.isAsking = false;
    this.freshenedAt = 0;
    /** @type {unknown} */
    this.error = null;
  }

  /** @param {number} id */
  get(id) {
    return this.jobs.get(id);
  }

  /** Names of metrics that loaded jobs reported, for columns. @returns {string[]} */
  metrics() {
    return [...new Set([...this.jobs.values()].flatMap((job) => Object.keys(job.report ?? {})))].sort();
  }

  /** Tags, projects and names of loaded jobs, for completions. @returns {{tag: string[], project: string[], name: string[]}} */
  known() {
    const all = [...this.jobs.values()];
    return { tag: [...new Set(all.flatMap((job) => job.tags))].sort(), project: [...new Set(all.map((job) => job.project))].sort(), name: [...new Set(all.map((job) => job.name.replace(/\d+$/, "*")))].sort() };
  }

  /** @param {Job[]} jobs */
  put(jobs) {
    for (const job of jobs) {
      this.jobs.delete(job.id);
      this.jobs.set(job.id, job);
    }
    for (const oldest of this.jobs.keys()) {
      if (this.jobs.size <= MOST) break;
      this.jobs.delete(oldest);
    }
    this.changed();
  }

  /** Take what events say at once, and ask for the rest when the rows are seen. @param {JobEvent[]} events none: all may have changed */
  mark(events) {
    if (!events.length) this.stale = new Set(this.jobs.keys());
    for (const { job, state } of events) {
      const row = this.jobs.get(job);
      if (!row) continue;
      this.stale.add(job);
      if (state && row.state !== state) this.jobs.set(job, { ...row, state });
    }
    this.changed();
  }

  /** Say which jobs are on the screen. @param {number[]} ids */
  want(ids) {
    this.wanted = ids;
    if (!this.isAsking) void this.ask();
  }

  /** Return the jobs to request now, and in how many milliseconds others are due. */
  due() {
    const missing = this.wanted.filter((id) => !this.jobs.has(id) && !this.gone.has(id));
    const stale = this.wanted.filter((id) => this.stale.has(id));
    const wait = this.freshenedAt + FRESHEN_MS - performance.now();
    if (stale.length && wait <= 0) return { ids: [...missing, ...stale].slice(0, AT_ONCE), wait: 0 };
    return { ids: missing.slice(0, AT_ONCE), wait: missing.length || !stale.length ? 0 : wait };
  }

  async ask() {
    const { ids, wait } = this.due();
    if (!ids.length && !wait) return;
    this.isAsking = true;
    await (ids.length ? this.load(ids) : Promise.resolve());
    setTimeout(() => {
      this.isAsking = false;
      void this.ask();
    }, Math.max(this.error ? FAILED_MS : BETWEEN_MS, wait));
  }

  /** @param {number[]} ids */
  async load(ids) {
    if (ids.some((id) => this.stale.has(id))) this.freshenedAt = performance.now();
    for (const id of ids) this.stale.delete(id);
    try {
      const { jobs } = await api.get("/v1/jobs", { query: { select: [compact(ids)], limit: AT_ONCE } });
      const found = new Set(jobs.map((/** @type {Job} */ job) => job.id));
      for (const id of ids) if (!found.has(id)) this.gone.add(id);
      this.error = null;
      this.put(jobs);
    } catch (error) {
      this.error = error;
      this.changed();
    }
  }
}
