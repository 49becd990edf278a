// Requests to the service.

import { to } from "./address.js";

/** The API token in use, empty if there is none. `token.js` sets it. */
export const session = { token: "" };

/** A response with an error status, with the service's message and code, or one whose body is not JSON. */
export class Refused extends Error {
  constructor(status, message, code = "", told = {}) {
    super(message);
    this.status = status;
    this.code = code;
    /** The whole error, which may have further members, such as the cursor of `query_too_expensive`. */
    this.told = told;
  }
}

/** A request that needs a token was not sent, because there is none. */
export class NoToken extends Error {}

/** The service did not answer. */
export class Unreachable extends Error {}

/** A response to a request of a page that has been left, or whose token has been replaced. It is of no interest. */
export class Stale extends Error {}

/** Paths of routes that need a token. */
const OWNED = /^rest\/(events|txs|contracts|retroshade|webhooks)(\/|$)/;

async function send(path, { method, body, signal, timeout, token: checked }) {
  const isOwned = OWNED.test(path);
  const token = checked ?? session.token;
  if (isOwned && token === "") throw new NoToken();
  const headers = isOwned ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const signals = [signal, timeout === undefined ? undefined : AbortSignal.timeout(timeout)].filter(Boolean);
  try {
    const answer = await fetch(to(path), {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signals.length === 0 ? undefined : AbortSignal.any(signals),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
    return { answer, isStale: () => signal?.aborted || (isOwned && checked === undefined && token !== session.token) };
  } catch (error) {
    throw signal?.aborted ? new Stale() : new Unreachable(error.message);
  }
}

function refusal(answer, text) {
  let told = {};
  try {
    told = JSON.parse(text);
  } catch {
    // A proxy may answer with something else.
  }
  return new Refused(answer.status, told.error || `the service answered with status ${answer.status}`, told.code, told);
}

/**
 * Sends a request and returns the parsed JSON body. With `body`, the request is a POST unless `method` says otherwise.
 * The token is added where the route needs one: the one in use, or `token`, which is checked. Throws one of the errors
 * above.
 */
export async function ask(path, options = {}) {
  const { answer, isStale } = await send(path, options);
  let text;
  try {
    text = await answer.text();
  } catch (error) {
    throw isStale() ? new Stale() : new Unreachable(error.message);
  }
  if (isStale()) throw new Stale();
  if (!answer.ok) throw refusal(answer, text);
  try {
    return JSON.parse(text);
  } catch {
    throw new Refused(answer.status, `the answer (status ${answer.status}) is not JSON`);
  }
}

/**
 * Like `ask`, for a page of a list: a search that ended at the limits of one request goes on where it ended, until it
 * finds something or the end. `searched` gets the position that it has reached.
 */
export async function askOn(path, { searched = () => {}, ...options } = {}) {
  for (;;) {
    try {
      return await ask(path, options);
    } catch (error) {
      const cursor = error instanceof Refused && error.code === "query_too_expensive" ? error.told.cursor : undefined;
      if (cursor === undefined) throw error;
      searched(cursor);
      path = `${path.replace(/&cursor=[^&]*/, "")}&cursor=${cursor}`;
    }
  }
}

/** Like `ask`, for an answer of another format. Returns a `Blob`. */
export async function askFile(path, options = {}) {
  const { answer, isStale } = await send(path, options);
  if (!answer.ok) throw refusal(answer, await answer.text());
  const blob = await answer.blob();
  if (isStale()) throw new Stale();
  return blob;
}

/** Like `ask`, for an answer that arrives in pieces. Returns the response itself. */
export async function askStream(path, options = {}) {
  const { answer } = await send(path, options);
  if (!answer.ok) throw refusal(answer, await answer.text());
  return answer;
}

/** Waits before a request is sent again. */
export const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

/** An answer that is shared serves all that ask within so many milliseconds. */
const SHARED = 1000;

/** Returns a function that sends one request for all that want its answer at about the same time. */
export function shared(request) {
  let asked = -Infinity;
  let answer = null;
  return () => {
    if (performance.now() - asked > SHARED) [asked, answer] = [performance.now(), request()];
    return answer;
  };
}
