// What is proven of the stored ledgers, who attests them, and how to check that.

import { ask, shared } from "../api.js";
import { ledgerLink, link } from "../address.js";
import { checks } from "../checks.js";
import { copyable } from "../copy.js";
import { make, paragraph, put } from "../dom.js";
import { bounded, count, number, short, words } from "../format.js";
import { onHealth } from "../health.js";
import { steady } from "../steady.js";
import { facts, table } from "../table.js";

/** How often completeness is read, in milliseconds. */
const EVERY = 5000;
/** Maximum number of ranges that are shown, and of signers of a range. */
const MAX_RANGES = 20;
const MAX_SIGNERS = 100;

const behind = (ledger, { last_ledger: last }) => count(last - ledger, "ledger");

/** Returns the organisations whose signatures attest the newest attested ledger of a range. */
const attesting = ({ signed, attested_ledger: attested }) =>
  [...new Set(signed.filter(({ ledger }) => ledger > attested).map(({ organisation }) => bounded(organisation, 80)))];

function attestedBy(range) {
  if (range.attested_by === "core") return "by the stellar-core that this service runs, which takes part in consensus itself";
  const organisations = attesting(range);
  return `by validators of ${count(organisations.length, "organisation")}: ${organisations.join(", ")}`;
}

function newest(range) {
  if (range === null) return [make("p", "note", "No ledger is stored yet.")];
  const { attested_ledger: ledger, unattested_because: why } = range;
  if (ledger === undefined) return [make("p", "warning", `Nothing of the newest range is attested: ${bounded(why)}.`)];
  return [
    facts([
      ["Newest attested ledger", ledgerLink(ledger)],
      ["Newest ledger stored", ledgerLink(range.last_ledger)],
      ["Not attested yet", behind(ledger, range)],
    ], "figures"),
    make("p", "", `Ledger ${ledger} and all ${range.first_ledger === ledger ? "before it in the chain" : `stored ones before it, back to ${range.first_ledger},`} are attested ${attestedBy(range)}.`),
  ];
}

/** Groups signatures by organisation, the one with the newest signature first. */
function byOrganisation(signed) {
  const groups = new Map();
  for (const one of signed) groups.set(one.organisation, [...groups.get(one.organisation) ?? [], one]);
  return [...groups.values()].flat();
}

function signers(range) {
  if (range === null || range.signed.length === 0) return [make("p", "note", "No trusted validator has signed a ledger of this range.")];
  const all = byOrganisation(range.signed);
  const rows = all.slice(0, MAX_SIGNERS).map(({ organisation, validator, ledger }, index) => [
    organisation === all[index - 1]?.organisation ? make("span", "note", bounded(organisation, 80)) : make("b", "", bounded(organisation, 80)),
    copyable(validator, `the key of this validator of ${bounded(organisation, 80)}`, short(validator, 8)),
    [ledgerLink(ledger), "number"], [number(range.last_ledger - ledger), "number"],
  ]);
  return [
    table(["Organisation", "Validator", ["Signed ledger", "number"], ["Ledgers ago", "number"]], rows,
      `Validators that have signed ledgers from ${range.first_ledger} to ${range.last_ledger}`),
    make("p", "note", "The newest ledger that each has signed, and how many stored ledgers came after it. A signature attests the ledger before the signed one, and all before that. An organisation counts once, with its newest signature."),
    all.length > rows.length ? make("p", "note", `${count(all.length - rows.length, "further validator")}: `, link("rest/completeness", "rest/completeness"), ".") : null,
  ];
}

const KINDS = words({ all: "all contracts", listed: "only the contracts that the settings list" });

function indexedAs({ classic_events: classic, fee_events: fees, contracts }) {
  const also = [classic ? "events of classic operations" : "", fees ? "fee events" : ""].filter(Boolean);
  return `${KINDS[contracts] ?? contracts}${also.length > 0 ? `, with ${also.join(" and ")}` : ""}`;
}

