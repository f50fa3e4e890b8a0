// The event stream against a small server: it continues after an interruption where it ended, reports its state, and
// gives up only when it is refused.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { openEventStream } from "../../src/dibs/web/core/event-stream.js";

const HELLO = 'event: hello\ndata: {"last":7,"counts":{},"queue":{}}\n\n';
const job = (id) => `id: ${id}\nevent: job\ndata: {"job":${id}}\n\n`;

/** Serve each request by the next of `scripts`, and hand on all news until `isEnough`. */
async function followed(scripts, isEnough) {
  const asked = [];
  const server = createServer((request, answer) => {
    asked.push({ last: request.headers["last-event-id"] ?? null, token: request.headers.authorization });
    (scripts[asked.length - 1] ?? scripts.at(-1))(answer);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const told = [];
  await new Promise((done) => {
    const ask = (path, how) => fetch(`http://127.0.0.1:${server.address().port}${path}`, how);
    const stream = openEventStream((news) => {
      told.push(news);
      if (isEnough(told)) {
        stream.stop();
        done();
      }
    }, ask);
    stream.use("secret");
  });
  server.closeAllConnections();
  server.close();
  return { asked, told, jobs: told.flatMap((one) => (one.kind === "jobs" ? one.events.map((event) => event.job) : [])) };
}

const stream = (text, { isOver = true } = {}) => (answer) => {
  answer.writeHead(200, { "Content-Type": "text/event-stream" });
  answer.write(text);
  if (isOver) answer.end();
};
const has = (kind) => (told) => told.some((one) => one.kind === kind);

test("after an interruption it continues after the last event, without gaps or duplicates", async () => {
  const { asked, jobs, told } = await followed(
    [stream(HELLO + job(8) + job(9)), stream(HELLO + job(10) + 'event: counts\ndata: {"counts":{"done":1},"queue":{}}\n\n', { isOver: false })],
    has("counts"),
  );
  assert.deepEqual(asked.map((one) => one.last), [null, "9"]);
  assert.equal(asked[0].token, "Bearer secret");
  assert.deepEqual(jobs, [8, 9, 10]);
  const states = told.filter((one) => one.kind === "connection").map((one) => one.connection.state);
  assert.deepEqual(states, ["live", "reconnecting", "live"]);
});

test("without an event before the interruption it continues after the first message", async () => {
  const { asked } = await followed([stream(HELLO), stream(HELLO + job(8), { isOver: false })], has("jobs"));
  assert.deepEqual(asked.map((one) => one.last), [null, "7"]);
});

test("a daemon that accepts connections and never answers counts as gone after a while", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const states = [];
  let asked = 0;
  const silent = (_path, { signal }) =>
    new Promise((_done, fail) => {
      asked += 1;
      signal.addEventListener("abort", () => fail(signal.reason));
    });
  const stream = openEventStream((news) => states.push(news.connection.state), silent);
  stream.use("secret");
  for (let turn = 0; turn < 20 && states.at(-1) !== "gone"; turn += 1) {
    context.mock.timers.tick(30_000);
    // A refusal arrives before the next tick.
    await new Promise((done) => setImmediate(done));
  }
  stream.stop();
  assert.equal(states.at(-1), "gone");
  assert.equal(asked, 4);
});

test("a reset is passed on, and the stream continues from there", async () => {
  const { asked, jobs } = await followed([stream(HELLO + job(8) + 'event: reset\ndata: {"last":50}\n\n'), stream(job(51), { isOver: false })], (told) => has("reset")(told) && told.at(-1).events?.[0].job === 51);
  assert.deepEqual(asked.map((one) => one.last), [null, "50"]);
  assert.deepEqual(jobs, [8, 51]);
});

test("after errors the request is repeated, and in the end the daemon counts as gone", async () => {
  const broken = (answer) => answer.writeHead(503).end();
  const isGone = (told) => told.at(-1).connection?.state === "gone";
  const { told } = await followed([broken], isGone);
  assert.deepEqual(told.map((one) => one.connection.state), ["reconnecting", "reconnecting", "reconnecting", "gone"]);
  assert.equal(told.at(-1).connection.since, told[0].connection.since, "since it was last well");
});

test("after a refusal there is no other attempt", async () => {
  const { asked, told } = await followed([(answer) => answer.writeHead(401).end("{}")], (all) => all.at(-1).connection?.state === "refused");
  assert.equal(asked.length, 1);
  assert.equal(told.length, 1);
});
