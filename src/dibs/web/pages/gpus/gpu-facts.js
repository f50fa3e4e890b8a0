// Facts about one GPU: its holder, its fault, and its day as series for charts.
import { blockedText, joined } from "../../core/facts.js";
import { span } from "../../core/format.js";

/**
 * @typedef {import("../../core/types.js").Gpu} Gpu
 * @typedef {{id: string, recent: Row[], minutes: Row[]}} History one of GET /v1/gpus/history
 * @typedef {[string, number | null, number | null, number | null, number | null]} Row at, memory, utilization, power, temperature
 * @typedef {{at: number[], memory: (number | null)[], use: (number | null)[], power: (number | null)[], temperature: (number | null)[]}} Day
 */

/** Seconds without a reading after which a line has a gap: unknown is not zero. */
const GAP_S = 180;

/**
 * The history of a GPU as series: means of minutes, then single readings of the last hour; a gap without readings.
 * @param {History | undefined} history @param {number | null} total bytes of the card
 * @returns {Day}
 */
export function dayOf(history, total) {
  /** @type {Day} */
  const day = { at: [], memory: [], use: [], power: [], temperature: [] };
  if (!history) return day;
  for (const [moment, memory, use, power, temperature] of joined(history.minutes, history.recent)) {
    const at = Date.parse(moment) / 1000;
    const before = day.at.at(-1);
    if (before !== undefined && at <= before) continue;
    if (before !== undefined && at - before > GAP_S) push(day, before + 1, null, null, null, null);
    push(day, at, memory === null || !total ? null : (100 * memory) / total, use, power, temperature);
  }
  return day;
}

/** @param {Day} day @param {number} at @param {number | null} memory @param {number | null} use @param {number | null} power @param {number | null} temperature */
function push(day, at, memory, use, power, temperature) {
  day.at.push(at);
  day.memory.push(memory);
  day.use.push(use);
  day.power.push(power);
  day.temperature.push(temperature);
}

/**
 * One line about who has a GPU.
 * @param {Gpu} gpu @param {number} now
 */
export function statusText(gpu, now) {
  if (gpu.fault) return gpu.fault;
  if (gpu.blocked) return blockedText(gpu.blocked);
  if (gpu.state === "drained") return gpu.drained ?? "drained";
  if (gpu.state === "foreign") return gpu.foreign ?? "used by a foreign process";
  if (gpu.state === "leased") return "";
  if (gpu.reservation) return "reserved";
  const since = gpu.idle_since ? (now - Date.parse(gpu.idle_since)) / 1000 : null;
  return since === null || since < 60 ? "free" : `free, idle for ${span(since)}`;
}