function range(told, isNewest) {
  const { first_ledger: first, last_ledger: last, attested_ledger: attested } = told;
  const of = (ledger, hash) => make("span", "", ledgerLink(ledger), " ", copyable(hash, `the hash of ledger ${ledger}`));
  const state = attested === undefined ? make("span", "bad", "not attested") : make("span", "good", attested === last ? "attested" : `attested up to ${attested}`);
  const made = make("details", "trust-range",
    make("summary", "", make("b", "", first === last ? `${first}` : `${first} – ${last}`), ` · ${count(last - first + 1, "ledger")} · `, state),
    facts([
      ["First ledger and its hash", of(first, told.first_hash)],
      ["Last ledger and its hash", of(last, told.last_hash)],
      ["Hash of the ledger before the first", copyable(told.previous_hash, `the hash of the ledger before ${first}`)],
      ["Newest attested ledger", attested === undefined ? null : ledgerLink(attested)],
      ["Attested", attested === undefined ? null : attestedBy(told)],
      ["Why nothing is attested", told.unattested_because === undefined ? null : bounded(told.unattested_because)],
      ["Events", number(told.events)],
      ["Digest", copyable(told.digest, `the digest of ${first} to ${last}`)],
      ["Indexed", told.indexed_as.map(indexedAs).join("; in part: ")],
    ]),
    isNewest ? null : signers(told));
  made.dataset.key = String(first);
  made.open = isNewest;
  return made;
}

function ranges({ shown, of }) {
  if (of === 0) return [make("p", "note", "No ledger is stored yet.")];
  const more = of - shown.length;
  return [
    paragraph("note", "The ledgers of a range are linked by their hashes, so who attests one attests those before it, but not those before a gap. Two services with the same settings have the same digest for the same ledgers."),
    ...shown.map((it, index) => range(it, index === 0)),
    more > 0 ? make("p", "note", `${number(more)} older ranges are not shown: all are at `, link("rest/completeness", "rest/completeness"), ".") : null,
  ];
}

function proven({ bound, settings }) {
  const yes = (is) => is ? ["yes", "good"] : "no";
  const stored = (is) => is ? "yes" : "no";
  const rows = [
    ["Events of contract calls", yes(bound.invocation_events), settings.contracts === "all" ? "yes" : KINDS[settings.contracts]],
    ["Events of classic operations (payments, offers …)", yes(bound.classic_events), stored(settings.classic_events)],
    ["Fee events", yes(bound.fee_events), stored(settings.fee_events)],
    ["Changes of ledger entries", yes(bound.entry_changes), "with their transactions"],
  ];
  return [
    make("p", "", "The servers that deliver ledgers need not be trusted. The header of a ledger holds the hash of all its results, and the result of each call the hash of its events; "
      + "each header holds the hash of the one before, and is signed by the validator that proposed it. So a signature says that this validator closed the ledger before, with this hash. "
      + "Once validators of enough organisations have said so, a ledger is attested: who wants to forge it needs their keys."),
    table(["Data", "Bound by the header", "Stored here"], rows.map(([name, ...more]) => [[name, "wide"], ...more]), "What the header of a ledger binds"),
    make("p", "", "What is not proven:"),
    make("ul", "trust-list",
      make("li", "", "Data that the header does not bind is as trustworthy as the source that delivered it."),
      make("li", "", "The newest ledgers are not attested yet. If one of them is a lie, the next honest ledger contradicts it; health then is down and names the source."),
      make("li", "", "Some sources hold ledgers of protocols 20 to 22 with events in the form of protocol 23. Where the former form is not found again, the events are stored and counted as unproven."),
      make("li", "", "The proof is as good as the choice of validators: those that are built in for the public networks, or those that the operator names.")),
    paragraph("note", "`docs/trust.md` has the whole reasoning, the settings, and the format of certificates."),
  ];
}

/** Tells in a place what health says of attestation, if there is something to tell. */
function warn(view, place) {
  onHealth(({ components: { attestation } }) => {
    const text = attestation?.reason ?? attestation?.detail ?? null;
    steady(place, attestation ?? null, () => text === null ? []
      : make("p", attestation.status === "up" ? "warning" : "warning problem", make("b", "", attestation.status === "up" ? "Attestation" : "Contradiction or fault"), `: ${bounded(text)}`));
  }, view.signal);
}

export function open(view) {
  view.heading("Trust");
  const { signal } = view;
  const completeness = shared(() => ask("rest/completeness", { signal }));
  const said = make("div", "");
  view.add(said);
  warn(view, said);
  const part = (title, pick, create) => view.part(title, async (body) => {
    const record = pick(await completeness());
    steady(body, record, () => create(record));
  }, { every: EVERY });
  part("Newest attested ledger", ({ ranges: all }) => all.at(-1) ?? null, newest);
  part("Who has signed", ({ ranges: all }) => all.at(-1) ?? null, signers);
  part("What is proven", ({ bound, settings }) => ({ bound, settings }), proven);
  part("Stored ranges", ({ ranges: all }) => ({ shown: all.slice(-MAX_RANGES).reverse(), of: all.length }), ranges);
  view.part("Check it yourself", async (body) => {
    const [record, status] = await Promise.all([completeness(), ask("rest/status", { signal })]);
    put(body, checks(record, status.contracts?.largest[0]?.contract_id));
  });
}
