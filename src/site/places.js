// Connections that all tabs of this site share. Over HTTP/1.1 a browser opens six to one host; requests beyond them wait
// in the browser, and a page whose requests wait looks as if the service did not answer. So what holds a connection
// for long takes one of a few places, and the others are left for short requests.

import { Stale } from "./api.js";

/** Places by what takes them: streams of events, and statements and files. */
const PLACES = { stream: 2, long: 2 };

const nameOf = (kind, place) => `orrery-${kind}-${place}`;

/** Returns an index of a place, so that those who wait are spread over all. */
const anyOf = (kind) => Math.floor(Math.random() * PLACES[kind]);

/**
 * Calls `work` while it holds a place, and returns true; returns false if all are taken. Without locks, which browsers
 * have only for addresses with TLS and for this machine, it cannot be told how many are.
 */
export async function inFreePlace(kind, work) {
  if (navigator.locks === undefined) return false;
  for (let place = 0; place < PLACES[kind]; place += 1) {
    const isDone = await navigator.locks.request(nameOf(kind, place), { ifAvailable: true }, async (lock) => {
      if (lock === null) return false;
      await work();
      return true;
    });
    if (isDone) return true;
  }
  return false;
}

/** Calls `work` once it has a place, unless `signal` is aborted before; returns what it returns. */
export async function inPlace(kind, signal, work) {
  if (navigator.locks === undefined) return work();
  try {
    return await navigator.locks.request(nameOf(kind, anyOf(kind)), { signal }, work);
  } catch (error) {
    throw signal.aborted ? new Stale() : error;
  }
}
