// What is proven of the stored ledgers, who attests them, and how to check that.

import { ask, shared } from "../api.js";
import { ledgerLink, link } from "../address.js";
import { checks } from "../checks.js";
import { copyable } from "../copy.js";
import { make, note, paragraph, put, renew } from "../dom.js";
import { bounded, count, number, short, words } from "../format.js";
import { onHealth } from "../health.js";
import { facts, table } from "../table.js";

/** How often completeness is read, in milliseconds. */
const EVERY = 5000;
/** Maximum number of ranges that are shown, and of signers of a range. */
const MAX_RANGES = 20;
const MAX_SIGNERS = 100;

/** Tells where those are that are not shown, if there are any. */
const further = (of, what) => of > 0
  ? note(`${count(of, what)}: `, link("rest/completeness", "rest/completeness"), ".") : null;

function attestedBy({ attested_by: by, attested_ledger: attested, signed }) {
  if (by === "core") return "by the stellar-core that this service runs, which takes part in consensus itself";
  if (by === "backup") return "by nothing but the backup from which they were restored";
  const attesting = signed.filter(({ ledger }) => ledger > attested);
  const organisations = new Set(attesting.map(({ organisation }) => bounded(organisation, 80)));
  return `by validators of ${count(organisations.size, "organisation")}: ${[...organisations].join(", ")}`;
}

function newest(range) {
  const { attested_ledger: ledger, first_ledger: first, last_ledger: last, unattested_because: why } = range;
  if (ledger === undefined) return [make("p", "warning", `Nothing of the newest range is attested: ${bounded(why)}.`)];
  return [
    facts([
      ["Newest attested ledger", ledgerLink(ledger)],
      ["Newest ledger stored", ledgerLink(last)],
      ["Not attested yet", count(last - ledger, "ledger")],
    ], "figures"),
    make("p", "", `The stored ledgers from ${first} to ${ledger} are attested ${attestedBy(range)}.`),
  ];
}

function signers({ signed, first_ledger: first, last_ledger: last }) {
  if (signed.length === 0) return [note("No trusted validator has signed a ledger of this range.")];
  const organisations = [...Map.groupBy(signed, ({ organisation }) => bounded(organisation, 80))];
  const rows = organisations.flatMap(([organisation, validators]) => validators.map(({ validator, ledger }) => [
    organisation, copyable(validator, `the key of this validator of ${organisation}`, short(validator, 8)),
    [ledgerLink(ledger), "number"], [number(last - ledger), "number"],
  ]));
  return [
    table(["Organisation", "Validator", ["Signed ledger", "number"], ["Ledgers ago", "number"]],
      rows.slice(0, MAX_SIGNERS), `Validators that have signed ledgers from ${first} to ${last}`),
    note("The newest ledger that each has signed. A signature attests the ledger before the signed one, "
      + "and all before that. An organisation counts once, with its newest signature."),
    further(rows.length - MAX_SIGNERS, "further validator"),
  ];
}

const KINDS = words({ all: "all contracts", listed: "only the contracts that the settings list" });

function indexedAs({ classic_events: classic, fee_events: fees, contracts }) {
  const kinds = [KINDS[contracts], classic && "events of classic operations", fees && "fee events"];
  return kinds.filter(Boolean).join(", ");
}

/** Names the ledgers of which less is known than of others. */
function marks({ reported, unproven, from_backup: restored }) {
  const kinds = [["Not as their headers say", reported], ["Events not proven", unproven], ["Only from a backup", restored]];
  return kinds.filter(([, marked]) => marked?.ledgers > 0).map(([name, marked]) => [name, count(marked.ledgers, "ledger")]);
}

