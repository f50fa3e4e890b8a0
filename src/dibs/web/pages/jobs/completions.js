// What may follow in the filter box: its words, states, and the tags, projects and sweeps that are known. Pure.
import { FIELDS, STATES } from "./filters.js";

/** @typedef {{tag: readonly string[], project: readonly string[], sweep: readonly {id: number, name: string}[], name: readonly string[]}} Known */
/** @typedef {{text: string, about: string, result: string}} Completion what is shown, what it means, the whole text with it */

/** What each word filters. @type {Record<string, string>} */
const ABOUT = {
  state: "a state, or several with commas", name: "a name, * for anything", tag: "a tag", project: "a project", sweep: "runs of a sweep",
  gpu: "ran on this GPU", since: "submitted after: 2d, 08:00", until: "submitted before", cmd: "a part of name or command",
};
const MOST = 8;

/**
 * Return what the last word of a filter may become.
 * @param {string} text @param {Known} known @returns {Completion[]}
 */
export function completions(text, known) {
  const word = text.match(/(?:[a-z]+:)?"[^"]*$|\S*$/)?.[0] ?? "";
  const before = text.slice(0, text.length - word.length);
  const [, key, typed] = word.match(/^([a-z]+):(.*)$/) ?? [];
  if (key === undefined) {
    return Object.keys(FIELDS)
      .filter((name) => name.startsWith(word) && !new RegExp(`(^|\\s)${name}:`).test(before))
      .map((name) => ({ text: `${name}:`, about: ABOUT[name], result: `${before}${name}:` }));
  }
  const parts = key === "state" ? typed.split(",") : [typed];
  const last = (parts.pop() ?? "").toLowerCase();
  const kept = parts.length ? `${parts.join(",")},` : "";
  return valuesOf(key, known)
    .filter(({ value, about }) => (value.toLowerCase().includes(last) || about.toLowerCase().includes(last)) && value !== last && !parts.includes(value))
    .slice(0, MOST)
    .map(({ value, about }) => ({ text: value, about, result: `${before}${key}:${kept}${/[\s"]/.test(value) ? `"${value.replace(/["\\]/g, "\\$&")}"` : value} ` }));
}

/** @param {string} key @param {Known} known @returns {{value: string, about: string}[]} */
function valuesOf(key, known) {
  if (key === "state") return [...STATES].map((value) => ({ value, about: GROUPS[value] ?? "" }));
  if (key === "sweep") return known.sweep.map(({ id, name }) => ({ value: String(id), about: name }));
  if (key === "since" || key === "until") return ["1h", "8h", "1d", "2d", "7d"].map((value) => ({ value, about: "ago" }));
  const found = key === "tag" ? known.tag : key === "project" ? known.project : key === "name" ? known.name : [];
  return found.map((value) => ({ value, about: "" }));
}

/** States that stand for several. @type {Record<string, string>} */
const GROUPS = { active: "starting, running, paused, stopping", bad: "failed, timeout, lost", finished: "all that ended", unfinished: "all that have not ended" };
