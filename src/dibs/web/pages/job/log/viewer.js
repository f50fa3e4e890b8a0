// The viewer of a job's log: follows its end, shows any other part, searches, links to lines.
import { Choice, Problem } from "../../../components/common.js";
import { Icon } from "../../../components/icons.js";
import * as rowWindow from "../../../components/row-window.js";
import * as toasts from "../../../components/toasts.js";
import { useVirtualScroll } from "../../../components/virtual-scroll.js";
import * as api from "../../../core/api.js";
import { count, plural, size } from "../../../core/format.js";
import { useKeys } from "../../../core/keys.js";
import * as router from "../../../core/router.js";
import { useAnswer } from "../../../core/use-answer.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../../vendor/ui.js";
import * as finds from "./finds.js";
import { Line } from "./line.js";
import { useSearch } from "./log-search.js";
import { useLog } from "./log-tail.js";
import { save } from "./source.js";
import { tracebackRows } from "./tracebacks.js";
import * as writeTimes from "./write-times.js";

/** Pixels of a line: as in job.css. */
const ROW = 18;
/** Scroll positions closer than this to the end are the end. */
const NEAR = 4;

/** @param {{job: import("../../../core/types.js").Job}} props */
export function Viewer({ job }) {
  const query = router.query.value;
  // Always by its number: the newest attempt may change meanwhile.
  const which = { attempt: query.get("attempt") ?? String(job.attempt), stream: query.get("stream") };
  const sought = { text: query.get("find") ?? "", isCase: query.has("case"), isRegex: query.has("regex") };
  const isOnly = query.has("only") && sought.text !== "";
  const isWrapped = query.has("wrap");
  const isTimed = query.has("times");
  const isNewest = Number(which.attempt) === job.attempt;
  const isOver = Boolean(job.finished_at) || !isNewest;
  const { log, version, numbered, error } = useLog(job.id, which, isOver);
  // A failed job opens at its traceback, unless the address says otherwise.
  const isAtCause = useRef(["failed", "lost"].includes(job.state) && isNewest && !location.hash && !sought.text);
  const [isFollowing, setFollowing] = useState(finds.linesOf(location.hash) === null);
  /** The number of lines when following stopped. */
  const [pausedAt, setPausedAt] = useState(0);
  const [turn, setTurn] = useState(0);
  const linked = finds.linesOf(router.place.value.hash);
  const scrolled = useRef(0);

  const top = useRef(0);
  const { found, setFound, error: wrong } = useSearch(job.id, which, sought, turn, () => log?.line(Math.floor(top.current))?.start ?? 0);
  const rows = isOnly ? found.matches.length : (log?.count ?? 0);
  // Wrapped lines have any height: then one row of scrolling is one line, and the last may be at the top.
  const spare = isWrapped ? 1 : 0;
  const scrolling = useVirtualScroll(rows, ROW);
  const { box, list } = scrolling;
  const extended = { ...list, count: rows + spare * Math.max(0, Math.floor(rowWindow.rowsSeen(list)) - 1) };
  const view = isWrapped ? wrappedView(extended, scrolling.top, rows, isFollowing) : scrolling.window;
  top.current = view.first;
  const current = found.matches[found.current];

  const toEnd = () => {
    const far = rowWindow.farthest(extended);
    scrolled.current = far;
    scrolling.scrollTo(far);
  };
  useLayoutEffect(() => {
    if (isFollowing && !isOnly) toEnd();
  }, [version, isFollowing, isOnly, isWrapped, list.viewport, rows]);

  // When lines get their numbers, many rows appear before the visible ones.
  const base = useRef(/** @type {number | null} */ (null));
  useLayoutEffect(() => {
    const now = log?.base ?? null;
    if (base.current === null && now !== null && now > 0 && !isFollowing && !isOnly) scrolling.scrollTo(rowWindow.scrollFor(extended, rowWindow.topRow(extended, scrolling.top) + now));
    base.current = now;
  }, [log?.base ?? null]);

  // The target is kept until all known lines are drawn: the box cannot be scrolled that far before.
  const [target, setTarget] = useState(/** @type {{row: number} | null} */ (null));
  useLayoutEffect(() => {
    if (!target) return;
    const to = isWrapped ? rowWindow.scrollFor(extended, Math.max(0, target.row - 3)) : rowWindow.centre(list, target.row);
    scrolled.current = to;
    scrolling.scrollTo(to);
  }, [target]);
  /** @param {number} row */
  const show = (row) => {
    stop();
    setTarget({ row });
  };
  const stop = () => {
    if (!isFollowing) return;
    setFollowing(false);
    setPausedAt(log?.count ?? 0);
  };
  /** @param {number} offset a byte of the file */
  const showByte = async (offset) => {
    if (!log) return;
    await numbered;
    show(await log.rowAt(offset));
  };

  const onScroll = () => {
    const element = box.current;
    if (!element || isOnly) return;
    const far = rowWindow.farthest(extended);
    // The user scrolled up: growth never reduces the position.
    if (isFollowing && element.scrollTop < scrolled.current - NEAR && element.scrollTop < far - NEAR) {
      const first = isWrapped ? firstSeen(element) : null;
      stop();
      if (first !== null) element.scrollTop = rowWindow.scrollFor(extended, first);
    } else if (!isFollowing && !isOver && !isWrapped && element.scrollTop > scrolled.current && element.scrollTop >= far - NEAR) setFollowing(true);
    scrolled.current = element.scrollTop;
  };

  // A link to a line, and the current match.
  const hash = router.place.value.hash;
  useEffect(() => {
    if (!log || !linked || isOnly) return;
    numbered.then(() => show(linked[0] - 1), () => {});
  }, [log, hash]);
  useEffect(() => {
    if (!current) return;
    if (isOnly) show(found.current);
    else if (current.line !== null && log?.base !== null) show(current.line);
    else void showByte(current.offset);
  }, [current, isOnly]);

  useEffect(() => {
    if (!log || log.traceback === null || !isAtCause.current || !isOver) return;
    isAtCause.current = false;
    void showByte(log.traceback);
  }, [log, version]);

  /** @param {MouseEvent} event @param {number} number */
  const choose = (event, number) => {
    event.preventDefault();
    const fragment = event.shiftKey && linked ? finds.fragmentOf(linked[0], number) : finds.fragmentOf(number);
    // Only change the address: the line is visible.
    history.replaceState(history.state, "", router.place.value.path + router.place.value.search + fragment);
    router.place.value = { ...router.place.value, hash: fragment };
  };
  /** @param {1 | -1} way */
  const step = (way) => setFound((before) => finds.step(before, way));
  const toTraceback = () => (log?.traceback == null ? undefined : void showByte(log.traceback));
  const download = () => void save(job.id, which).catch((problem) => problem.name === "AbortError" || toasts.show(api.errorText(problem), { kind: "bad" }));
  const focusFind = () => document.getElementById("find")?.focus();
  useKeys(
    [
      { keys: "f", does: "Find", group: "Log", run: focusFind },
      { keys: "Ctrl+f", does: "Find in the whole file", group: "Log", run: focusFind },
      { keys: "w", does: "Wrap long lines", group: "Log", run: () => router.setQuery({ wrap: isWrapped ? null : 1 }) },
      { keys: "t", does: "Go to the first traceback", group: "Log", run: toTraceback },
      { keys: "e", does: "Go to the end and follow", group: "Log", run: () => setFollowing(true) },
      { keys: "b", does: "Go to the beginning", group: "Log", run: () => show(0) },
    ],
    [log, version, isWrapped, isFollowing],
  );

  // Nothing to find, to wrap or to download.
  const isEmpty = log !== null && log.count === 0 && !sought.text;
  const fresh = (log?.count ?? 0) - pausedAt;
  const when = useTimes(isTimed, job, which, log);
  const traces = isOnly ? null : tracebackRows(view.first, view.end, (row) => log?.peek(row)?.text);
  const style = isWrapped && isFollowing ? { bottom: "0px", top: "auto", transform: "none", minHeight: `${list.viewport}px` } : { transform: `translateY(${view.top}px)` };
  return html`<div class="log">
    <div class="log-bar">
      ${!isEmpty && html`<${Find} sought=${sought} found=${found} step=${step} isOnly=${isOnly} again=${() => setTurn((n) => n + 1)} />`}
      <${Which} job=${job} which=${which} />
      ${!isEmpty && html`<span class="right">
        ${log?.traceback != null && html`<button type="button" class="small" onClick=${toTraceback}><${Icon} name="flag" />First traceback</button>`}
        <button type="button" class="small" aria-pressed=${isTimed} title="When lines were written. dibs does not see each line being written, so the times are ranges." onClick=${() => router.setQuery({ times: isTimed ? null : 1 })}>Times</button>
        <button type="button" class="small" aria-pressed=${isWrapped} onClick=${() => router.setQuery({ wrap: isWrapped ? null : 1 })}>Wrap</button>
        <button type="button" class="small" onClick=${download}><${Icon} name="download" />Download${log ? ` (${size(log.size)})` : ""}</button>
      </span>`}
    </div>
    <${Problem} error=${wrong ?? (log && api.isGone(error) ? null : error)} />
    <div class=${`log-box${isWrapped ? " is-wrapped" : ""}${isEmpty ? " is-empty" : ""}`} ref=${box} role="region" aria-label="Log" tabindex="0" onScroll=${onScroll} data-lines=${rows}>
      <div class="log-body" style=${{ height: `${rowWindow.height(extended)}px` }}>
        <div class="log-lines" style=${style}>
          ${Array.from({ length: view.end - view.first }, (_, i) => {
            const row = view.first + i;
            const match = isOnly ? found.matches[row] : undefined;
            const number = match ? numberOf(match.line) : log?.base == null ? null : row + 1;
            const line = match ?? log?.line(row);
            return html`<${Line} key=${row} time=${isTimed ? when(match ? match.offset : /** @type {any} */ (line)?.start, match ? null : log?.line(row + 1)?.start) : null} line=${line} number=${number} row=${row} trace=${traces?.get(row)} sought=${sought} choose=${choose}
              isLinked=${linked !== null && number !== null && number >= linked[0] && number <= linked[1]}
              isCurrent=${current !== undefined && (isOnly ? row === found.current : line !== undefined && /** @type {any} */ (line).start === current.offset)} />`;
          })}
        </div>
      </div>
      ${log && rows === 0 && html`<p class="log-empty quiet">${isOnly ? "No line matches." : isOver ? "This attempt has no output." : "No output yet."}</p>`}
    </div>
    <div class="log-foot quiet">
      <span role="status">${isEmpty ? "" : log ? `${plural(log.count, "line")}${log.base === null ? " of the end; counting the rest" : ""}` : "loading"}</span>
      ${!isOnly && !isFollowing && html`<button type="button" class="follow" onClick=${() => setFollowing(true)}>↓ ${isOver ? "end" : "follow"}${fresh > 0 && pausedAt ? ` (${count(fresh)} new)` : ""}</button>`}
      ${isFollowing && !isOver && html`<span>following</span>`}
    </div>
  </div>`;
}

