// The state of the service in the head of every page, and notices: that it does not answer, or no longer accepts the
// token.

import { Refused, Unreachable, ask, session } from "./api.js";
import { at, having, make, put } from "./dom.js";
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

/** Has an event `asked` for each time that the state was asked, and `answered` for each that the service answered. */
const states = new EventTarget();
let network = "";
let answered = Date.now();

/** The last health record; null before the first one. */
export let latest = null;

/** Ends when the first record has been read, or could not be. */
export let beginning;

/**
 * Calls `listener` with every health record until the signal is aborted; at once with the last one. Its second argument
 * is false when the service does not answer, and the record is the one before that.
 */
export function onHealth(listener, signal) {
  const tell = () => { if (latest !== null) listener(latest, at("outage").hidden); };
  states.addEventListener("asked", tell, { signal });
  tell();
}

/** Calls `work` once when the service answers again, unless the signal is aborted before. */
export const whenAnswering = (work, signal) => states.addEventListener("answered", work, { signal, once: true });

/** Shows these nodes as the notice with this id, above the page; without any, hides it. */
export function notice(id, ...told) {
  put(at(id), ...told);
  at(id).hidden = told.length === 0;
}

/** Describes a health record in one sentence. */
export function sentence({ service, components, lag_ledgers: lag, lag_seconds: age }) {
  const ailing = Object.entries(components ?? {}).filter(([, { status }]) => status !== "up").map(([name]) => name);
  if (service !== "up") return `Needs attention: ${ailing.join(", ") || "something"}.`;
  if (lag === undefined) return "Everything works.";
  if (lag > 1) return `Everything works; ${lag} ledgers behind the network.`;
  return age >= OLD_SECONDS ? `Everything works; the source has nothing newer than ${Math.floor(age / 3600)} h ago.`
    : "Everything works, and nothing is behind.";
}

function head(mark, kind, word, text) {
  put(having(at("badge"), { class: `state ${kind}` }), make("strong", "", word), " ", make("span", "", text));
  setState(mark, network);
}

function show(record) {
  answered = Date.now();
  latest = record;
  network = record.network === "custom" ? record.network_passphrase : record.network;
  at("network").textContent = network;
  at("version").textContent = record.version;
  if (record.service === "up") head("", "up", "up", sentence(record));
  else head("▼ ", "down", record.service, sentence(record));
  notice("warning", ...record.warning === undefined ? [] : [record.warning]);
  notice("outage");
  states.dispatchEvent(new Event("answered"));
}

function unknown(error) {
  head("? ", "unknown", "unknown", "The service does not answer.");
  if (!at("outage").hidden) return;
  const what = error instanceof Unreachable ? "The service does not answer"
    : `The service cannot tell its state (${error.message})`;
  notice("outage", what, "; the last answer came at ", time(answered),
    ". What is shown is from before, and goes on when the service answers again.");
}

async function check() {
  if (document.hidden && latest !== null) return;
  await ask("rest/health", { timeout: PATIENCE }).then(show).catch(unknown);
  states.dispatchEvent(new Event("asked"));
}

/** Whether it is told that the token in use is refused. */
let isRefused = false;

/** Tells in the head of the page when the token in use is no longer accepted, whatever page is open. */
async function checkToken() {
  if (session.token === "" || document.hidden) return;
  try {
    await ask("rest/events/by-ledger?limit=1", { timeout: TOKEN_EVERY });
    if (isRefused) notice("refused");
    isRefused = false;
  } catch (error) {
    if (!(error instanceof Refused && error.status === 401) || isRefused) return;
    notice("refused", needsToken(`The token is no longer accepted: ${error.message}.`));
    isRefused = true;
  }
}

/** Begins to ask for the state, and to check the token. */
export function begin() {
  onToken(() => {
    notice("refused");
    isRefused = false;
  });
  beginning = check();
  setInterval(check, EVERY);
  setInterval(checkToken, TOKEN_EVERY);
}
