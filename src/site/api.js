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

/** Paths of routes that need a token, and those of them that the service may open to everyone. */
const OWNED = /^rest\/(events|txs|contracts|retroshade|webhooks)(\/|$)/;
const READ = /^rest\/(events|txs|contracts)\//;

/** Whether the service opens them to everyone. */
const isPublic = globalThis.document?.documentElement.hasAttribute("data-public-read") ?? false;

/** Whether events, transactions and contracts can be read: with a token, or where everyone may. */
export const mayRead = () => isPublic || session.token !== "";

/** Sends a request and returns what `read` makes of the response. */
async function send(path, { method, body, signal, timeout, token: checked }, read) {
  const isOwned = OWNED.test(path);
  const token = checked ?? session.token;
  if (isOwned && token === "" && !(isPublic && READ.test(path))) throw new NoToken();
  const isStale = () => signal?.aborted || (isOwned && checked === undefined && token !== session.token);
  const headers = isOwned && token !== "" ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const signals = [signal, timeout && AbortSignal.timeout(timeout)].filter(Boolean);
  try {
    const answer = await fetch(to(path), {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers,
      body: JSON.stringify(body),
      signal: AbortSignal.any(signals),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
    const told = await (answer.ok ? read(answer) : refusal(answer));
    if (isStale()) throw new Stale();
    if (!answer.ok) throw told;
    return told;
  } catch (error) {
    if (isStale()) throw new Stale();
    throw error instanceof Refused ? error : new Unreachable(error.message);
  }
}

/** Parses the body of a response with an error status. A proxy may answer with something else than the service. */
async function refusal(answer) {
  const told = parsed(await answer.text()) ?? {};
  return new Refused(answer.status, told.error || `the service answered with status ${answer.status}`, told.code, told);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Sends a request and returns the parsed JSON body. With `body`, the request is a POST unless `method` says otherwise.
 * The token is added where the route needs one: the one in use, or `token`, which is checked. Throws one of the errors
 * above.
 */
export function ask(path, options = {}) {
  return send(path, options, async (answer) => {
    const told = parsed(await answer.text());
    if (told === undefined) throw new Refused(answer.status, `the answer (status ${answer.status}) is not JSON`);
    return told;
  });
}

/** Like `ask`, for an answer that may have ended at the limits of one request: `answer`, and whether it `isWhole`. */
export const askWhole = (path, options = {}) => send(path, options, async (answer) => ({
  answer: parsed(await answer.text()) ?? [],
  isWhole: !answer.headers.has("X-Result-Truncated"),
}));

/**
 * Like `ask`, for a page of a list: a search that ended at the limits of one request goes on where it ended, until it
 * finds something or the end. `searched` gets the position that it has reached.
 */
export async function askOn(path, { searched = () => {}, ...options } = {}) {
  for (;;) {
    try {
      return await ask(path, options);
    } catch (error) {
      if (error.code !== "query_too_expensive" || error.told.cursor === undefined) throw error;
      searched(error.told.cursor);
      path = `${path.replace(/&cursor=[^&]*/, "")}&cursor=${error.told.cursor}`;
    }
  }
}

/** Attempts at a request that must not fail because the service is busy for a moment, and milliseconds between them. */
const ATTEMPTS = 6;
const PAUSE = 2000;

/** Like `askOn`, for one of many requests: it is sent again when the service is busy or does not answer. */
export async function askPatiently(path, options = {}) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await askOn(path, options);
    } catch (error) {
      const mayPass = error instanceof Unreachable || error instanceof Refused && [429, 503].includes(error.status);
      if (!mayPass || attempt === ATTEMPTS) throw error;
      await pause(PAUSE);
    }
  }
}

/** Like `ask`, for a list of which retention may have removed all, which is an empty list then. */
export const askLeft = (path, options = {}) => ask(path, options).catch((error) => {
  if (error.status === 410) return [];
  throw error;
});

/** Like `ask`, for an answer of another format. Returns a `Blob`. */
export const askFile = (path, options = {}) => send(path, options, (answer) => answer.blob());

/** Like `ask`, for an answer that arrives in pieces. Returns the response itself. */
export const askStream = (path, options = {}) => send(path, options, (answer) => answer);

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
