// The state of the service in the head of every page, and a notice while it does not answer or no longer accepts the
// token.

import { Refused, Unreachable, ask, session } from "./api.js";
import { at, make, put } from "./dom.js";
import { time } from "./format.js";
import { setState } from "./title.js";
import { needsToken, onToken } from "./token.js";

/** How often the state is asked, and how long an answer may take, in milliseconds: together less than five seconds. */
const EVERY = 2500;
const PATIENCE = 2000;
/** How often the token is checked, in milliseconds. */
const TOKEN_EVERY = 15000;
/** Age of the latest ledger, in seconds, from which on it is told: the source may have ended long ago. */
const OLD_SECONDS = 3600;

const listeners = new Set();
let network = "";
let answered = Date.now();

/** The last health record; null before the first one. */
export let latest = null;

let begun;
/** Ends when the first record has been read, or could not be. */
export const beginning = new Promise((resolve) => { begun = resolve; });

/**
 * Calls `listener` with every health record until the signal is aborted; at once with the last one. Its second argument
 * is false when the service does not answer, and the record is the one before that.
 */
export function onHealth(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener));
  if (latest !== null) listener(latest, at("outage").hidden);
}

/** Calls `work` once when the service answers again, unless the signal is aborted before. */
export function whenAnswering(work, signal) {
  const once = (_, isAnswering) => {
    if (!isAnswering) return;
    listeners.delete(once);
    work();
  };
  listeners.add(once);
  signal.addEventListener("abort", () => listeners.delete(once));
}

/** Describes a health record in one sentence. */
export function sentence({ service, components, lag_ledgers: lag, lag_seconds: age }) {
  const ailing = Object.entries(components ?? {}).filter(([, { status }]) => status !== "up").map(([name]) => name);
  if (service !== "up") return ailing.length === 0 ? "Something needs attention." : `Needs attention: ${ailing.join(", ")}.`;
  if (lag === undefined) return "Everything works.";
  if (lag > 1) return `Everything works; ${lag} ledgers behind the network.`;
  return age >= OLD_SECONDS ? `Everything works; the source has nothing newer than ${Math.floor(age / 3600)} h ago.`
    : "Everything works, and nothing is behind.";
}

function badge(kind, word, text) {
  const place = at("badge");
  place.className = `state ${kind}`;
  put(place, make("strong", "", word), " ", make("span", "", text));
}

function show(record) {
  answered = Date.now();
  latest = record;
  network = record.network === "custom" ? record.network_passphrase : record.network;
  at("network").textContent = network;
  at("version").textContent = record.version;
  badge(record.service === "up" ? "up" : "down", record.service, sentence(record));
  setState(record.service === "up" ? "" : "▼ ", network);
  const notice = at("warning");
  notice.textContent = record.warning ?? "";
  notice.hidden = record.warning === undefined;
  at("outage").hidden = true;
  for (const listener of listeners) listener(record, true);
}

function unknown(error) {
  badge("unknown", "unknown", "The service does not answer.");
  setState("? ", network);
  const notice = at("outage");
  if (notice.hidden) {
    const why = error instanceof Unreachable ? "The service does not answer" : `The service cannot tell its state (${error.message})`;
    put(notice, why, "; the last answer came at ", time(answered), ". What is shown is from before, and goes on when the service answers again.");
  }
  notice.hidden = false;
  if (latest !== null) for (const listener of listeners) listener(latest, false);
}

async function round() {
  if (!document.hidden) {
    try {
      show(await ask("rest/health", { timeout: PATIENCE }));
    } catch (error) {
      unknown(error);
    }
  }
  begun();
  setTimeout(round, EVERY);
}

/** Whether the notice tells that the token in use is refused. The notice tells other things, too. */
let isRefused = false;

/** Tells in the head of the page when the token in use is no longer accepted, whatever page is open. */
async function checkToken() {
  const place = at("refused");
  if (session.token !== "" && !document.hidden) {
    try {
      await ask("rest/events/by-ledger?limit=1");
      if (isRefused) place.hidden = true;
      isRefused = false;
    } catch (error) {
      if (error instanceof Refused && error.status === 401 && !isRefused) {
        put(place, needsToken(`The token is no longer accepted: ${error.message}.`));
        place.hidden = false;
        isRefused = true;
      }
    }
  }
  setTimeout(checkToken, TOKEN_EVERY);
}

export function begin() {
  onToken(() => {
    at("refused").hidden = true;
    isRefused = false;
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) answered = Math.max(answered, Date.now() - EVERY); });
  setTimeout(checkToken, TOKEN_EVERY);
  round();
}
