// The base of the page: the parser and back-off of the stream, addresses, paths, shortcuts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { backOff, parser } from "../../src/dibs/web/core/event-stream.js";
import { find, written } from "../../src/dibs/web/core/keys.js";
import { changed, match } from "../../src/dibs/web/core/router.js";
import { address, errorText, ApiError } from "../../src/dibs/web/core/api.js";
import { codeOf } from "../../src/dibs/web/core/session.js";
import { find as routeOf } from "../../src/dibs/web/routes.js";

const TEXT = ": hi\n\nevent: hello\ndata: {\"a\":1}\n\nid: 7\nevent: job\ndata: one\ndata: two\n\ndata: plain\r\n\r\nid: 9\n\n";
const MESSAGES = [
  { event: "hello", data: '{"a":1}', id: null },
  { event: "job", data: "one\ntwo", id: "7" },
  { event: "message", data: "plain", id: null },
];

test("a stream gives the same messages in pieces of any size", () => {
  for (let size = 1; size <= TEXT.length; size += 1) {
    const parse = parser();
    const found = [];
    for (let at = 0; at < TEXT.length; at += size) found.push(...parse(TEXT.slice(at, at + size)));
    assert.deepEqual(found, MESSAGES, `in pieces of ${size}`);
  }
});

test("attempts to reconnect slow down and never stop", () => {
  const waits = [1, 2, 3, 4, 5, 6, 7, 100].map((failures) => backOff(failures, 0.5));
  assert.deepEqual(waits, waits.toSorted((a, b) => a - b));
  assert.equal(waits.at(-1), 10_000);
  assert.ok(backOff(1, 0) < backOff(1, 1));
});

test("paths are matched", () => {
  assert.deepEqual(match("/job/{id}", "/job/7"), { id: "7" });
  assert.deepEqual(match("/jobs", "/jobs/"), {});
  assert.deepEqual(match("/", "/"), {});
  assert.equal(match("/job/{id}", "/job/"), null);
  assert.equal(match("/job/{id}", "/job/7/8"), null);
  assert.deepEqual(match("/gpu/{id}", "/gpu/a%2Fb"), { id: "a/b" });
  assert.deepEqual(match("/gpu/{id}", "/gpu/%E0%A4"), { id: "%E0%A4" });
  assert.equal(routeOf("/job/12")?.title, "Job 12");
  assert.equal(routeOf("/nowhere"), null);
});

test("parameters of the query are set and removed", () => {
  assert.equal(changed("?a=1&b=2", { a: null, c: "x y" }), "?b=2&c=x+y");
  assert.equal(changed("?a=1", { a: "" }), "");
});

test("addresses leave out missing parameters", () => {
  assert.equal(address("/v1/jobs", { limit: 5, text: "", tag: null, select: [1, "a b"] }), "/v1/jobs?limit=5&select=1&select=a+b");
  assert.equal(address("/v1/jobs"), "/v1/jobs");
  assert.equal(address("/v1/jobs?x=1", { y: 0 }), "/v1/jobs?x=1&y=0");
});

test("an error is shown in one line with its hint", () => {
  assert.equal(errorText(new ApiError("job 7 is over.", "See `dibs show 7`.", "user", 409)), "job 7 is over. See `dibs show 7`.");
  assert.equal(errorText(new Error("x")), "x");
});

test("the code is read from a link", () => {
  assert.equal(codeOf("#code=ab-c_1"), "ab-c_1");
  assert.equal(codeOf("#L123"), null);
  assert.equal(codeOf(""), null);
});

test("shortcuts have one or two keys, and the newest wins", () => {
  const run = () => {};
  const table = [{ keys: "g j", does: "", run }, { keys: "j", does: "old", run }, { keys: "j", does: "new", run }];
  assert.deepEqual(find(table, "", "g"), { run: null, isBegin: true });
  assert.equal(find(table, "g", "j").run, table[0]);
  assert.equal(find(table, "", "j").run, table[2]);
  assert.deepEqual(find(table, "", "x"), { run: null, isBegin: false });
  assert.equal(written({ key: "k", ctrlKey: true, metaKey: false, altKey: false }), "Ctrl+k");
  assert.equal(written({ key: " ", ctrlKey: false, metaKey: false, altKey: false }), "Space");
});