function range(told, isNewest) {
  const { first_ledger: first, last_ledger: last, attested_ledger: attested, unattested_because: why } = told;
  const of = (ledger, hash) =>
    make("span", "", ledgerLink(ledger), " ", copyable(hash, `the hash of ledger ${ledger}`));
  const state = attested === undefined ? make("span", "bad", "not attested")
    : make("span", "good", attested === last ? "attested" : `attested up to ${attested}`);
  const ends = first === last ? first : `${first} – ${last}`;
  const made = make("details", "trust-range",
    make("summary", "", make("b", "", ends), ` · ${count(last - first + 1, "ledger")} · `, state),
    facts([
      ["First ledger and its hash", of(first, told.first_hash)],
      ["Last ledger and its hash", of(last, told.last_hash)],
      ["Hash of the ledger before the first", copyable(told.previous_hash, `the hash of the ledger before ${first}`)],
      ["Attested", attested === undefined ? `No: ${bounded(why)}`
        : make("span", "", "up to ", ledgerLink(attested), `, ${attestedBy(told)}`)],
      ...marks(told),
      ["Events", number(told.events)],
      ["Digest", copyable(told.digest, `the digest of ${first} to ${last}`)],
      ["Indexed", told.indexed_as.map(indexedAs).join("; in part: ")],
    ]),
    isNewest ? null : signers(told));
  made.dataset.key = String(first);
  made.open = isNewest;
  return made;
}

function ranges({ ranges: all }) {
  const shown = all.slice(-MAX_RANGES).reverse();
  return [
    paragraph("note", "The ledgers of a range are linked by their hashes, so who attests one attests those before it, "
      + "but not those before a gap. Two services with the same settings have the same digest for the same ledgers."),
    ...shown.map((it, index) => range(it, index === 0)),
    further(all.length - shown.length, "older range"),
  ];
}

function proven({ bound, settings }) {
  const yes = (is) => is ? ["yes", "good"] : "no";
  const stored = (is) => is ? "yes" : "no";
  const rows = [
    ["Events of contract calls", yes(bound.invocation_events), `of ${KINDS[settings.contracts]}`],
    ["Events of classic operations", yes(bound.classic_events), stored(settings.classic_events)],
    ["Fee events", yes(bound.fee_events), stored(settings.fee_events)],
    ["Changes of ledger entries", yes(bound.entry_changes), "with their transactions"],
  ];
  const not = [
    "Data that the header does not bind is as trustworthy as the source that delivered it.",
    "The newest ledgers are not attested yet. If one of them is a lie, the next honest ledgers contradict it; health "
      + "then is down and names both sources.",
    "Some sources hold ledgers of protocols 20 to 22 with events in the form of protocol 23. Where the former form is "
      + "not found again, the events are stored and counted as unproven.",
    "The proof is as good as the choice of validators: those that are built in for the public networks, or those that "
      + "the operator names.",
  ];
  return [
    make("p", "", "The servers that deliver ledgers need not be trusted. The header of a ledger holds the hash of its "
      + "results, the result of each call that of its events, and each header that of the one before. The validator "
      + "that proposed a header signs it, and so says that it closed the ledger before. Once validators of enough "
      + "organisations have, a ledger is attested: who wants to forge it needs their keys."),
    table(["Data", "Bound by the header", "Stored here"], rows, "What the header of a ledger binds"),
    make("p", "", "What is not proven:"),
    make("ul", "trust-list", not.map((text) => make("li", "", text))),
    note(link("docs/trust", "Whom you have to trust"),
      " has the whole reasoning, the settings, and the format of certificates."),
  ];
}

export function open(view) {
  view.heading("Trust");
  const { signal } = view;
  const completeness = shared(() => ask("rest/completeness", { signal }));
  const said = make("div");
  view.add(said);
  onHealth(({ components: { attestation = {} } }) => {
    const { status, reason, detail = reason } = attestation;
    const [kind, name] = status === "up" ? ["warning", "Attestation"] : ["warning problem", "Contradiction or fault"];
    renew(said, detail === undefined ? null : make("p", kind, `${name}: ${bounded(detail)}`));
  }, signal);
  const part = (title, create) =>
    view.part(title, async (body) => renew(body, create(await completeness())), { every: EVERY });
  const ofNewest = (create) => ({ ranges: all }) =>
    all.length > 0 ? create(all.at(-1)) : [note("No ledger is stored yet.")];
  part("Attestation", ofNewest(newest));
  part("Who has signed", ofNewest(signers));
  part("What is proven", proven);
  part("Stored ranges", ranges);
  view.part("Check it yourself", async (body) => {
    const [record, status] = await Promise.all([completeness(), ask("rest/status", { signal })]);
    put(body, checks(record, status.contracts?.largest[0]?.contract_id));
  });
}
