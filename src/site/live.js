// New events at the top of a list, as they are stored.

import { askPatiently } from "./api.js";
import { button, having, make, put } from "./dom.js";
import { count } from "./format.js";
import { sentence } from "./problem.js";
import { follow } from "./stream.js";

/** Most events that wait while the reader is in the list. */
const MOST = 2000;
/** How often it is looked whether the reader still is, in milliseconds. */
const EVERY = 500;
/** How often it is said aloud how many events are new, in milliseconds. */
const SAY_EVERY = 10000;

/** Whether the reader is in the list: further down, at one of its links, or pointing at a row. */
function isReadIn({ scroller, spacer, kept }) {
  const isPointedAt = matchMedia("(hover: hover)").matches && spacer.matches(":hover");
  return kept !== undefined || scroller.scrollTop > 0 || spacer.contains(document.activeElement) || isPointedAt;
}

/**
 * Returns the id after which events are to be followed. A list without events is read again after that id is known,
 * because an event may have been stored since.
 */
async function lastOf(rows, signal) {
  if (rows.items.length === 0) {
    const [newest] = await askPatiently("rest/events/by-ledger?limit=1", { signal });
    rows.restart([]);
    await rows.load();
    return rows.items[0]?.id ?? newest?.id ?? 0;
  }
  return rows.items[0].id;
}

/**
 * Puts events that fulfil these conditions at the top of a list whose first page is read, until `signal` is aborted.
 * While the reader is in the list they wait, and a button in `place` says how many. `see` gets the newest one each time.
 */
export function live(rows, conditions, place, signal, see = () => {}) {
  let held = [];
  let left = 0;
  let unsaid = 0;
  const aloud = having(make("p", "offscreen"), { role: "status" });
  rows.element.append(aloud);
  const say = () => {
    if (unsaid > 0) aloud.textContent = count(unsaid, "new event");
    unsaid = 0;
  };
  const said = make("span", "note", "as they are stored");
  const release = () => {
    // Those that were left out, or stored while nothing was followed, are between the new events and those of the list.
    if (left > 0 || rows.items.length === 0) rows.restart(held);
    else rows.prepend(held);
    [held, left] = [[], 0];
    put(place, said);
  };
  const more = button("", "quiet small", () => {
    rows.scroller.scrollTop = 0;
    release();
    rows.scroller.focus({ preventScroll: true });
  });
  const round = () => {
    if (held.length === 0) return;
    if (!isReadIn(rows)) return release();
    more.textContent = `Show ${count(held.length + left, "newer event")}`;
    if (!place.contains(more)) put(place, more);
  };
  const take = (events, leftOut) => {
    held.unshift(...events);
    unsaid += events.length + leftOut;
    if (events.length > 0) see(events[0]);
    left += leftOut + Math.max(0, held.length - MOST);
    held.length = Math.min(held.length, MOST);
    round();
  };
  const timers = [setInterval(round, EVERY), setInterval(say, SAY_EVERY)];
  signal.addEventListener("abort", () => timers.forEach(clearInterval));
  put(place, said);
  lastOf(rows, signal).then((last) => follow(conditions, { last, signal, take }))
    .catch((error) => put(place, make("span", "problem", sentence(error) ?? "")));
}
