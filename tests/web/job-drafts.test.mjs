// How the submit dialog turns its fields into a request.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as drafts from "../../src/dibs/web/core/job-drafts.js";
import * as reservationText from "../../src/dibs/web/core/reservation-text.js";

const told = (more) => ({ ...drafts.EMPTY, ...more });

test("placeholders are listed once, and shell braces are ignored", () => {
  assert.deepEqual(drafts.placeholders("x {lr} ${HOME} {bs} {lr} {{no}} {index} awk '{print $1}'"), ["lr", "bs"]);
});

const TIMES = [["90m", 5400], ["2h", 7200], ["1d12h", 129_600], ["1.5h", 5400], ["30s", 30]];
for (const [text, seconds] of TIMES) test(`${text} is ${seconds} s`, () => assert.equal(drafts.seconds(text), seconds));
for (const text of ["2", "h", "2h1d", "x", "-2h"]) test(`"${text}" is no time`, () => assert.throws(() => drafts.seconds(text), /expected a time/));

test("only filled fields are sent", () => {
  assert.deepEqual(drafts.defaults(told({})), { gpus: 1 });
  const all = told({ gpus: "0", cwd: " /x ", like: "12", env: "A=1\n\nB=x=y", after: "7", priority: "10", time: "2h" });
  assert.deepEqual(drafts.defaults(all), { gpus: 0, cwd: "/x", environ_of: 12, env: { A: "1", B: "x=y" }, after: [{ select: "7" }], priority: 10, time_limit_s: 7200 });
  const rare = told({ vram: "18G", retries: "2", tags: "paper, old", gpuIds: "0 2" });
  assert.deepEqual(drafts.defaults(rare), { gpus: 1, vram: 18 * 1024 ** 3, retries: 2, tags: ["paper", "old"], gpu_ids: ["0", "2"] });
  assert.throws(() => drafts.defaults(told({ vram: "18" })), /such as 18G/);
  assert.throws(() => drafts.defaults(told({ retries: "-1" })), /got "-1"/);
  assert.throws(() => drafts.defaults(told({ gpus: "two" })), /got "two"/);
  assert.throws(() => drafts.defaults(told({ env: "A" })), /NAME=VALUE/);
});

test("an environment is shown with its job, what was active, and its folder", () => {
  const one = { job: 12, name: "train.py", cwd: "/p", activated: "torch", submitted_at: "" };
  assert.equal(drafts.environmentLabel(one), "like job 12 · train.py · torch · /p");
  assert.equal(drafts.environmentLabel({ ...one, activated: null }), "like job 12 · train.py · /p");
});

test("a sweep is the product of its values, the last one varies fastest", () => {
  const sweep = told({ command: "t --lr {lr} --o {o} --n {index}", values: { lr: "0.1, 1e-3", o: "sgd,a b" } });
  assert.equal(drafts.countOf(sweep), 4);
  assert.deepEqual(drafts.points(sweep).map((one) => one.command), ["t --lr 0.1 --o sgd --n 0", "t --lr 0.1 --o 'a b' --n 1", "t --lr 1e-3 --o sgd --n 2", "t --lr 1e-3 --o 'a b' --n 3"]);
  assert.deepEqual(drafts.points(sweep)[3].params, { lr: 0.001, o: "a b" });
  assert.equal(drafts.countOf(told({ command: "{a} {b}", values: { a: "1" } })), 0);
});

test("a value stays one shell word", () => {
  assert.equal(drafts.filled("echo {x}", { x: "$(rm -rf /); 'q'" }, 0), "echo '$(rm -rf /); '\\''q'\\'''");
  assert.equal(drafts.filled('echo "{x}"', { x: "a-b" }, 0), 'echo "a-b"');
  assert.throws(() => drafts.filled('echo "{x}"', { x: "a b" }, 0), /remove the quotes/);
  assert.equal(drafts.filled("echo \\\" {x}", { x: "a b" }, 0), "echo \\\" 'a b'");
  assert.equal(drafts.filled("{{x}} {x}", { x: "1" }, 0), "{x} 1");
});

test("the first commands of a sweep are shown, without making all of them", () => {
  const values = { x: Array.from({ length: 5000 }, (_, i) => i).join(","), y: "a,b" };
  assert.deepEqual(drafts.firstCommands(told({ command: "{x} {y}", values })), ["0 a", "0 b", "1 a"]);
  assert.deepEqual(drafts.firstCommands(told({ command: "{x}" })), []);
});

test("too many runs are refused", () => {
  const values = { x: Array.from({ length: 2001 }, (_, i) => i).join(",") };
  assert.throws(() => drafts.points(told({ command: "{x}", values })), /dibs sweep/);
});

test("a preset is sent by its name, and shown with its number of GPUs", () => {
  const preset = { name: "big", options: "--gpus=4", fields: { gpus: 4 }, problem: null };
  const told = drafts.withPreset({ ...drafts.EMPTY, command: "true" }, preset);
  assert.deepEqual([told.preset, told.gpus], ["big", "4"]);
  assert.deepEqual(drafts.defaults(told), { preset: "big", gpus: 4 });
  assert.equal(drafts.line(told), "dibs add --preset big -g 4 -- true");
  assert.equal(drafts.withPreset(told, undefined).preset, "");
  assert.equal(drafts.withPreset(told, { ...preset, fields: { gpu_ids: ["0", "2"] } }).gpus, "2");
});

test("a reservation is asked for by its moment and seconds, or refused in words", () => {
  const told = { gpus: "2", gpuIds: "", from: "2026-11-20T18:00", lasts: "1h30m", every: "week", name: " course " };
  assert.deepEqual(reservationText.request(told), { gpus: 2, from: new Date("2026-11-20T18:00").toISOString(), for_s: 5400, every: "week", name: "course" });
  assert.deepEqual(reservationText.request({ ...told, gpuIds: "0, 3" }).gpu_ids, ["0", "3"]);
  assert.throws(() => reservationText.request({ ...told, lasts: "soon" }), /Lasts expected a time/);
  assert.throws(() => reservationText.request({ ...told, from: "" }), /From expected a date/);
  assert.throws(() => reservationText.request({ ...told, gpus: "0" }), /GPUs expected a whole number/);
  assert.equal(reservationText.nextHour(new Date("2026-12-31T23:20:10")), "2027-01-01T00:00");
});
