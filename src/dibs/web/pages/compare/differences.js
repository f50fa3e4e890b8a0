// What differs between jobs: options, parameters, words of their commands and last metrics. Pure.
import { number, size } from "../../core/format.js";

/**
 * @typedef {import("../job/job-text.js").Whole} Whole
 * @typedef {{name: string, values: string[], isEqual: boolean, isCode: boolean}} Row
 */

/** Fields of a job that can differ, and how they are said. @type {[string, (job: Whole) => unknown, boolean][]} */
const FIELDS = [
  ["Folder", (job) => job.cwd, true],
  ["GPUs", (job) => job.gpus, false],
  ["GPU memory", (job) => job.vram && size(job.vram), false],
  ["CPUs", (job) => job.cpus, false],
  ["Memory", (job) => job.mem && size(job.mem), false],
  ["Priority", (job) => job.priority, false],
  ["Project", (job) => job.project, false],
  ["Tags", (job) => job.tags.join(", "), false],
  ["Attempt", (job) => job.attempt, false],
  ["Environment", (job) => job.environment, false],
];

/**
 * Return rows of what differs; with `hasAll` also of what is equal.
 * @param {readonly Whole[]} jobs @param {boolean} [hasAll] @returns {Row[]}
 */
export function differences(jobs, hasAll = false) {
  const parameters = keysOf(jobs.map((job) => job.params ?? optionsOf(job.command)));
  const metrics = keysOf(jobs.map((job) => job.report ?? {}));
  const variables = keysOf(jobs.map((job) => job.env ?? {}));
  const rows = [
    ...parameters.map((name) => rowOf(name, jobs.map((job) => (job.params ?? optionsOf(job.command))[name]), true)),
    ...FIELDS.map(([name, value, isCode]) => rowOf(name, jobs.map(value), isCode)),
    ...variables.map((name) => rowOf(`$${name}`, jobs.map((job) => job.env?.[name]), true)),
    ...metrics.map((name) => rowOf(name, jobs.map((job) => job.report?.[name]), false)),
    rowOf("Command", jobs.map((job) => job.command), true),
  ];
  const told = rows.filter((row) => row.values.some((value) => value !== ""));
  return hasAll ? told : told.filter((row) => !row.isEqual);
}

/** @param {readonly Record<string, unknown>[]} all */
const keysOf = (all) => [...new Set(all.flatMap((one) => Object.keys(one)))];

/** @param {string} name @param {readonly unknown[]} values @param {boolean} isCode @returns {Row} */
function rowOf(name, values, isCode) {
  const texts = values.map(text);
  return { name, values: texts, isCode, isEqual: texts.every((one) => one === texts[0]) };
}

/** @param {unknown} value */
function text(value) {
  if (value === null || value === undefined || value === "") return "";
  if (typeof value === "number") return number(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/**
 * Return the options of a command line: `--lr 0.1`, `--lr=0.1`, `lr=0.1`; one without a value is "yes".
 * @param {string} command @returns {Record<string, string>}
 */
export function optionsOf(command) {
  /** @type {Record<string, string>} */
  const found = {};
  const words = command.match(/"[^"]*"|'[^']*'|\S+/g) ?? [];
  words.forEach((word, i) => {
    const [, name, value] = word.match(/^(?:--)?([A-Za-z_][\w.-]*)=(.*)$/) ?? [];
    if (name) found[name] = value;
    else if (/^--[A-Za-z]/.test(word)) {
      const next = words[i + 1];
      found[word.slice(2)] = next !== undefined && !/^--?[A-Za-z]/.test(next) ? next : "yes";
    }
  });
  return found;
}
