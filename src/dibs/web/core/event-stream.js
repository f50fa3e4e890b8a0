// One event stream, kept alive: reads /v1/events, continues after an interruption where it ended, and passes on the news.
// It runs in the shared worker, or in the tab itself where there are no shared workers.

/**
 * @typedef {import("./types.js").JobEvent} JobEvent
 * @typedef {{state: "connecting"|"live"|"reconnecting"|"gone"|"refused", since: number, retryAt: number}} Connection
 *
 * @typedef {{kind: "connection", connection: Connection}
 *   | {kind: "hello", hello: import("./types.js").Hello}
 *   | {kind: "jobs", events: JobEvent[]}
 *   | {kind: "counts", counts: import("./types.js").Counts, queue: import("./types.js").PauseState}
 *   | {kind: "gpus", gpus: import("./types.js").Gpus}
 *   | {kind: "reset"}
 *   | {kind: "token", token: string | null}} News
 */

/** Milliseconds without a sign of life (one comes every 15 s) after which a stream counts as dead. */
const SILENCE_MS = 40_000;
/** Milliseconds to wait for an answer: a suspended daemon accepts connections and never answers. */
const ANSWER_MS = 20_000;
/** Failures in a row after which the daemon counts as gone. */
const GONE_AFTER = 3;

/**
 * Follow the events of the daemon and pass all news to `tell`. Nothing happens before `use` has a token.
 * @param {(news: News) => void} tell
 * @param {typeof fetch} [ask] how the daemon is asked
 */
export function openEventStream(tell, ask = (...request) => fetch(...request)) {
  /** @type {string | null} */
  let token = null;
  /** @type {string | null} */
  let last = null;
  let failures = 0;
  /** @type {AbortController | null} */
  let reading = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {Connection} */
  let connection = { state: "connecting", since: Date.now(), retryAt: 0 };

  /** @param {Connection["state"]} state @param {number} [retryAt] */
  function become(state, retryAt = 0) {
    // `since` is the last time it was connected, so it is kept from reconnecting to gone.
    const isWorse = state === "gone" && connection.state === "reconnecting";
    const since = state === connection.state || isWorse ? connection.since : Date.now();
    connection = { state, since, retryAt };
    tell({ kind: "connection", connection });
  }

  async function connect() {
    clearTimeout(timer);
    reading?.abort();
    if (!token) return;
    const mine = (reading = new AbortController());
    const late = setTimeout(() => mine.abort(), ANSWER_MS);
    try {
      /** @type {Record<string, string>} */
      const headers = { Authorization: `Bearer ${token}`, Accept: "text/event-stream" };
      if (last !== null) headers["Last-Event-ID"] = last;
      const answer = await ask("/v1/events", { headers, signal: mine.signal, cache: "no-store" }).finally(() => clearTimeout(late));
      if (answer.status === 401) {
        token = null;
        become("refused");
        return;
      }
      if (!answer.ok || !answer.body) throw new Error(`the daemon answered ${answer.status}`);
      await read(answer.body, mine);
      throw new Error("the stream ended");
    } catch {
      // After any error: report it and try again.
      if (reading === mine && token) again();
    }
  }

  function again() {
    failures += 1;
    const wait = backOff(failures, Math.random());
    // Before it is passed on, because the receiver may stop the stream.
    timer = setTimeout(connect, wait);
    become(failures > GONE_AFTER ? "gone" : "reconnecting", Date.now() + wait);
  }

  /** @param {ReadableStream<Uint8Array<ArrayBuffer>>} body @param {AbortController} mine */
  async function read(body, mine) {
    const parse = parser();
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    const isDead = () => mine.abort();
    let silence = setTimeout(isDead, SILENCE_MS);
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(isDead, SILENCE_MS);
        if (connection.state !== "live") {
          failures = 0;
          become("live");
        }
        take(parse(value));
      }
    } finally {
      clearTimeout(silence);
    }
  }

  /** @param {Message[]} messages */
  function take(messages) {
    /** @type {JobEvent[]} */
    const events = [];
    const handOn = () => events.length && tell({ kind: "jobs", events: events.splice(0) });
    for (const { event, data, id } of messages) {
      const said = JSON.parse(data);
      if (id !== null) last = id;
      if (event === "job") {
        events.push(said);
        continue;
      }
      handOn();
      if (event === "hello") {
        // Events from before the page was opened are not news.
        last ??= String(said.last);
        tell({ kind: "hello", hello: said });
      } else if (event === "counts") tell({ kind: "counts", counts: said.counts, queue: said.queue });
      else if (event === "gpus") tell({ kind: "gpus", gpus: said });
      else if (event === "reset") {
        last = String(said.last);
        tell({ kind: "reset" });
      }
    }
    handOn();
  }

  return {
    /** @param {string | null} found */
    use(found) {
      if (found === token && connection.state !== "refused") return;
      token = found;
      failures = 0;
      void connect();
    },
    /** Try again now instead of later. */
    retry() {
      if (connection.state !== "live") void connect();
    },
    stop() {
      clearTimeout(timer);
      reading?.abort();
      reading = null;
    },
    get token() {
      return token;
    },
  };
}

/** @typedef {{event: string, data: string, id: string | null}} Message */

/**
 * Return a function that takes text in pieces of any size and returns the messages that became complete.
 * @returns {(text: string) => Message[]}
 */
export function parser() {
  let rest = "";
  let event = "";
  /** @type {string[]} */
  let data = [];
  /** @type {string | null} */
  let id = null;

  /** @param {string} line @param {Message[]} found */
  function take(line, found) {
    if (line === "") {
      if (data.length) found.push({ event: event || "message", data: data.join("\n"), id });
      event = "";
      data = [];
      id = null;
      return;
    }
    const colon = line.indexOf(":");
    // A comment: only a sign of life.
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event = value;
    else if (field === "data") data.push(value);
    else if (field === "id") id = value;
  }

  return (text) => {
    /** @type {Message[]} */
    const found = [];
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) take(line, found);
    return found;
  };
}

/** Milliseconds before the next attempt, by the number of failures; the last value is the maximum. */
const BACK_OFF_MS = [300, 700, 1500, 3000, 6000, 10_000];

/**
 * Return how long to wait after a number of consecutive failures; `chance` in 0..1 spreads many tabs and users a little.
 * @param {number} failures @param {number} chance
 */
export function backOff(failures, chance) {
  const base = BACK_OFF_MS[Math.min(Math.max(failures, 1), BACK_OFF_MS.length) - 1];
  return Math.round(base * (0.8 + 0.4 * chance));
}
