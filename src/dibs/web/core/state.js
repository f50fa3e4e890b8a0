// The state of the page, as signals: a component that reads one is updated. Only news of the stream write them.
import { batch, computed, effect, signal } from "../vendor/ui.js";
import * as session from "./session.js";
import { listen } from "./tab-stream.js";

/**
 * @typedef {import("./types.js").JobEvent} JobEvent
 * @typedef {import("./event-stream.js").Connection} Connection
 */
/** @template T @typedef {import("../vendor/ui.js").Signal<T>} Signal */

/** @type {Signal<Connection>} */
export const connection = signal(/** @type {Connection} */ ({ state: "connecting", since: Date.now(), retryAt: 0 }));
/** Host, user and version; null before the first word of the daemon. @type {Signal<import("./types.js").Hello | null>} */
export const hello = signal(/** @type {import("./types.js").Hello | null} */ (null));
/** Jobs by state. @type {Signal<import("./types.js").Counts>} */
export const counts = signal(/** @type {import("./types.js").Counts} */ ({}));
/** @type {Signal<import("./types.js").PauseState>} */
export const queue = signal({ paused: false });
/** What GET /v1/gpus answers; null before the first. @type {Signal<import("./types.js").Gpus | null>} */
export const gpus = signal(/** @type {import("./types.js").Gpus | null} */ (null));
/** Increases whenever any job changed, and when everything must be reloaded. */
export const happened = signal(0);
/** The time, every second while the page is visible. */
export const now = signal(Date.now());
/** Failures since this tab was last visible. */
export const unseenFailures = signal(0);

/** Whether the data is outdated: the daemon has not answered for a while. */
export const isStale = computed(() => connection.value.state === "gone" || connection.value.state === "refused");

const BAD = new Set(["failed", "timeout", "lost"]);
const OVER = new Set([...BAD, "done", "cancelled"]);
/** The events that end an attempt, or a job that never started. */
const ENDS = new Set(["Ended", "LostTrack", "CannotStart", "NeedFailed"]);

/** Those events after which a job is over; one that is retried by itself is not. @param {readonly JobEvent[]} events */
export function ends(events) {
  return events.filter((one) => ENDS.has(one.kind) && OVER.has(one.state ?? ""));
}
/** @type {Set<(events: JobEvent[]) => void>} */
const listeners = new Set();

/**
 * Call a function with every batch of events, an empty one when everything must be reloaded; returns how to stop it.
 * @param {(events: JobEvent[]) => void} listener
 */
export function onEvents(listener) {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** @param {JobEvent[]} events */
function takeEvents(events) {
  happened.value += 1;
  if (document.visibilityState === "hidden") {
    unseenFailures.value += ends(events).filter((one) => BAD.has(one.state ?? "")).length;
  }
  for (const listener of listeners) listener(events);
}

/** @param {import("./event-stream.js").News} news */
function take(news) {
  batch(() => {
    if (news.kind === "connection") {
      connection.value = news.connection;
      if (news.connection.state === "refused") session.leave("This link is no longer valid.");
    } else if (news.kind === "hello") {
      hello.value = news.hello;
      counts.value = news.hello.counts;
      queue.value = news.hello.queue;
      // After an interruption: the loaded data may be outdated.
      takeEvents([]);
    } else if (news.kind === "counts") {
      counts.value = news.counts;
      queue.value = news.queue;
    } else if (news.kind === "gpus") gpus.value = news.gpus;
    else if (news.kind === "jobs") takeEvents(news.events);
    else if (news.kind === "reset") takeEvents([]);
  });
}

/** Listen, find a token, and keep the clock going. Called once, by app.js. */
export function begin() {
  let isBegun = false;
  const stream = listen((news) => {
    if (news.kind !== "token") take(news);
    else if (!isBegun) {
      isBegun = true;
      void session.begin(news.token);
    } else if (news.token && session.status.value === "out") session.enter(news.token);
  });
  effect(() => {
    const token = session.status.value === "in" && session.token();
    if (token) stream.use(token);
  });
  setInterval(() => document.visibilityState === "visible" && (now.value = Date.now()), 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") return;
    now.value = Date.now();
    unseenFailures.value = 0;
    stream.retry();
  });
  addEventListener("online", stream.retry);
}
