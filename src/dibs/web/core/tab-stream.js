// The event stream of a tab: through the shared worker, or a separate one while it is visible if there are no workers.

/**
 * @typedef {import("./event-stream.js").News} News
 * @typedef {{use: (token: string) => void, retry: () => void}} Stream
 */

/**
 * Start listening. The first news is always `token`: that of other tabs, or null.
 * @param {(news: News) => void} tell
 * @returns {Stream}
 */
export function listen(tell) {
  return typeof SharedWorker === "undefined" ? alone(tell) : shared(tell);
}

/** @param {(news: News) => void} tell @returns {Stream} */
function shared(tell) {
  const worker = new SharedWorker("/static/core/stream.worker.js", { type: "module", name: "dibs" });
  const { port } = worker;
  /** @type {Stream | null} where the worker could not be loaded */
  let own = null;
  /** @type {string | null} */
  let mine = null;
  port.onmessage = ({ data }) => tell(data);
  worker.onerror = () => {
    own = alone(tell);
    if (mine) own.use(mine);
  };
  port.postMessage({ ask: "join" });
  addEventListener("pagehide", () => port.postMessage({ ask: "leave" }));
  // Also when the page comes out of the back-forward cache.
  addEventListener("pageshow", (event) => event.persisted && port.postMessage({ ask: "join" }));
  return {
    use: (token) => (own ? own.use((mine = token)) : port.postMessage({ ask: "use", token: (mine = token) })),
    retry: () => (own ? own.retry() : port.postMessage({ ask: "retry" })),
  };
}

/** @param {(news: News) => void} tell @returns {Stream} */
function alone(tell) {
  /** @type {Pick<ReturnType<import("./event-stream.js").openEventStream>, "use" | "retry" | "stop">} */
  let stream = { use: () => {}, retry: () => {}, stop: () => {} };
  // With shared workers the tab itself never needs it.
  void import("./event-stream.js").then(({ openEventStream }) => {
    stream = openEventStream(tell);
    stream.use(mine);
  });
  /** @type {string | null} */
  let mine = null;
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") {
      stream.stop();
      stream.use(null);
    } else stream.use(mine);
  });
  queueMicrotask(() => tell({ kind: "token", token: null }));
  return {
    use: (token) => stream.use((mine = token)),
    retry: () => stream.retry(),
  };
}
