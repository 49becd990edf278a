// The first page: the newest ledgers and events.

import { ask, session } from "../api.js";
import { ledgerLink, link } from "../address.js";
import { button, having, make, put } from "../dom.js";
import { eventRows } from "../event.js";
import { clock, count, number } from "../format.js";
import { onHealth } from "../health.js";
import { sentence } from "../problem.js";
import { steady } from "../steady.js";
import { follow } from "../stream.js";
import { table } from "../table.js";
import { setTitle } from "../title.js";

/** Number of ledgers that are shown. */
const LEDGERS = 15;
/** Most events that wait until the reader is at the top of the list again. */
const MOST_HELD = 2000;
/** How often it is looked whether the reader is there, in milliseconds. */
const EVERY = 500;

async function ledgers(view, body, greeting) {
  const { ledgers: all } = await ask("rest/status", { signal: view.signal });
  const newest = all.slice(-LEDGERS).reverse();
  greeting.hidden = newest.length > 0 && session.token !== "";
  const row = ({ ledger, closed_at: at, transactions, events }) =>
    [ledgerLink(ledger), clock(at), [number(transactions), "number"], [number(events), "number"]];
  steady(body, newest, () => newest.length === 0 ? make("p", "note", "No ledger is stored yet. The first one is shown here when it is.")
    : table(["Ledger", "Closed", ["Transactions", "number"], ["Events", "number"]], newest.map(row), "Newest ledgers"));
}

/** Whether the reader is in the list: further down, at one of its links, or pointing at a row. New rows then wait. */
function isReadIn({ scroller, spacer }) {
  const isPointedAt = matchMedia("(hover: hover)").matches && spacer.matches(":hover");
  return scroller.scrollTop > 0 || spacer.contains(document.activeElement) || isPointedAt;
}

/** Puts new events at the top of the list, unless the reader is in it: then a button says how many wait. */
function live(rows, place, signal) {
  let held = [];
  let left = 0;
  const release = () => {
    const isWhole = left === 0;
    const events = held;
    held = [];
    left = 0;
    // Events that were left out would be missing between those in the list and the new ones.
    if (!isWhole) rows.restart(events);
    else if (events.length > 0) rows.prepend(events);
  };
  const show = () => {
    rows.scroller.scrollTop = 0;
    release();
    rows.scroller.focus({ preventScroll: true });
    tell();
  };
  const more = button("", "quiet small", show);
  const said = make("span", "note", "as they are stored");
  const tell = () => {
    const waiting = held.length + left;
    if (waiting > 0) more.textContent = `Show ${count(waiting, "newer event")}`;
    if ((waiting > 0) !== place.contains(more)) put(place, waiting > 0 ? more : said);
  };
  const take = (events, leftOut) => {
    held.unshift(...events);
    left += leftOut + Math.max(0, held.length - MOST_HELD);
    held.length = Math.min(held.length, MOST_HELD);
    round();
  };
  const round = () => {
    if (!isReadIn(rows)) release();
    tell();
  };
  const timer = setInterval(round, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
  put(place, said);
  follow({}, { last: rows.items[0]?.id ?? 0, signal, take }).catch((error) => { put(place, make("span", "problem", sentence(error) ?? "")); });
}

async function events(view, body, beside) {
  const rows = eventRows({
    label: "Newest events", path: "rest/events/by-ledger", without: ["tx"], signal: view.signal, ask,
    empty: "No event is stored yet. The first one is shown here when it is.",
  });
  await rows.load();
  put(body, rows.element);
  rows.draw();
  live(rows, beside, view.signal);
}

/** What the search finds. */
const FINDS = [
  ["a ledger", "by its number"], ["a transaction", "by its hash, with or without 0x"], ["a contract", "by its address, C…"],
  ["an account", "by its address, G… or M…"], ["a passkey's smart accounts", "by the id of the credential"], ["a table of a program", "by its name"],
];

function welcome() {
  return having(make("section", "home-welcome",
    make("h2", "", "Welcome"),
    make("p", "", "Orrery follows a Stellar network, and stores every event of its contracts and every transaction that calls one. ",
      "The search field above finds:"),
    make("ul", "", FINDS.map(([what, how]) => make("li", "", make("b", "", what), " ", how))),
    make("p", "note", "Ledgers, ", link("status", "the state"), " and ", link("trust", "what is stored and who attests it"),
      " are public. Events, transactions and tables need a token.")), { "aria-label": "Welcome" });
}

/** Says to who has a token what this is, and where to go from here. */
function start() {
  return make("p", "note", "Every event of this network's contracts, and every transaction that calls one. ",
    link("programs", "Programs"), " make tables of them for ", link("sql", "SQL"), "; ", link("webhooks", "webhooks"), " send them on.");
}

export function open(view) {
  view.heading("Newest");
  setTitle("");
  if (session.token !== "") view.add(start());
  const greeting = welcome();
  greeting.hidden = session.token !== "";
  view.add(greeting);
  const columns = make("div", "home-columns");
  const beside = make("span", "home-live");
  const left = view.part("Ledgers", (body) => ledgers(view, body, greeting));
  const right = view.part("Events", (body) => events(view, body, beside), { beside: [beside] });
  columns.append(left.section, right.section);
  view.add(columns);
  // Health is asked anyway; the ledgers are asked again when it names a newer one.
  let newest;
  onHealth(({ service_latest_ledger: latest }) => {
    if (newest !== undefined && latest !== newest.latest) left.reload();
    newest = { latest };
  }, view.signal);
  view.add(make("p", "note", "All stored ranges, what is missing, and who attests them: ", link("trust", "trust"), "."));
}
