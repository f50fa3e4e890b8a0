// Verbs on jobs for buttons: the result is shown, with Undo where the daemon can undo it.
// A cancel cannot be undone, so it is sent when the time for Undo is over, or when the page is left.
import * as api from "../core/api.js";
import { compact, plural } from "../core/format.js";
import * as state from "../core/state.js";
import { signal } from "../vendor/ui.js";
import * as dialogs from "./dialogs.js";
import * as toasts from "./toasts.js";

/** Jobs whose cancel is not sent yet; rows show them struck through. @type {import("../vendor/ui.js").Signal<ReadonlySet<number>>} */
export const cancelling = signal(/** @type {ReadonlySet<number>} */ (new Set()));

/** Past forms of the verbs, for what was done. @type {Record<string, string>} */
const DONE = {
  cancel: "Cancelled",
  hold: "Held",
  unhold: "Released",
  pause: "Paused",
  resume: "Resumed",
  retry: "Queued again",
  move: "Moved",
  edit: "Changed",
  kill: "Sent the signal to",
};
/** @type {Record<string, string>} */
const OPPOSITE = { hold: "unhold", unhold: "hold", pause: "resume", resume: "pause" };

/** @param {readonly number[]} ids */
export const jobsNamed = (ids) => (ids.length === 1 ? `job ${ids[0]}` : plural(ids.length, "job"));

/**
 * Send one verb for many jobs; an error is thrown, nothing is shown.
 * @param {string} verb @param {readonly (number | string)[]} select @param {Record<string, unknown>} [more] @param {api.Options} [options]
 * @returns {Promise<import("../core/types.js").ActionResult>}
 */
export function send(verb, select, more = {}, options) {
  return api.post("/v1/jobs/actions", { verb, select: words(select), ...more }, options);
}

/** Many ids are one word: what is sent while the page goes may have 64 kB. @param {readonly (number | string)[]} select */
function words(select) {
  const ids = select.filter((one) => typeof one === "number");
  return [...(ids.length ? [compact(ids)] : []), ...select.filter((one) => typeof one === "string")];
}

/**
 * Apply a verb to jobs and show the result; `cancel` waits for Undo, the others are undone by their opposite.
 * @param {string} verb @param {readonly number[]} ids @param {Record<string, unknown>} [more]
 * @returns {Promise<import("../core/types.js").ActionResult | null>} null when it failed, or is not sent yet
 */
export async function act(verb, ids, more = {}) {
  if (verb === "cancel") {
    cancel(ids);
    return null;
  }
  try {
    const acted = await send(verb, ids, more);
    tell(verb, acted);
    return acted;
  } catch (error) {
    toasts.show(api.errorText(error), { kind: "bad" });
    return null;
  }
}

/** @param {string} verb @param {import("../core/types.js").ActionResult} acted */
function tell(verb, acted) {
  const { unchanged = [] } = acted;
  const changed = (acted.changed ?? []).map((one) => one.id);
  const [left] = unchanged;
  if (!changed.length) {
    toasts.show(left ? `Job ${left.id}: ${left.why}` : "Nothing changed.", { kind: "bad" });
    return;
  }
  const rest = unchanged.length ? ` ${plural(unchanged.length, "other")} unchanged: ${left.why}` : "";
  const opposite = OPPOSITE[verb];
  const undo = opposite ? () => void send(opposite, changed).catch(complain) : undefined;
  toasts.show(`${DONE[verb] ?? verb} ${jobsNamed(changed)}.${rest}`, { undo });
}

/** @param {unknown} error */
const complain = (error) => toasts.show(api.errorText(error), { kind: "bad" });

/** Cancel jobs after the time for Undo. @param {readonly number[]} ids */
export function cancel(ids) {
  cancelling.value = new Set([...cancelling.value, ...ids]);
  let isSent = false;
  /** @param {boolean} isLeaving */
  const now = (isLeaving) => {
    if (isSent) return;
    isSent = true;
    removeEventListener("pagehide", leaving);
    send("cancel", ids, {}, { keepalive: isLeaving })
      .then((acted) => acted.changed?.length || tell("cancel", acted))
      .catch(complain)
      .finally(() => forget(ids));
  };
  const leaving = () => now(true);
  addEventListener("pagehide", leaving);
  toasts.show(`Cancelling ${jobsNamed(ids)}.`, {
    undo: () => {
      isSent = true;
      removeEventListener("pagehide", leaving);
      forget(ids);
    },
    gone: (isUndone) => isUndone || now(false),
  });
}

/** @param {readonly number[]} ids */
function forget(ids) {
  const gone = new Set(ids);
  cancelling.value = new Set([...cancelling.value].filter((id) => !gone.has(id)));
}

/**
 * Move a waiting job in the queue; `back` is the move that undoes it.
 * @param {number} id @param {{to: string, other?: number}} where @param {{to: string, other?: number} | null} back
 */
export async function move(id, where, back) {
  try {
    const acted = await send("move", [id], where);
    toasts.show(acted.note ?? `Moved job ${id}.`, { undo: back ? () => void send("move", [id], back).catch(complain) : undefined });
  } catch (error) {
    complain(error);
  }
}

/** Pause or resume the whole queue. @param {boolean} isPaused */
export async function pauseQueue(isPaused) {
  const set = (/** @type {boolean} */ paused) => api.post("/v1/queue", { paused });
  try {
    await set(isPaused);
    const text = isPaused ? "The queue is paused: running jobs continue, nothing new starts." : "The queue is running again.";
    toasts.show(text, { undo: () => void set(!isPaused).catch(complain) });
  } catch (error) {
    complain(error);
  }
}

/** Pause the queue after a question that names what stops, and what does not. */
export async function askPause() {
  const { counts } = state;
  const waiting = counts.value.queued ?? 0;
  const running = (counts.value.running ?? 0) + (counts.value.starting ?? 0);
  const text = `${waiting ? `${plural(waiting, "queued job")} will not start` : "Nothing new will start"} until you resume the queue. ${running ? `${plural(running, "running job")} ${running === 1 ? "continues" : "continue"}. ` : ""}Other users are not affected.`;
  if (await dialogs.confirm({ title: "Pause the queue?", text, yes: "Pause queue" })) await pauseQueue(true);
}
