// Requests to the daemon and their answers. Every error becomes an `ApiError` with a text for users.
import * as session from "./session.js";

export class ApiError extends Error {
  /** @param {string} message @param {string} hint @param {string} kind @param {number} status 0: no answer at all */
  constructor(message, hint, kind, status) {
    super(message);
    this.name = "ApiError";
    this.hint = hint;
    this.kind = kind;
    this.status = status;
  }
}

/**
 * @typedef {Record<string, string | number | boolean | null | undefined | readonly (string | number)[]>} Query
 * @typedef {{query?: Query, signal?: AbortSignal, headers?: Record<string, string>, keepalive?: boolean}} Options
 */

/**
 * Return an address with its query; null, undefined and "" are left out, a list repeats its parameter.
 * @param {string} path @param {Query} [query]
 */
export function address(path, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") words.append(name, String(one));
    }
  }
  const text = words.toString();
  return text ? `${path}${path.includes("?") ? "&" : "?"}${text}` : path;
}

/**
 * Send a request and return the raw answer; for logs and downloads.
 * @param {string} method @param {string} path @param {unknown} [body] @param {Options} [options]
 * @returns {Promise<Response>}
 */
export async function request(method, path, body, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { ...options.headers };
  const token = session.token();
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(address(path, options.query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: options.signal,
      keepalive: options.keepalive,
      cache: "no-store",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError("The daemon does not answer.", "It may be restarting; see `dibs daemon status`.", "gone", 0);
  }
  if (answer.ok) return answer;
  const error = await asError(answer);
  if (answer.status === 401) session.leave(error.message);
  throw error;
}

/** @param {Response} answer */
async function asError(answer) {
  try {
    const { error } = await answer.json();
    return new ApiError(error.message, error.hint ?? "", error.kind, answer.status);
  } catch {
    return new ApiError(`The daemon answered ${answer.status}.`, "", "unknown", answer.status);
  }
}

/** @param {string} path @param {Options} [options] @returns {Promise<any>} */
export const get = async (path, options) => (await request("GET", path, undefined, options)).json();
/** @param {string} path @param {unknown} body @param {Options} [options] @returns {Promise<any>} */
export const post = async (path, body, options) => (await request("POST", path, body, options)).json();
/** @param {string} path @param {unknown} body @param {Options} [options] @returns {Promise<any>} */
export const patch = async (path, body, options) => (await request("PATCH", path, body, options)).json();

/** Tell whether a request was given up by ourselves, which is nobody's failure. @param {unknown} error */
export const isAborted = (error) => error instanceof DOMException && error.name === "AbortError";

/** Tell whether the daemon did not answer at all, which the top of the page says already. @param {unknown} error */
export const isGone = (error) => error instanceof ApiError && error.status === 0;

/** Tell whether what was asked for does not exist: asking again does not help. @param {unknown} error */
export const isMissing = (error) => error instanceof ApiError && error.status === 404;

/** One line about whatever went wrong. @param {unknown} error */
export function errorText(error) {
  if (error instanceof ApiError) return error.hint ? `${error.message} ${error.hint}` : error.message;
  return error instanceof Error ? error.message : String(error);
}
