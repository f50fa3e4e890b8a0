// The jobs of a filter as a file: all of them, page by page, in CSV or JSON.
import * as toasts from "../../components/toasts.js";
import * as api from "../../core/api.js";
import { csv as lines, download as save } from "../../core/csv.js";
import { plural } from "../../core/format.js";

/** @typedef {import("../../core/types.js").Job} Job */

/** What a line of the CSV has; numbers that were reported follow in `report`. @type {(keyof Job)[]} */
const FIELDS = [
  "id", "name", "project", "state", "cause", "exit_code", "signal", "gpus", "gpu_indices", "priority", "attempt", "submitted_at",
  "started_at", "finished_at", "sweep", "index", "params", "tags", "report", "cwd", "command",
];

/** Return jobs as lines of CSV. @param {Job[]} jobs */
export function csv(jobs) {
  return jobs.length ? lines(jobs.map((job) => FIELDS.map((name) => job[name]))) : "";
}

/**
 * Load all jobs of a filter and save them as a file.
 * @param {Record<string, string>} params @param {"csv" | "json"} kind
 */
export async function download(params, kind) {
  /** @type {string[]} */
  const parts = [kind === "csv" ? lines([FIELDS]) : "["];
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
    toasts.show(api.errorText(error), { kind: "bad" });
    return;
  }
  if (kind === "json") parts.push("\n]\n");
  save(`jobs.${kind}`, parts.join(""), kind === "csv" ? "text/csv" : "application/json");
  toasts.show(`${plural(count, "job")} in jobs.${kind}.`);
}
