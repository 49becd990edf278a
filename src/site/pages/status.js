// The state of the service: health, what is stored, what reads it, and the disk.

import { ask, shared } from "../api.js";
import { ledgerLink, link } from "../address.js";
import { copyable } from "../copy.js";
import { coverage } from "../coverage.js";
import { make, note, paragraph, put, renew } from "../dom.js";
import { contracts, disk } from "../disk.js";
import { bounded, count, duration, number, short, time, words } from "../format.js";
import { onHealth, sentence } from "../health.js";
import { plot } from "../plot.js";
import { facts, table } from "../table.js";

/** How often the figures are read, in milliseconds. */
const EVERY = 5000;

/** What the components of health do. Threads report under names of their own. */
const COMPONENTS = words({
  attestation: "which ledgers the network's validators have signed",
  backfill: "fetches older ledgers",
  export: "writes Parquet files",
  feed: "hands stored ledgers to what reads them",
  ingestion: "checks new ledgers and stores them",
  "program backfill": "runs programs on older ledgers",
  programs: "runs indexing programs",
  queries: "answers SQL",
  retention: "removes what is older than the settings want",
  sink: "copies rows into PostgreSQL",
  source: "delivers new ledgers",
  tables: "keeps the SQL tables in step with the stored rows",
  webhooks: "sends events to endpoints",
  window: "whether the source still has the next ledger",
});

/** What the consumers of ledgers make of them. */
const CONSUMERS = words({
  code_events: "what events say contracts ran",
  contract_data: "what contracts hold",
  evictions: "entries that the network archived",
  export: "Parquet files",
  interfaces: "what contracts declare",
  membership: "who created contracts, and what they ran",
  passkey_wallets: "lookups of passkey wallets",
  programs: "rows of indexing programs",
  smart_accounts: "lookups of smart accounts",
  transaction_hashes: "finding transactions by hash",
  webhooks: "deliveries to endpoints",
});

const age = (seconds) => seconds < 60 ? `${seconds} s` : duration(seconds);

function figures(record) {
  const ledger = (value) => (value ?? null) === null ? "–" : ledgerLink(value);
  const by = record.attested_by === "core" ? "the stellar-core that is followed" : record.attested_by ?? "nobody";
  return facts([
    ["Newest ledger stored", ledger(record.service_latest_ledger)],
    ["Newest ledger closed", record.lag_seconds === undefined ? null : `${age(record.lag_seconds)} ago`],
    ["Newest of the network", record.network_latest_ledger ?? "–"],
    ["Ledgers behind the network", record.lag_ledgers === undefined ? "–" : number(record.lag_ledgers)],
    ["Newest attested ledger", ledger(record.attested_ledger)],
    ["Attested by", link("trust", by)],
    ["Oldest ledger with events", ledger(record.oldest_ledger)],
  ], "figures");
}

/** Returns a component as an item of the list. What attestation tells while it is up is a warning. */
function component([name, { status, detail = "", lag_ledgers: lag, reason = detail }]) {
  const kind = status !== "up" ? "problem" : name === "attestation" && detail ? "warning" : "note";
  return make("li", status, make("b", "", bounded(name, 60)), " ", make("i", "", status), " ",
    make("span", "", COMPONENTS[name.split(".")[0]] ?? ""), " ",
    make("div", kind, lag ? `${count(lag, "ledger")} behind. ` : "", bounded(reason)));
}

function health(view, body) {
  onHealth((record, isAnswering) => {
    const kind = !isAnswering ? "unknown" : record.service === "up" ? "up" : "down";
    const text = isAnswering ? sentence(record) : "The service does not answer. What follows is from before.";
    const { network_passphrase: passphrase } = record;
    const all = Object.entries(record.components).sort(([, one], [, other]) => one.status.localeCompare(other.status));
    renew(body,
      make("p", `state status-state ${kind}`, make("strong", "", kind), " ", make("span", "", text)),
      record.warning === undefined ? null : make("p", "warning", record.warning),
      figures(record),
      make("ul", "components status-components", all.map(component)),
      facts([
        ["Network", record.network],
        ["Passphrase of the network", copyable(passphrase, "the passphrase", short(passphrase, 40))],
      ]));
  }, view.signal);
}

