// Events as they are stored, as an open stream (server-sent events, html.spec.whatwg.org, section 9.2).

import { Refused, Stale, askStream, pause } from "./api.js";

/** Milliseconds before a stream that ended is opened again. */
const RETRY = 2000;
/** How often events are handed over, in milliseconds, and how many at a time: the newest ones. */
const EVERY = 500;
const MOST = 200;

/**
 * Follows events after the id `last` until `signal` is aborted, through interruptions. `conditions` are parameters of
 * the stream. `take` gets the newest of those that arrived, the newest first, and how many were left out.
 * Throws when the service refuses the stream.
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
      await once(conditions, last, signal, add);
      await pause(RETRY);
    }
  } finally {
    clearInterval(timer);
  }
}

/** Reads one stream to its end. Failures that may pass end it, too. */
async function once(conditions, last, signal, add) {
  const query = new URLSearchParams({ ...conditions, decoded: "true" });
  if (last !== null) query.set("last_event_id", last);
  try {
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
  } catch (error) {
    if (error instanceof Stale || signal.aborted) return;
    if (error instanceof Refused && ![429, 503].includes(error.status)) throw error;
  }
}
