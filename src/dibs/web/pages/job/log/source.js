// The log of an attempt over HTTP, as `Log` wants it: its end, ranges of bytes, and where lines begin.
import * as api from "../../../core/api.js";

/** @typedef {{attempt: string, stream: string | null}} Which stream: "stderr", or null for the output */

/**
 * @param {number} id of the job
 * @param {Which} which
 * @param {AbortSignal} signal
 * @returns {import("./log-lines.js").Source}
 */
export function source(id, which, signal) {
  const path = `/v1/jobs/${id}/log`;
  return {
    async tail(lines) {
      const answer = await api.request("GET", path, undefined, { query: { ...which, tail: lines }, signal });
      return { bytes: new Uint8Array(await answer.arrayBuffer()), from: Number(answer.headers.get("Dibs-Log-From") ?? 0) };
    },
    async read(from, to, take) {
      // The previous byte is requested too: then the range is never empty, and "nothing new" is no error.
      const headers = from > 0 ? { Range: `bytes=${from - 1}-${to === null ? "" : to - 1}` } : undefined;
      const answer = await api.request("GET", path, undefined, { query: which, headers, signal });
      const size = Number(answer.headers.get("Dibs-Log-Size") ?? 0);
      await hand(answer, from > 0 ? 1 : 0, to === null ? Infinity : to - from, take);
      return { size };
    },
    index: (from, line) => api.get(`${path}/lines`, { query: { ...which, from, line }, signal }),
  };
}

/**
 * Pass on the bytes of an answer, without the first few and up to a maximum.
 * @param {Response} answer @param {number} skip @param {number} most @param {(bytes: Uint8Array) => void} take
 */
async function hand(answer, skip, most, take) {
  const reader = answer.body?.getReader();
  let left = most;
  for (let skipping = skip; reader && left > 0; ) {
    const { done, value } = await reader.read();
    if (done) return;
    const part = value.subarray(skipping, skipping + left);
    skipping = Math.max(0, skipping - value.length);
    left -= part.length;
    if (part.length) take(part);
  }
  await reader?.cancel();
}

/** Bytes up to which a file is saved through memory. */
const SMALL = 64 * 1024 * 1024;

/**
 * Save the whole log, whatever its size.
 * @param {number} id @param {Which} which
 */
export async function save(id, which) {
  const name = `job-${id}-${which.attempt}.${which.stream ?? "log"}.txt`;
  const path = `/v1/jobs/${id}/log`;
  // The browser asks where to save before anything is loaded, so that the answer can go there directly.
  const picker = /** @type {any} */ (window).showSaveFilePicker;
  const head = await api.request("GET", path, undefined, { query: { ...which, tail: 1 } });
  const isBig = Number(head.headers.get("Dibs-Log-Size") ?? 0) > SMALL;
  const file = isBig && picker ? await picker({ suggestedName: name }) : null;
  const answer = await api.request("GET", path, undefined, { query: { ...which, download: 1 } });
  if (file) {
    await answer.body?.pipeTo(await file.createWritable());
    return;
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
