// A ledger: its header, its transactions and its events.

import { Refused, ask, mayRead } from "../api.js";
import { ledgerLink, link } from "../address.js";
import { copyable } from "../copy.js";
import { DATA_DIR_FLAG } from "../data_dir.js";
import { having, make, note, put, renew } from "../dom.js";
import { eventRows } from "../event.js";
import { number, time, words } from "../format.js";
import { sentence } from "../problem.js";
import { watchRetention } from "../retention.js";
import { facts } from "../table.js";
import { needsToken } from "../token.js";
import { transactionRows } from "../transactions.js";

/** Milliseconds until a ledger that is not stored or not attested is asked for again. */
const AGAIN = 4000;
/** Sequence numbers of ledgers have 32 bits. */
const LAST = 2 ** 32 - 1;

const ATTESTERS = words({
  validators: "by the signatures of validators of trusted organisations",
  core: "by the stellar-core that this service follows",
  backup: "by nothing but the backup from which it was restored",
});

const attested = ({ attested: isAttested, attested_by: by, reported, unproven }) =>
  reported ? ["No: it is not as its header says. ", link("trust", "Why")]
    : unproven ? ["No: some of its events are not proven. ", link("trust", "Why")]
    : isAttested ? ["Yes, ", ATTESTERS[by] ?? by ?? "", ". ", link("trust", "Who")]
    : ["Not yet. ", link("trust", "Who attests ledgers")];

/** Says how many transactions of the ledger are stored, of how many it has. */
function ofLedger({ transactions, transactions_in_ledger: all, failed_in_ledger: failed }) {
  const stored = `${number(transactions)} of smart contracts`;
  return all === undefined ? stored : `${stored}; ${number(all)} in the ledger, of which ${number(failed ?? 0)} failed`;
}

function shown(ledger) {
  const { range: [first, last] } = ledger;
  return facts([
    ["Closed", time(ledger.closed_at)],
    ["Protocol", ledger.protocol_version && String(ledger.protocol_version)],
    ["Attested", make("p", "", attested(ledger))],
    ["Transactions", ofLedger(ledger)],
    ["Events", `${number(ledger.events)}${ledger.events_removed ? "; retention has removed them" : ""}`],
    ["Stored in the range", make("p", "", ledgerLink(first), " to ", ledgerLink(last))],
    ["Hash", copyable(ledger.hash, "the hash of the ledger", make("span", "mono", ledger.hash))],
    ["Previous hash", link(`ledger/${ledger.ledger - 1}`, make("span", "mono", ledger.previous_hash))],
  ]);
}

/** Adds the lists of a stored ledger. */
async function lists(view, { ledger, transactions, events, events_removed: isRemoved }) {
  if (!mayRead()) {
    view.add(make("section", "", needsToken("Its transactions and events need a token.")));
    return;
  }
  const add = (name, count, of, create, empty) => view.part(`${name} (${number(count)})`, (body) => {
    const path = `rest/${of}/by-ledger?decoded=true&from=${ledger}&to=${ledger}&order=asc`;
    const label = `${name} of the ledger`;
    const rows = create({ label, path, without: ["time", "ledger"], empty, signal: view.signal });
    put(body, rows.element);
    return rows.load();
  });
  add("Transactions", transactions, "txs", transactionRows, transactions === 0
    ? "No transaction of this ledger calls a contract or changes one." : "Retention has removed these transactions.");
  add("Events", events, "events", eventRows, isRemoved
    ? "Retention has removed the events of this ledger." : "This ledger has no stored events.");
  await Promise.allSettled(view.loads.slice(1));
}

/** Says why a ledger is not stored. The sentence has the command that mends it between backticks. */
function missing(body, error) {
  const ofService = (text) => text.replace(/^orrery backfill(?! --data-dir)/, `orrery backfill${DATA_DIR_FLAG}`);
  const parts = sentence(error).split("`").map((part, index) =>
    index % 2 === 1 ? copyable(ofService(part), "the command that adds it", make("code", "", ofService(part))) : part);
  renew(body, make("p", "", parts), note("This page shows it as soon as it is stored."));
}

/** Reads the ledger and shows it. Returns it; null if it is not stored. */
async function load({ signal }, sequence, body) {
  try {
    const ledger = await ask(`rest/ledgers/${sequence}`, { signal });
    renew(body, shown(ledger));
    return ledger;
  } catch (error) {
    if (!(error instanceof Refused && error.code === "no_ledger")) throw error;
    missing(body, error);
    return null;
  }
}

function neighbours(sequence) {
  const beside = (to, text, rel) => having(link(`ledger/${to}`, text), { rel });
  return having(make("nav", "neighbours",
    sequence > 1 ? beside(sequence - 1, `← ${sequence - 1}`, "prev") : null,
    sequence < LAST ? beside(sequence + 1, `${sequence + 1} →`, "next") : null),
  { "aria-label": "Ledgers before and after" });
}

export function open(view) {
  const text = view.params.ledger;
  const sequence = Number(text);
  if (!/^[0-9]{1,10}$/.test(text) || sequence > LAST) {
    view.heading("No such ledger");
    view.add(make("p", "", "The number of a ledger is a whole number of at most 4,294,967,295."));
    return;
  }
  view.heading(`Ledger ${sequence}`, neighbours(sequence));
  let known = null;
  view.part("Header", async (body) => {
    if (known?.attested || known?.reported || known?.unproven) return;
    const isFirst = known === null;
    known = await load(view, sequence, body);
    if (!isFirst || known === null) return;
    watchRetention(view, sequence);
    await lists(view, known);
  }, { every: AGAIN });
}
