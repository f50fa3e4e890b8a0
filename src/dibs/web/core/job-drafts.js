// The fields of the submit dialog: from a job, and turned into requests and into the equivalent command line. Pure.

/**
 * @typedef {object} Told the fields as they are typed
 * @property {string} command
 * @property {string} gpus
 * @property {string} name
 * @property {string} cwd
 * @property {string} like the number of the job whose environment it takes; empty: the daemon chooses
 * @property {string} env lines NAME=VALUE that are added to the environment
 * @property {string} after a selector such as 12 or name:prep*
 * @property {string} priority
 * @property {string} time such as 2h or 1d12h
 * @property {string} vram GPU memory such as 18G; empty: exclusive use
 * @property {string} retries
 * @property {string} tags with commas or blanks between
 * @property {string} gpuIds such as 0,2: exactly these; empty: any
 * @property {string} preset options of the settings that hold for what is left empty
 * @property {Record<string, string>} values of each placeholder, separated by commas
 */

/** @type {Told} */
export const EMPTY = { command: "", gpus: "1", name: "", cwd: "", like: "", env: "", after: "", priority: "0", time: "", vram: "", retries: "", tags: "", gpuIds: "", preset: "", values: {} };
/** Most runs that the dialog submits; use `dibs sweep` for more. */
export const MOST_RUNS = 2000;

