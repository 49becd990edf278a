// Events as they are stored: as an open stream (server-sent events, html.spec.whatwg.org, section 9.2), or, where as
// many are open as the tabs of this site may have, by asking again and again.

import { Refused, Stale, askOn, askStream, pause } from "./api.js";
import { inFreePlace } from "./places.js";

/** Milliseconds before a stream that ended is opened again, or newer events are asked for. */
const RETRY = 2000;
/** How often events are handed over, in milliseconds, and how many at a time: the newest ones. */
const EVERY = 500;
const MOST = 200;

/** Ends when the window is shown, or the signal is aborted. */
function untilShown(signal) {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true, signal });
    signal.addEventListener("abort", resolve, { once: true });
  });
}

/** Returns a controller that aborts when the window is hidden, or `signal` is aborted. */
function whileShown(signal) {
  const shown = new AbortController();
  const end = () => shown.abort();
  document.addEventListener("visibilitychange", end, { signal: shown.signal });
  signal.addEventListener("abort", end, { signal: shown.signal });
  return shown;
}

/**
 * Follows events after the id `last` until `signal` is aborted, through interruptions. `conditions` are parameters of
 * the stream. `take` gets the newest of those that arrived, the newest first, and how many were left out. A window
 * that is hidden asks for nothing, and goes on where it was when it is shown.
 * Throws when the service refuses the events.
 */
export async function follow(conditions, { last, signal, take }) {
  const waiting = [];
  let left = 0;
  const timer = setInterval(() => {
    if (signal.aborted || waiting.length === 0 || document.hidden) return;
    take(waiting.splice(0).reverse(), left);
    left = 0;
  }, EVERY);
  const add = (event) => {
    last = event.id;
    waiting.push(event);
    if (waiting.length > MOST) {
      waiting.shift();
      left += 1;
    }
  };
  try {
    while (!signal.aborted) {
      await untilShown(signal);
      const shown = whileShown(signal);
      const isStreamed = await inFreePlace("stream", () => once(conditions, last, shown.signal, add));
      if (!isStreamed) await poll(conditions, last, shown.signal, add);
      shown.abort();
      if (!document.hidden) await pause(RETRY);
    }
  } finally {
    clearInterval(timer);
  }
}

/** Calls `work`. Failures that may pass end it. */
async function unlessPassing(signal, work) {
  try {
    await work();
  } catch (error) {
    if (error instanceof Stale || signal.aborted) return;
    if (error instanceof Refused && ![429, 503].includes(error.status)) throw error;
  }
}

/** Reads what has been stored after an event. */
function poll({ contract_id: contract, ...others }, last, signal, add) {
  const route = contract === undefined ? "by-ledger" : `by-contract/${contract}`;
  return unlessPassing(signal, async () => {
    for (let isEnd = false; !isEnd && !signal.aborted;) {
      const query = new URLSearchParams({ ...others, decoded: "true", order: "asc", limit: MOST, cursor: last ?? 0 });
      const page = await askOn(`rest/events/${route}?${query}`, { signal });
      page.forEach(add);
      last = page.at(-1)?.id ?? last;
      isEnd = page.length === 0;
    }
  });
}

/** Reads one stream to its end. */
function once(conditions, last, signal, add) {
  const query = new URLSearchParams({ ...conditions, decoded: "true" });
  if (last !== null) query.set("last_event_id", last);
  return unlessPassing(signal, async () => {
    const answer = await askStream(`rest/events/stream?${query}`, { signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let piece = await reader.read(); !piece.done && !signal.aborted; piece = await reader.read()) {
      text += piece.value;
      const lines = text.split("\n");
      text = lines.pop();
      // A message of another type, such as `gap`, has no event.
      for (const line of lines) if (line.startsWith("data: {\"id\"")) add(JSON.parse(line.slice(6)));
    }
  });
}
