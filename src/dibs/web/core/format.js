// Numbers and times as text. Pure functions: the current time is passed in.

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/**
 * A duration: "42 s", "12 min", "1h07m", "3d 4h". Two units at most.
 * @param {number | null | undefined} seconds
 */
export function span(seconds) {
  if (seconds == null || Number.isNaN(seconds)) return "";
  const s = Math.max(0, Math.round(seconds));
  if (s < MINUTE) return `${s} s`;
  const minutes = Math.round(s / MINUTE);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, "0")}m`;
  const hours = Math.round(s / HOUR);
  return hours % 24 ? `${Math.floor(hours / 24)}d ${hours % 24}h` : `${hours / 24}d`;
}

/**
 * Milliseconds of an ISO time; NaN if missing.
 * @param {string | null | undefined} moment
 */
export function ms(moment) {
  return moment ? Date.parse(moment) : NaN;
}

/**
 * A time relative to now: "just now", "5 min ago", "in 12 min".
 * @param {string | null | undefined} moment @param {number} now in milliseconds
 */
export function ago(moment, now) {
  const at = ms(moment);
  if (Number.isNaN(at)) return "";
  const seconds = (now - at) / 1000;
  if (Math.abs(seconds) < 5) return "just now";
  return seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
}

/**
 * A time in the zone of the browser, with the day if it is not today: "14:03", "Tue 14:03", "3 Nov 14:03".
 * @param {string | null | undefined} moment @param {number} now in milliseconds
 */
export function clock(moment, now) {
  const at = ms(moment);
  if (Number.isNaN(at)) return "";
  const date = new Date(at);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (date.toDateString() === new Date(now).toDateString()) return time;
  const isNear = Math.abs(now - at) < 6 * DAY * 1000;
  const day = date.toLocaleDateString("en-GB", isNear ? { weekday: "short" } : { day: "numeric", month: "short" });
  return `${day} ${time}`;
}

/**
 * How long something took, or has taken so far; "" before it began.
 * @param {string | null | undefined} from @param {string | null | undefined} to @param {number} now
 */
export function took(from, to, now) {
  return from ? span(((to ? ms(to) : now) - ms(from)) / 1000) : "";
}

/**
 * An expected start: the middle, and the range if it matters. Null if unknown.
 * @param {{earliest: string, latest: string} | null | undefined} range @param {number} now
 * @returns {{about: string, range: string} | null}
 */
export function expected(range, now) {
  if (!range) return null;
  const low = Math.max(0, (ms(range.earliest) - now) / 1000);
  const high = Math.max(low, (ms(range.latest) - now) / 1000);
  if (high < 5) return { about: "now", range: "" };
  const about = `~${span((low + high) / 2)}`;
  return { about, range: span(low) === span(high) ? "" : between(low, high) };
}

/**
 * When and where a job is expected to start: "now, on GPU 0", "in ~29 min (18–40 min), on GPU 3"; "" if unknown.
 * @param {{earliest: string, latest: string, gpu_indices: number[]} | null | undefined} start @param {number} now
 */
export function starts(start, now) {
  const found = expected(start, now);
  if (!start || !found) return "";
  const when = found.about === "now" ? "now" : `in ${found.about}`;
  const where = gpuNames(start.gpu_indices);
  return `${when}${found.range && ` (${found.range})`}${where && `, on ${where}`}`;
}

/** @param {number} low @param {number} high in seconds: "18–40 min" where both have one unit, else both in full */
function between(low, high) {
  const [a, b] = [span(low), span(high)];
  const unit = b.match(/ (s|min)$/)?.[0] ?? "";
  return unit && a.endsWith(unit) ? `${a.slice(0, -unit.length)}–${b}` : `${a}–${b}`;
}

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

/**
 * Bytes of a file or of memory, in powers of 1024 as graphics cards are sold: "512 MB", "1.5 GB".
 * @param {number | null | undefined} bytes
 */
export function size(bytes) {
  if (bytes == null) return "";
  let power = 0;
  let left = bytes;
  while (left >= 1024 && power < SIZES.length - 1) {
    left /= 1024;
    power += 1;
  }
  return `${left < 10 && power > 0 && left % 1 >= 0.05 ? left.toFixed(1) : Math.round(left)} ${SIZES[power]}`;
}

/**
 * Used of total in one unit: "44/80 GB".
 * @param {number | null | undefined} used @param {number | null} total null: unknown
 */
export function sizeOf(used, total) {
  const power = Math.min(SIZES.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(total ?? used ?? 1, 1)) / 10)));
  const unit = 1024 ** power;
  return `${used == null ? "?" : Math.round(used / unit)}/${total === null ? "?" : Math.round(total / unit)} ${SIZES[power]}`;
}

/**
 * A count with thin thousands: "100 000".
 * @param {number} value
 */
export function count(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/**
 * A count with its noun: "1 job", "3 jobs".
 * @param {number} value @param {string} one @param {string} [many]
 */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/**
 * A measured number, short: "0.9227", "4.7e-4", "12.5".
 * @param {number | null | undefined} value
 */
export function number(value) {
  if (value == null) return "";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-2 || size >= 1e6)) return value.toExponential(1).replace(/\.0e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

/** Return the word that selects exactly these ids: `1-5000,7`. @param {Iterable<number>} ids */
export function compact(ids) {
  /** @type {[number, number][]} */
  const runs = [];
  for (const id of [...new Set(ids)].sort((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last !== undefined && last[1] === id - 1) last[1] = id;
    else runs.push([id, id]);
  }
  return runs.map(word).join(",");
}

/** @param {[number, number]} run */
export function word([low, high]) {
  return low === high ? `${low}` : `${low}-${high}`;
}

/**
 * GPUs by index: "GPU 2", "GPUs 0, 1".
 * @param {number[]} indices
 */
export function gpuNames(indices) {
  if (!indices.length) return "";
  return `${indices.length === 1 ? "GPU" : "GPUs"} ${indices.join(", ")}`;
}

/**
 * How a finished job ended besides its state: "exit 1", "signal 9", "timeout".
 * @param {{exit_code: number | null, signal: number | string | null, cause: string | null}} job
 */
export function ending(job) {
  if (job.signal != null) return `signal ${job.signal}`;
  if (job.exit_code != null) return `exit ${job.exit_code}`;
  return job.cause ?? "";
}

/**
 * Why a job waits, or how it ended; nothing where its state says all.
 * @param {Pick<import("./types.js").Job, "state" | "reason" | "cause" | "exit_code" | "signal" | "finished_at">} job
 */
export function why(job) {
  if (job.state === "done") return "";
  if (!job.finished_at) return job.reason ?? "";
  const end = ending(job);
  // "exit 1" says already that the cause is its exit.
  const cause = job.cause === "oom" ? "out of memory" : end.startsWith(job.cause ?? "") ? "" : job.cause;
  return [cause, end].filter(Boolean).join(", ");
}

// Lines without information about the cause: rules, empty ones, and what the shell or torchrun adds at the end.
const EMPTY_TALK = [
  /^[\s\-=*_~#.]*$/,
  /^\s*\^+\s*$/,
  /^(srun|slurmstepd|make|npm ERR!|Exception ignored in|During handling of|The above exception)/,
  /^\s*(File ".*", line \d+|at .*\(.*:\d+:\d+\))/,
  /^Traceback \(most recent call last\)/,
];
const TELLING = /(error|exception|out of memory|killed|no such|not found|denied|cannot|failed|abort|assert)/i;

/**
 * The most informative line at the end of a log: the last that begins with an error, otherwise the last with words.
 * @param {string} text
 */
export function lastLine(text) {
  const lines = text
    // eslint-disable-next-line no-control-regex
    .replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "")
    .split("\n")
    .map((line) => line.slice(line.trimEnd().lastIndexOf("\r") + 1).trimEnd())
    .filter((line) => !EMPTY_TALK.some((pattern) => pattern.test(line)));
  const named = lines.filter((line) => /^\S/.test(line) && TELLING.test(line));
  return (named.at(-1) ?? lines.at(-1) ?? "").trim().slice(0, 300);
}
