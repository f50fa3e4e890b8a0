// The fields of the dialog for a reservation, turned into a request. Pure.
import { seconds } from "./job-drafts.js";

/**
 * @typedef {object} Told the fields as they are typed
 * @property {string} gpus
 * @property {string} gpuIds such as 0,2: exactly these; empty: any
 * @property {string} from as a field for dates has it, in local time
 * @property {string} lasts such as 4h
 * @property {string} every "day" or "week"; empty: once
 * @property {string} name
 */

/** The next full hour as a field for dates has it. @param {Date} now */
export function nextHour(now) {
  const at = new Date(now);
  at.setHours(at.getHours() + 1, 0, 0, 0);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** Return what POST /v1/reservations takes; an Error that says what was expected otherwise. @param {Told} told */
export function request(told) {
  const from = new Date(told.from);
  if (Number.isNaN(from.getTime())) throw new Error(`From expected a date and a time, got "${told.from}".`);
  const ids = told.gpuIds.split(/[\s,]+/).filter(Boolean);
  const gpus = Number(told.gpus);
  if (!Number.isInteger(gpus) || gpus < 1) throw new Error(`GPUs expected a whole number from 1 up, got "${told.gpus}".`);
  return {
    // Those that are named are all meant.
    ...(ids.length ? { gpu_ids: ids } : { gpus }),
    from: from.toISOString(),
    for_s: seconds(told.lasts, "Lasts"),
    every: told.every,
    name: told.name.trim(),
  };
}