/** Milliseconds between two questions to the daemon, which notes sizes less often. */
const TIMES_EVERY_MS = 30_000;
/**
 * Tell when lines were written: by the sizes that the daemon noted, and more exactly by those that this page saw.
 * @param {boolean} isTimed @param {import("../../../core/types.js").Job} job @param {import("./source.js").Which} which @param {import("./log-lines.js").Log | null} log
 * @returns {(start: number | undefined, end: number | undefined | null) => {text: string, title: string}}
 */
function useTimes(isTimed, job, which, log) {
  const path = `/v1/jobs/${job.id}/log/times?attempt=${which.attempt}${which.stream ? `&stream=${which.stream}` : ""}`;
  /** @type {import("../../../core/use-answer.js").Answer<import("../../../core/types.js").WriteTimes>} */
  const { data } = useAnswer(isTimed ? path : null, { everyMs: job.finished_at ? 0 : TIMES_EVERY_MS });
  const asked = useRef({ data, skew: 0 });
  const seen = log?.seen ?? [];
  const all = useMemo(() => {
    if (!data) return [];
    // Ours by the clock of the machine, on which the others are.
    if (asked.current.data !== data) asked.current = { data, skew: Date.parse(data.now) - Date.now() };
    const { skew } = asked.current;
    return writeTimes.merged(data.marks.map((mark) => ({ at: Date.parse(mark.at), size: mark.size })), seen.map((mark) => ({ ...mark, at: mark.at + skew })));
  }, [data, seen]);
  return (start, end) => {
    if (start === undefined || !data) return { text: "", title: "" };
    const range = writeTimes.rangeOf(all, start, end ?? log?.size ?? start + 1);
    return { text: writeTimes.shortText(range, Date.now()), title: writeTimes.longText(range) };
  };
}

