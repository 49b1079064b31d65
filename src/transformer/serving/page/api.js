// Requests to the server. Addresses are relative, so that the page works under the path of a reverse proxy.

import { read } from "./store.js";

const RETRY_SECONDS = 5;
const MAX_RETRY_SECONDS = 60;

export class RequestError extends Error {
  // `retryAfter` is the number of seconds after which the same request may succeed; null if it will not.
  constructor(message, { needsKey = false, retryAfter = null } = {}) {
    super(message);
    this.needsKey = needsKey;
    this.retryAfter = retryAfter;
  }
}

export const getLanguages = () => request("languages");
export const getSettings = () => request("frontend/settings");

export const translate = (fields, signal) => post("translate", { ...fields, format: "text" }, signal);

// Returns the languages that a text may be in, the likeliest one first.
export const detect = (text, signal) => post("detect", { q: text }, signal);

// Sends a document, and returns its handle, which the functions below take.
export function sendDocument(fields, signal) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) if (value) form.append(name, value);
  return request("v2/document", { method: "POST", body: form, signal });
}

export const documentState = (handle, signal) => post(documentPath(handle), keyOf(handle), signal);

// Returns the translated document as a blob; the server deletes it.
export const fetchDocument = (handle, signal) =>
  post(`${documentPath(handle)}/result`, keyOf(handle), signal, (response) => response.blob());

// Cancels the translation of a document, even while the page is being closed.
export const deleteDocument = (handle) =>
  request(`${documentPath(handle)}?${new URLSearchParams(keyOf(handle))}`, { method: "DELETE", keepalive: true },
    (response) => response.text()).catch(() => {});

const documentPath = (handle) => `v2/document/${handle.document_id}`;
const keyOf = (handle) => ({ document_key: handle.document_key });

function post(path, fields, signal, readAnswer) {
  const headers = { "Content-Type": "application/json" };
  return request(path, { method: "POST", headers, body: JSON.stringify(fields), signal }, readAnswer);
}

async function request(path, { headers = {}, ...options } = {}, readAnswer = (response) => response.json()) {
  const key = read("key");
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...headers, ...(key && { "X-API-Key": key }) } });
    if (response.ok) return await readAnswer(response);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const message = response ? "The server's answer cannot be read." : "The server cannot be reached.";
    throw new RequestError(message, { retryAfter: RETRY_SECONDS });
  }
  throw await errorOf(response);
}

async function errorOf(response) {
  const header = Number(response.headers.get("Retry-After") ?? NaN);
  const retryAfter = Math.min(header >= 0 ? Math.max(header, 1) : RETRY_SECONDS, MAX_RETRY_SECONDS);
  const body = await response.json().catch(() => null);
  const message = body?.error ?? body?.message;
  const reason = typeof message === "string" ? message : `The server answered with status ${response.status}.`;
  switch (response.status) {
    case 401:
    case 403:
      return new RequestError(
        read("key") ? "The server does not accept the API key." : "This server needs an API key.", { needsKey: true });
    case 429:
      return new RequestError("There are too many requests.", { retryAfter });
    case 502:
    case 503:
      return new RequestError("The server is not ready.", { retryAfter });
    case 504:
      return new RequestError("The translation took too long.");
    case 500:
      return new RequestError("The server failed to translate this text.");
    default:
      return new RequestError(reason);
  }
}
