// The state of the service: health, what is stored, what reads it, and the disk.

import { ask, shared } from "../api.js";
import { ledgerLink, link } from "../address.js";
import { copyable } from "../copy.js";
import { coverage } from "../coverage.js";
import { make, paragraph } from "../dom.js";
import { contracts, disk } from "../disk.js";
import { bounded, count, duration, number, short, utc, words } from "../format.js";
import { onHealth, sentence } from "../health.js";
import { plot } from "../plot.js";
import { steady } from "../steady.js";
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
  source: "delivers new ledgers",
  tables: "keeps the SQL tables in step with the stored rows",
  webhooks: "sends events to endpoints",
  window: "whether the source still has the next ledger",
});

/** What the consumers of ledgers make of them. */
const CONSUMERS = words({
  evictions: "entries that the network archived",
  export: "Parquet files",
  interfaces: "what contracts declare",
  passkey_wallets: "lookups of passkey wallets",
  programs: "rows of indexing programs",
  smart_accounts: "lookups of smart accounts",
  transaction_hashes: "finding transactions by hash",
  webhooks: "deliveries to endpoints",
});

const age = (seconds) => seconds < 60 ? `${seconds} s` : duration(seconds);

function figures(record) {
  const ledger = (value) => value === undefined || value === null ? "–" : ledgerLink(value);
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

function components(record) {
  const all = Object.entries(record.components);
  const isWarning = (name) => name === "attestation";
  const item = ([name, { status, detail }]) => make("li", status, make("b", "", bounded(name, 60)), " ", make("i", "", status), " ",
    make("span", "", COMPONENTS[name] ?? ""), " ", make("span", "", status !== "up" ? "see above" : isWarning(name) ? "" : bounded(detail ?? "", 500)));
  return [
    ...all.filter(([, { status }]) => status !== "up").map(([name, { reason }]) =>
      make("p", "problem status-down", make("b", "", name), ` is down: ${bounded(reason ?? "it gives no reason")}`)),
    ...all.filter(([name, { status, detail }]) => status === "up" && isWarning(name) && detail !== undefined).map(([name, { detail }]) =>
      make("p", "warning", make("b", "", name), `: ${bounded(detail)}`)),
    record.warning === undefined ? null : make("p", "warning", record.warning),
    figures(record),
    make("ul", "components status-components", all.map(item)),
  ];
}

function health(view, body) {
  onHealth((record, isAnswering) => {
    const kind = !isAnswering ? "unknown" : record.service === "up" ? "up" : "down";
    const text = isAnswering ? sentence(record) : "The service does not answer. What follows is from before.";
    steady(body, [record, isAnswering], () => [
      make("p", `state status-state ${kind}`, make("strong", "", kind), " ", make("span", "", text)),
      ...components(record),
      facts([["Network", record.network], ["Passphrase of the network", copyable(record.network_passphrase, "the passphrase", short(record.network_passphrase, 40))]]),
    ]);
  }, view.signal);
}

/** Units of the plot's axis: the first of which the largest value is less than 3. */
const UNITS = [["seconds", 1, 60], ["minutes", 60, 60], ["hours", 3600, 24], ["days", 86400, Infinity]];

/** Returns the place of a plot; null where there is nothing to plot, which is told. */
function plotPlace(body, isEmpty, told) {
  steady(body, isEmpty, () => isEmpty ? make("p", "note", told) : make("div", ""));
  return isEmpty ? null : body.firstChild;
}

function lag(body, { history }) {
  const { at, lag_seconds: ages, lag_ledgers: behind } = history;
  const place = plotPlace(body, ages.every((value) => value === null), "No source is followed, so nothing can be behind.");
  if (place === null) return;
  const most = Math.max(...ages);
  const [unit, seconds] = UNITS.find(([, size, next]) => most < 3 * size * next);
  const index = new Map(at.map((when, of) => [when * 1000, of]));
  plot(place, {
    points: at.map((when, of) => [when * 1000, ages[of] === null ? null : ages[of] / seconds]),
    kind: "line", overTime: true, whole: unit === "seconds", fromZero: true,
    label: `Age of the newest stored ledger in ${unit}, over the last day`,
    say: ([when]) => {
      const of = index.get(when);
      const far = behind[of] === null ? "" : `, ${count(behind[of], "ledger")} behind the network`;
      return `${utc(when)}: the newest stored ledger was ${age(ages[of])} old${far}`;
    },
  });
  place.prepend(make("p", "note", `In ${unit}; times are UTC`));
}

function density(body, { ledgers }) {
  const place = plotPlace(body, ledgers.length === 0, "No ledger is stored yet.");
  if (place === null) return;
  const told = new Map(ledgers.map((ledger) => [ledger.ledger, ledger]));
  plot(place, {
    points: ledgers.map(({ ledger, events }) => [ledger, events]), kind: "bars", whole: true,
    label: `Events of the newest ${count(ledgers.length, "stored ledger")}`,
    path: ([ledger]) => `ledger/${ledger}`,
    say: ([ledger, events]) => `Ledger ${ledger}, ${told.get(ledger).closed_at}: ${count(events, "event")}, `
      + count(told.get(ledger).transactions, "smart-contract transaction"),
  });
}

function consumers(list) {
  const row = ({ name, count: of, active, lag_ledgers: waiting, lost_ledgers: lost, rebuilding }) => [
    make("span", "", bounded(name.replaceAll("_", " "), 60) + (of > 1 ? ` (${of})` : ""), CONSUMERS[name] === undefined ? null : make("small", "note", ` ${CONSUMERS[name]}`)),
    rebuilding ? "is being rebuilt" : active === 0 ? "idle" : waiting === 0 ? ["up to date", "good"] : "behind",
    [number(waiting), "number"],
    [number(lost), lost > 0 ? "number bad" : "number"],
  ];
  return [
    table(["Reads ledgers for", "State", ["To do", "number"], ["Lost", "number"]], list.map(row), "Consumers of ledgers"),
    make("p", "note", "To do: stored ledgers that it has not read yet. Lost: ledgers that it could not read in full, because retention removed them first."),
  ];
}

export function open(view) {
  view.heading("Status");
  const { signal } = view;
  const status = shared(() => ask("rest/status", { signal }));
  const [left, right] = [make("div", ""), make("div", "")];
  const part = (title, load) => view.part(title, load, { every: EVERY });
  const beside = (column, ...rest) => column.append(part(...rest).section);
  view.part("Health", (body) => health(view, body));
  part("Age of the newest ledger, over a day", async (body) => lag(body, await status()));
  view.add(make("div", "columns status-columns", left, right));
  beside(left, "Stored ledgers", async (body) => {
    const record = await ask("rest/completeness", { signal });
    steady(body, record, () => coverage(record));
  });
  beside(right, "Events per ledger", async (body) => density(body, await status()));
  beside(left, "Consumers", async (body) => {
    const record = await status();
    steady(body, record.consumers, () => consumers(record.consumers));
  });
  beside(right, "Disk and versions", async (body) => {
    const record = await status();
    steady(body, [record.store, Math.floor(record.uptime_seconds / 60)], () => disk(record));
  });
  beside(left, "Disk by contract", async (body) => {
    const record = await status();
    steady(body, record.contracts ?? null, () => contracts(record.contracts));
  });
  view.add(paragraph("note", "`rest/status` and `rest/completeness` have these figures as JSON; `/metrics` has them for Prometheus."));
}
