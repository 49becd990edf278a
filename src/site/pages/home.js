// The first page: the newest ledgers and events.

import { ask, mayRead } from "../api.js";
import { ledgerLink, link } from "../address.js";
import { having, make, note, put, renew } from "../dom.js";
import { eventRows } from "../event.js";
import { clock, number } from "../format.js";
import { onHealth } from "../health.js";
import { live } from "../live.js";
import { table } from "../table.js";
import { setTitle } from "../title.js";

/** Number of ledgers that are shown. */
const LEDGERS = 15;

async function ledgers(view, body) {
  const newest = (await ask("rest/status", { signal: view.signal })).ledgers.slice(-LEDGERS).reverse();
  const row = ({ ledger, closed_at: at, transactions, events }) =>
    [ledgerLink(ledger), clock(at), [number(transactions), "number"], [number(events), "number"]];
  const heads = ["Ledger", "Closed", ["Transactions", "number"], ["Events", "number"]];
  renew(body, newest.length > 0 ? having(table(heads, newest.map(row), "Newest ledgers", false), { "data-moves": "" })
    : note("No ledger is stored yet. The first one is shown here when it is."));
}

async function events(view, body, beside, see) {
  const rows = eventRows({
    label: "Newest events", path: "rest/events/by-ledger?decoded=true", without: ["ledger", "tx"], signal: view.signal,
    empty: "No event is stored yet. The first one is shown here when it is.",
  });
  put(body, rows.element);
  await rows.load();
  live(rows, {}, beside, view.signal, ({ ledger }) => see(ledger));
}

function welcome() {
  return having(make("section", "",
    make("h2", "", "Welcome"),
    make("p", "", "Orrery follows a Stellar network, and stores every event of its contracts and every transaction "
      + "that calls one. The search field above finds them by their numbers, hashes and addresses, and accounts by the "
      + "id of a passkey's credential."),
    note("Ledgers, ", link("status", "the state"), " and ",
      link("trust", "what is stored and who attests it"),
      " are public. Events, transactions and tables need a token.")), { "aria-label": "Welcome" });
}

/** Says to who may read events what this is, and where to go from here. */
const start = () => note("Every event of this network's contracts, and every transaction that calls one. ",
  link("programs", "Programs"), " make tables of them for ", link("sql", "SQL"), "; ",
  link("webhooks", "webhooks"), " send them on.");

export function open(view) {
  view.heading("Newest ledgers and events");
  setTitle("");
  view.add(mayRead() ? start() : welcome());
  const beside = make("span", "home-live");
  const left = view.part("Ledgers", (body) => ledgers(view, body));
  const right = view.part("Events", (body) => events(view, body, beside, (ledger) => see(ledger)), { beside: [beside] });
  view.add(make("div", "home-columns", left.section, right.section));
  // Health is asked anyway; the ledgers are asked again when it names a newer one, or an event is of one.
  let newest;
  const see = (latest) => {
    if (newest !== undefined && latest > newest) left.reload();
    newest = Math.max(newest ?? 0, latest);
  };
  onHealth(({ service_latest_ledger: latest = 0 }) => see(latest), view.signal);
  view.add(note(link("trust", "All stored ranges, what is missing, and who attests them"), "."));
}