/** @param {number | null} line from 0 */
const numberOf = (line) => (line === null ? null : line + 1);

/**
 * Which lines to draw if they may have any height: from the top one on, or, while following, the last ones.
 * @param {rowWindow.List} list @param {number} scrollTop @param {number} rows @param {boolean} isFollowing
 * @returns {rowWindow.Window}
 */
function wrappedView(list, scrollTop, rows, isFollowing) {
  const seen = Math.ceil(rowWindow.rowsSeen(list)) + 1;
  const first = isFollowing ? Math.max(0, rows - seen) : Math.min(Math.max(0, rows - 1), Math.floor(rowWindow.topRow(list, scrollTop)));
  return { first, end: Math.min(rows, first + seen), top: scrollTop };
}

/** Return the first line that is seen in a box. @param {HTMLElement} box */
function firstSeen(box) {
  const top = box.getBoundingClientRect().top;
  const lines = [.../** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll(".log-line"))];
  const first = lines.find((line) => line.getBoundingClientRect().bottom > top);
  return first ? Number(first.dataset.row) : null;
}

/** The box to find in, with what was found. @param {{sought: import("./log-search.js").Sought, found: finds.Finds, step: (way: 1 | -1) => void, isOnly: boolean, again: () => void}} props */
function Find({ sought, found, step, isOnly, again }) {
  /** @param {InputEvent} event */
  const type = (event) => router.setQuery({ find: /** @type {HTMLInputElement} */ (event.target).value });
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    if (event.key === "Escape") router.setQuery({ find: null });
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (found.next === null && !found.matches.length) again();
    else step(event.shiftKey ? -1 : 1);
  };
  const toggle = (/** @type {string} */ name, /** @type {boolean} */ is) => () => router.setQuery({ [name]: is ? null : 1 });
  return html`<div class="find" role="search">
    <input id="find" type="search" aria-label="Find in the whole log" placeholder="Find" spellcheck=${false} autocomplete="off" value=${sought.text} onInput=${type} onKeyDown=${press} />
    ${sought.text && html`<span class="found" role="status">${finds.label(found)}</span>
      <button type="button" class="small" aria-label="Match before" onClick=${() => step(-1)}>↑</button>
      <button type="button" class="small" aria-label="Next match" onClick=${() => step(1)}>↓</button>
      <button type="button" class="small" aria-pressed=${isOnly} onClick=${toggle("only", isOnly)}>Only matching lines</button>`}
    <button type="button" class="small" aria-pressed=${sought.isCase} aria-label="Match case" title="Match case" onClick=${toggle("case", sought.isCase)}>Aa</button>
    <button type="button" class="small" aria-pressed=${sought.isRegex} aria-label="Regular expression" title="Regular expression" onClick=${toggle("regex", sought.isRegex)}>.*</button>
  </div>`;
}

/** The attempt and the stream. @param {{job: import("../../../core/types.js").Job, which: import("./source.js").Which}} props */
function Which({ job, which }) {
  const attempts = Array.from({ length: job.attempt }, (_, i) => String(i + 1));
  const streams = [{ value: "", text: "output" }, { value: "stderr", text: "stderr" }];
  return html`
    ${job.attempt > 1 && html`<label>Attempt <select value=${which.attempt} onChange=${(/** @type {Event} */ event) => {
      const { value } = /** @type {HTMLSelectElement} */ (event.target);
      router.setQuery({ attempt: Number(value) === job.attempt ? null : value });
    }}>${attempts.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>`}
    ${job.stderr && html`<${Choice} label="Stream" options=${streams} value=${which.stream ?? ""} choose=${(/** @type {string} */ stream) => router.setQuery({ stream })} />`}`;
}
