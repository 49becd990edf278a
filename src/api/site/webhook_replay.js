// Sending again: all events of a range of ledgers, and all deliveries that are dead.

import { Refused, Stale, ask, pause } from "./api.js";
import { ledgerLink, ledgerRanges } from "./address.js";
import { button, field, form, having, input, make, put, submit } from "./dom.js";
import { count, number } from "./format.js";
import { latest } from "./health.js";
import { problem } from "./problem.js";

/** Times that a request is repeated when there are too many, and the milliseconds before each. */
const PATIENCE = 10;
const PAUSE = 1000;

/** Does work of several requests with a bar, and a button that stops it. `work(stopped, progress)` returns what is told at the end. */
async function guided(place, view, work) {
  const stop = new AbortController();
  const bar = having(make("progress"), { "aria-label": "Progress" });
  const words = having(make("p", "note"), { role: "status" });
  put(place, make("div", "row", bar, button("Stop", "quiet", () => stop.abort())), words);
  const progress = (text, part) => {
    words.textContent = text;
    bar.value = part;
  };
  try {
    const signal = AbortSignal.any([view.signal, stop.signal]);
    const told = await work(signal, progress);
    put(place, make("p", "", told));
  } catch (error) {
    if (view.signal.aborted) return;
    const reached = words.textContent;
    put(place, error instanceof Stale ? make("p", "", "Stopped. ", reached) : [problem(error), make("p", "note", reached)]);
  }
}

const number32 = (text) => /^\d{1,10}$/.test(text.trim()) ? Number(text) : null;

async function replay(id, { from, to }, signal, progress) {
  let sent = 0;
  const missing = [];
  for (let next = from; next !== null;) {
    progress(`Ledger ${number(next)} of ${number(from)} to ${number(to)}; ${count(sent, "event")} so far.`, (next - from) / Math.max(1, to - from));
    const answer = await ask(`rest/webhooks/${id}/replay`, { body: { from: next, to }, signal });
    sent += answer.deliveries;
    missing.push(...answer.missing_ledgers);
    next = answer.next !== null && answer.next > next ? answer.next : null;
  }
  return make("span", "", sent === 0 ? "No stored event of these ledgers matches." : `${count(sent, "event")} will be sent.`,
    ...(missing.length === 0 ? [] : [" The events of these ledgers are not stored: ", ledgerRanges(missing), "."]));
}

/** Creates the form that sends the events of a range of ledgers. `done` is called when it ends. */
export function replayForm(view, id, done) {
  const [from, to] = ["from", "to"].map((name) => input({ inputmode: "numeric", name, maxlength: 10 }));
  const place = make("div");
  const known = latest?.oldest_ledger === undefined ? null
    : make("p", "note", "Stored are ledgers ", ledgerLink(latest.oldest_ledger), " to ", ledgerLink(latest.service_latest_ledger), ", apart from gaps.");
  const send = async () => {
    const range = { from: number32(from.value), to: number32(to.value) };
    const wrong = range.from === null ? from : range.to === null ? to : null;
    if (wrong !== null) {
      put(place, make("p", "problem", "Give the numbers of the first and the last ledger."));
      return wrong.focus();
    }
    await guided(place, view, (signal, progress) => replay(id, range, signal, progress));
    return done();
  };
  return make("div", "",
    make("p", "note", "Sends all matching events of these ledgers, also those that have arrived: receivers know them by their id. ",
      "The ledgers may be older than the subscription. Leaving the page stops it."),
    form("row", send, field("From ledger", from), field("To ledger", to), submit("Send the events")), known, place);
}

/** Sends a request again when the service says that there are too many. */
async function patiently(path, options) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask(path, options);
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 429 || tries >= PATIENCE) throw error;
      await pause(PAUSE);
    }
  }
}

async function dead(id, signal, progress) {
  let [sent, cursor] = [0, ""];
  for (;;) {
    let page = [];
    try {
      page = await patiently(`rest/webhooks/${id}/deliveries?status=dead&limit=200${cursor && `&cursor=${cursor}`}`, { signal });
      if (page.length === 0) return `${sent === 1 ? "1 delivery is" : `${number(sent)} deliveries are`} sent again.`;
      cursor = page.at(-1).delivery_id;
    } catch (error) {
      if (!(error instanceof Refused) || !error.told.cursor) throw error;
      ({ cursor } = error.told);
    }
    for (const [index, { delivery_id: delivery, test }] of page.entries()) {
      if (test) continue;
      await patiently(`rest/webhooks/${id}/replay`, { body: { delivery_id: delivery }, signal });
      sent += 1;
      progress(`${count(sent, "event")} so far, the newest first.`, index / page.length);
    }
  }
}

/** Creates the button that sends all dead deliveries again. */
export function deadButton(view, id, done) {
  const place = make("div");
  const again = button("Send all dead ones again", "quiet", async () => {
    await guided(place, view, (signal, progress) => dead(id, signal, progress));
    done();
  });
  return make("div", "", make("div", "row", again), place);
}
