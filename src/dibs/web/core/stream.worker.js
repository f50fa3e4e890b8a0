// The shared worker: one event stream for all tabs of a browser (a browser opens six connections to a host and no
// seventh), and the one place from which a new tab gets the token.
import { openEventStream } from "./event-stream.js";

/** @typedef {import("./event-stream.js").News} News */

/** @type {Set<MessagePort>} */
const tabs = new Set();
/** What a new tab gets at once: the newest news of each lasting kind. @type {Map<string, News>} */
const newest = new Map();
const LASTING = ["connection", "hello", "counts", "gpus"];

const stream = openEventStream((news) => {
  if (LASTING.includes(news.kind)) newest.set(news.kind, news);
  for (const tab of tabs) tab.postMessage(news);
});

/** @param {MessagePort} tab @param {{ask: string, token?: string}} message */
function answer(tab, message) {
  if (message.ask === "join") {
    tabs.add(tab);
    tab.postMessage({ kind: "token", token: stream.token });
    for (const news of newest.values()) tab.postMessage(news);
  } else if (message.ask === "leave") tabs.delete(tab);
  else if (message.ask === "use" && message.token) {
    stream.use(message.token);
    // Tabs whose token was refused log in again with this one.
    for (const other of tabs) other.postMessage({ kind: "token", token: message.token });
  }
  else if (message.ask === "retry") stream.retry();
}

addEventListener("connect", (event) => {
  const [tab] = /** @type {MessageEvent} */ (event).ports;
  tab.onmessage = ({ data }) => answer(tab, data);
});