/** Units of the plot's axis, of which the first is taken that has less than three of the next one. */
const UNITS = [["seconds", 1, 60], ["minutes", 60, 60], ["hours", 3600, 24], ["days", 86400, Infinity]];

function lag(body, { history: { at, lag_seconds: ages, lag_ledgers: behind } }) {
  if (ages.every((value) => value === null)) {
    return put(body, note("No source is followed, so nothing can be behind."));
  }
  const [unit, seconds] = UNITS.find(([, size, next]) => Math.max(...ages) < 3 * size * next);
  plot(body, {
    points: at.map((when, index) => [when * 1000, ages[index] === null ? null : ages[index] / seconds, index]),
    kind: "line", overTime: true, fromZero: true,
    label: `Age of the newest stored ledger in ${unit}, over the last day`,
    say: ([when, , index]) => [time(when), `: the newest stored ledger was ${age(ages[index])} old`,
      behind[index] === null ? "" : `, ${count(behind[index], "ledger")} behind the network`],
  });
  return body.prepend(note(`In ${unit}`));
}

function density(body, { ledgers }) {
  if (ledgers.length === 0) return put(body, note("No ledger is stored yet."));
  return plot(body, {
    points: ledgers.map((it) => [it.ledger, it.events, it]), kind: "bars",
    label: `Events of the newest ${count(ledgers.length, "stored ledger")}`,
    path: ([ledger]) => `ledger/${ledger}`,
    say: ([ledger, events, { closed_at: closed, transactions }]) => [`Ledger ${ledger}, `, time(closed),
      `: ${count(events, "event")}, ${count(transactions, "smart-contract transaction")}`],
  });
}

function consumers(list) {
  const row = ({ name, count: of, active, lag_ledgers: waiting, lost_ledgers: lost, rebuilding }) => [
    make("span", "", bounded(name.replaceAll("_", " "), 60), of > 1 ? ` (${of})` : "",
      make("small", "note", ` ${CONSUMERS[name] ?? ""}`)),
    rebuilding ? "is being rebuilt" : active === 0 ? "idle" : waiting === 0 ? ["up to date", "good"] : "behind",
    [number(waiting), "number"],
    [number(lost), lost > 0 ? "number bad" : "number"],
  ];
  return [
    table(["Reads ledgers for", "State", ["To do", "number"], ["Lost", "number"]], list.map(row),
      "Consumers of ledgers"),
    note("Lost are ledgers that it could not read in full, because retention removed them first."),
  ];
}

export function open(view) {
  view.heading("Status");
  const { signal } = view;
  const status = shared(() => ask("rest/status", { signal }));
  const part = (title, read, show) =>
    view.part(title, async (body) => show(body, await read()), { every: EVERY }).section;
  view.part("Health", (body) => health(view, body));
  part("Age of the newest ledger, over a day", status, lag);
  const stored = part("Stored ledgers", () => ask("rest/completeness", { signal }),
    (body, record) => renew(body, coverage(record)));
  const events = part("Events per ledger", status, density);
  const readers = part("Consumers", status, (body, record) => renew(body, consumers(record.consumers)));
  const store = part("Disk and versions", status, (body, record) => renew(body, disk(record)));
  const shares = part("Disk by contract", status, (body, record) => renew(body, contracts(record.contracts)));
  const columns = [[stored, readers, shares], [events, store]].map((parts) => make("div", "", parts));
  view.add(make("div", "columns status-columns", columns), paragraph("note",
    "`rest/status` and `rest/completeness` have these figures as JSON; `/metrics` has them for Prometheus."));
}
