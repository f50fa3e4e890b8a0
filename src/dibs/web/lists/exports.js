// The jobs of a filter as a file: all of them, page by page, in CSV or JSON.
import * as api from "../api.js";
import * as toasts from "../toasts.js";
import { plural } from "../words.js";

/** @typedef {import("../types.js").Job} Job */

/** What a line of the CSV has; numbers that were reported follow in `report`. @type {(keyof Job)[]} */
const FIELDS = [
  "id", "name", "project", "state", "cause", "exit_code", "signal", "gpus", "gpu_indices", "priority", "attempt", "submitted_at",
  "started_at", "finished_at", "sweep", "index", "params", "tags", "report", "cwd", "command",
];

/** @param {unknown} value */
function field(value) {
  const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

/** Return jobs as lines of CSV. @param {Job[]} jobs */
export function csv(jobs) {
  return jobs.map((job) => `${FIELDS.map((name) => field(job[name])).join(",")}\r\n`).join("");
}

/**
 * Load all jobs of a filter and hand them over as a file.
 * @param {Record<string, string>} params @param {"csv" | "json"} kind
 */
export async function download(params, kind) {
  /** @type {string[]} */
  const parts = [kind === "csv" ? `${FIELDS.join(",")}\r\n` : "["];
  let cursor = null;
  let count = 0;
  try {
    do {
      const { jobs, next } = /** @type {{jobs: Job[], next: string | null}} */ (await api.get("/v1/jobs", { query: { ...params, limit: 1000, cursor } }));
      parts.push(kind === "csv" ? csv(jobs) : jobs.map((job, i) => `${count + i ? ",\n" : "\n"}${JSON.stringify(job)}`).join(""));
      count += jobs.length;
      cursor = next;
    } while (cursor);
  } catch (error) {
    toasts.show(api.told(error), { kind: "bad" });
    return;
  }
  if (kind === "json") parts.push("\n]\n");
  save(new Blob(parts, { type: kind === "csv" ? "text/csv" : "application/json" }), `jobs.${kind}`);
  toasts.show(`${plural(count, "job")} in jobs.${kind}.`);
}

/**
 * Have the browser save something under a name.
 * @param {Blob} blob @param {string} name
 */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