// As `dibs sweep` parses them: `${HOME}` and `{{x}}` are no placeholders.
const PLACE = /(?<![${])\{([A-Za-z_][\w-]*)\}(?!\})/g;
/** Text that a shell needs no quotes for. */
const SAFE = /^[\w@%+=:,./-]+$/;
const UNITS = /** @type {const} */ ([["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]]);

/** Return the placeholders of a command, each once; `{index}` is filled in by itself. @param {string} command */
export function placeholders(command) {
  return [...new Set([...command.matchAll(PLACE)].map((found) => found[1]))].filter((name) => name !== "index");
}

/** Return a word as a shell must be given it. @param {string} word */
export function quoted(word) {
  return SAFE.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Return the seconds in 90m, 2h or 1d12h; an Error that says what was expected otherwise. @param {string} text @param {string} [field] */
export function seconds(text, field = "The time limit") {
  let rest = text.trim().toLowerCase();
  let total = 0;
  for (const [unit, factor] of UNITS) {
    const found = rest.match(new RegExp(`^(\\d+(?:\\.\\d+)?)${unit}`));
    if (!found) continue;
    total += Number(found[1]) * factor;
    rest = rest.slice(found[0].length);
  }
  if (rest || !total) throw new Error(`${field} expected a time such as 90m, 2h or 1d12h, got "${text}".`);
  return total;
}

const SIZES = /** @type {const} */ ({ k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 });

/** Return the bytes in 18G or 512M; an Error that says what was expected otherwise. @param {string} text */
export function bytes(text) {
  const [, digits, unit] = text.trim().toLowerCase().match(/^(\d+(?:\.\d+)?)([kmgt])i?b?$/) ?? [];
  if (!unit) throw new Error(`GPU memory expected a size such as 18G or 512M, got "${text}".`);
  return Math.round(Number(digits) * SIZES[/** @type {keyof typeof SIZES} */ (unit)]);
}

/**
 * Return the fields as they are with a preset, or without one: its number of GPUs is shown, because that field is never empty.
 * @param {Told} told @param {import("./types.js").Preset | undefined} preset @returns {Told}
 */
export function withPreset(told, preset) {
  const { gpus, gpu_ids: ids } = /** @type {{gpus?: number, gpu_ids?: string[]}} */ (preset?.fields ?? {});
  const many = gpus ?? ids?.length;
  return { ...told, preset: preset?.name ?? "", ...(many !== undefined && { gpus: String(many) }) };
}

/** @param {string} text */
const listed = (text) => text.split(/[\s,]+/).filter(Boolean);

/** @param {string} text */
const lines = (text) => text.split("\n").map((one) => one.trim()).filter(Boolean);

/** @param {string} text @returns {Record<string, string>} */
export function variables(text) {
  return Object.fromEntries(
    lines(text).map((line) => {
      const equals = line.indexOf("=");
      if (equals < 1) throw new Error(`The environment expected lines NAME=VALUE, got "${line}".`);
      return [line.slice(0, equals), line.slice(equals + 1)];
    }),
  );
}

/** Return what is asked of each job, as POST /v1/jobs takes it, without its command. @param {Told} told @returns {Record<string, unknown>} */
export function defaults(told) {
  const gpus = Number(told.gpus);
  if (!/^\d+$/.test(told.gpus.trim())) throw new Error(`GPUs expected a whole number from 0 up, got "${told.gpus}".`);
  if (!/^\d*$/.test(told.retries.trim())) throw new Error(`Retries expected a whole number from 0 up, got "${told.retries}".`);
  return {
    ...(told.preset && { preset: told.preset }),
    gpus,
    ...(told.cwd.trim() && { cwd: told.cwd.trim() }),
    ...(told.like && { environ_of: Number(told.like) }),
    ...(told.env.trim() && { env: variables(told.env) }),
    ...(told.after.trim() && { after: [{ select: told.after.trim() }] }),
    ...(Number(told.priority) !== 0 && { priority: Number(told.priority) }),
    ...(told.time.trim() && { time_limit_s: seconds(told.time) }),
    ...(told.vram.trim() && { vram: bytes(told.vram) }),
    ...(Number(told.retries) > 0 && { retries: Number(told.retries) }),
    ...(listed(told.tags).length && { tags: listed(told.tags) }),
    ...(listed(told.gpuIds).length && { gpu_ids: listed(told.gpuIds) }),
  };
}

/** The mask of the daemon for secrets, which cannot be resubmitted. */
const MASK = "***";

/**
 * Return the initial fields of the submit dialog to run a job again with changes.
 * @param {import("./types.js").WholeJob} job
 */
export function draftOf(job) {
  const env = Object.entries(job.env ?? {}).filter(([, value]) => value !== MASK);
  return {
    command: job.command,
    gpus: String(job.gpus),
    name: job.name,
    cwd: job.cwd,
    like: job.environment ? String(job.id) : "",
    env: env.map(([name, value]) => `${name}=${value}`).join("\n"),
    after: job.after.map((need) => need.id).join(","),
    priority: String(job.priority),
    time: limit(job.time_limit_s),
    vram: job.vram ? `${Math.round(job.vram / 1024 ** 2)}M` : "",
    retries: job.retries ? String(job.retries) : "",
    tags: (job.tags ?? []).join(", "),
    gpuIds: (job.request?.gpu_ids ?? []).join(","),
  };
}

/** Return a time limit as it is typed: 1h30m. @param {number | null} seconds */
export function limit(seconds) {
  if (!seconds) return "";
  let left = Math.round(seconds);
  let text = "";
  for (const [unit, length] of /** @type {[string, number][]} */ ([["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]])) {
    if (left >= length) text += `${Math.floor(left / length)}${unit}`;
    left %= length;
  }
  return text;
}

/** Return how the choice of an environment is shown. @param {import("./types.js").Environment} one */
export function environmentLabel({ job, name, activated, cwd }) {
  return [`like job ${job}`, name, activated, cwd].filter(Boolean).join(" · ");
}

/** Return the values typed for a placeholder. @param {Pick<Told, "values">} told @param {string} name */
export function valuesOf(told, name) {
  return (told.values[name] ?? "").split(",").map((one) => one.trim()).filter(Boolean);
}

/** Return how many jobs it would be; 0 while a placeholder has no value. @param {Told} told */
export function countOf(told) {
  return placeholders(told.command).reduce((product, name) => product * valuesOf(told, name).length, 1);
}

/** A value as JSON has it: numbers are numbers. @param {string} text */
export function typed(text) {
  if (text === "true" || text === "false") return text === "true";
  return text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text;
}

/** Tell whether quotes are open at a place of a command. @param {string} before */
function isQuoted(before) {
  let open = "";
  for (let i = 0; i < before.length; i += 1) {
    const char = before[i];
    if (char === "\\" && open !== "'") i += 1;
    else if (open ? char === open : char === "'" || char === '"') open = open ? "" : char;
  }
  return open !== "";
}

/**
 * Return a command with its placeholders replaced; each value is one shell word.
 * @param {string} command @param {Record<string, string>} values @param {number} index
 */
export function filled(command, values, index) {
  return command
    .replace(PLACE, (place, name, at) => {
      const value = name === "index" ? String(index) : values[name];
      if (SAFE.test(value)) return value;
      if (isQuoted(command.slice(0, at))) {
        throw new Error(`"${value}" cannot be put between quotes here: remove the quotes around ${place}.`);
      }
      return quoted(value);
    })
    .replace(/\{\{([A-Za-z_][\w-]*)\}\}/g, "{$1}");
}

/**
 * Return every combination of the values of some names; the last name varies fastest.
 * @param {readonly string[]} names @param {Pick<Told, "values">} told
 */
export function grid(names, told) {
  const many = names.reduce((product, name) => product * valuesOf(told, name).length, 1);
  if (many > MOST_RUNS) throw new Error(`This would be ${many} jobs. For more than ${MOST_RUNS}, use \`dibs sweep\`.`);
  /** @type {Record<string, string>[]} */
  let all = [{}];
  for (const name of names) all = all.flatMap((one) => valuesOf(told, name).map((value) => ({ ...one, [name]: value })));
  return all;
}

/**
 * Return the points of a sweep, the last placeholder varies fastest, as POST /v1/sweeps/{id}/points takes them.
 * @param {Told} told
 */
export function points(told) {
  return grid(placeholders(told.command), told).map((one, index) => ({
    index,
    params: Object.fromEntries(Object.entries(one).map(([name, value]) => [name, typed(value)])),
    command: filled(told.command, one, index),
  }));
}

/** Return the first few commands that would run, for a look before they do. @param {Told} told @param {number} [most] */
export function firstCommands(told, most = 3) {
  const names = placeholders(told.command);
  if (!countOf(told)) return [];
  // Only as many combinations as are shown: there may be thousands.
  const few = { values: Object.fromEntries(names.map((name) => [name, valuesOf(told, name).slice(0, most).join(",")])) };
  return grid(names, few).slice(0, most).map((one, index) => filled(told.command, one, index));
}

/** Return the line that does the same in a terminal. @param {Told} told */
export function line(told) {
  const names = placeholders(told.command);
  const words = ["-g", told.gpus.trim()];
  /** @param {string} option @param {string} value */
  const add = (option, value) => value && words.push(option, value);
  if (told.preset) words.unshift("--preset", told.preset);
  add("-n", told.name.trim());
  add("-C", told.cwd.trim());
  for (const pair of lines(told.env)) words.push("-e", pair);
  add("-a", told.after.trim());
  if (Number(told.priority) !== 0) words.push("--priority", told.priority);
  add("-t", told.time.trim());
  add("--vram", told.vram.trim());
  if (Number(told.retries) > 0) words.push("--retries", told.retries.trim());
  for (const tag of listed(told.tags)) words.push("--tag", tag);
  add("--gpu-ids", listed(told.gpuIds).join(","));
  const options = words.map(quoted).join(" ");
  if (!names.length) return `dibs add ${options} -- ${quoted(told.command)}`;
  const parameters = names.map((name) => `-p ${name} ${valuesOf(told, name).map(quoted).join(" ")}`).join(" ");
  return `dibs sweep ${quoted(told.command)} ${options} ${parameters}`;
}
