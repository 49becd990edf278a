// The event explorer: turns the search fields into a request, and shows events with their names, and with decoded topics
// and data.

import { Stale, ask, at, complain, make, session, short } from "./common.js";
import { addressValue, decoded, symbol } from "./scval.js";

const PAGE = 10;
const TOPICS = 10;

/** Path of the request for the next page of older events; null if there is none. */
let next = null;

/**
 * Returns the path of the request for these search fields, and whether its response is paged. Throws if the fields are
 * invalid.
 */
function question(place, topic) {
  if (/^C[A-Z2-7]{55}$/.test(place)) {
    const value = topic === "" ? null : symbol(topic) ?? addressValue(topic) ?? topic;
    const filter = value === null ? "" : `&topics=${encodeURIComponent(value)}`;
    return [`rest/events/by-contract/${place}?limit=${PAGE}&decoded=true${filter}`, true];
  }
  if (topic !== "") throw new Error("A topic can only be searched in the events of a contract: also give its address (C…).");
  if (/^(0x)?[0-9a-fA-F]{64}$/.test(place)) return [`rest/events/by-tx/${place}?decoded=true`, false];
  if (/^[0-9]+$/.test(place)) return [`rest/events/by-ledger?from=${place}&to=${place}&limit=${PAGE}&decoded=true`, true];
  if (place === "") return [`rest/events/by-ledger?limit=${PAGE}&decoded=true`, true];
  throw new Error("This is not a contract (C…), a transaction hash (64 hex digits) or a ledger (a number).");
}

function link(text, find) {
  const button = make("button", "link", text);
  button.type = "button";
  button.addEventListener("click", () => {
    at("event-place").value = find;
    at("event-topic").value = "";
    search();
  });
  return button;
}

function topicsOf(event) {
  if (event.topics) return event.topics;
  return Array.from({ length: TOPICS }, (_, index) => event[`topic${index + 1}`]).filter((topic) => topic !== null);
}

function shown(event) {
  const head = make("div", "head", make("span", "", event.ledger_closed_at),
    link(`ledger ${event.ledger}`, String(event.ledger)), link(short(event.tx), event.tx), make("span", "", `id ${event.id}`));
  if (event.contract_id !== "") head.append(link(short(event.contract_id), event.contract_id));
  if (event.type !== "contract") head.append(make("span", "", event.type));
  if (event.decoded?.name) head.append(make("strong", "", event.decoded.name));
  const topics = topicsOf(event).map((topic) => make("span", "mono", decoded(topic)));
  const parameters = event.decoded?.params ? [make("pre", "mono", JSON.stringify(event.decoded.params))] : [];
  return make("div", "event", head, make("div", "topics", ...topics), ...parameters, make("pre", "mono", decoded(event.data)));
}

async function load(path, isPaged, isFirst) {
  const button = at("event-find");
  button.disabled = true;
  at("event-older").disabled = true;
  try {
    const events = await ask(path, { withToken: true });
    const rows = events.map(shown);
    if (isFirst) at("events").replaceChildren(...rows);
    else at("events").append(...rows);
    const count = at("events").childElementCount;
    at("events-said").textContent = count === 0 ? "There are no such events." : events.length === 0 ? `These ${count} are all there are.` : "";
    const older = path.replace(/&cursor=[0-9]+$/, "");
    next = isPaged && events.length > 0 ? `${older}&cursor=${events.at(-1).id}` : null;
    at("event-older").disabled = next === null;
  } catch (error) {
    complain(at("events-said"), error);
    if (isFirst && !(error instanceof Stale)) at("events").replaceChildren();
  } finally {
    button.disabled = false;
  }
}

export function search() {
  if (session.token === "") {
    at("events-said").textContent = "Needs a token.";
    return;
  }
  try {
    const [path, isPaged] = question(at("event-place").value.trim(), at("event-topic").value.trim());
    load(path, isPaged, true);
  } catch (error) {
    at("events-said").textContent = error.message;
  }
}

export function begin() {
  at("event-find").addEventListener("click", search);
  at("event-older").addEventListener("click", () => next && load(next, true, false));
  for (const id of ["event-place", "event-topic"]) {
    at(id).addEventListener("keydown", (event) => event.key === "Enter" && search());
  }
}

/** Removes the events that were requested with the previous token. */
export function clear() {
  next = null;
  at("event-older").disabled = true;
  at("events").replaceChildren();
  at("events-said").textContent = "Needs a token.";
}
