// A transaction: what it called, what came of it, and what programs made of it.

import { ask, askLeft } from "../api.js";
import { addressLink, ledgerLink, link } from "../address.js";
import { changesTable } from "../changes.js";
import { copyable } from "../copy.js";
import { folded, make, note, put, renew } from "../dom.js";
import { nameOf } from "../event.js";
import { lumens, short, time } from "../format.js";
import { beginning } from "../health.js";
import { parametersOf } from "../parameters.js";
import { pieces } from "../pieces.js";
import { raw } from "../raw.js";
import { failureOf } from "../result.js";
import { watchRetention } from "../retention.js";
import { hashOf } from "../search.js";
import { facts } from "../table.js";
import { argumentsOf, operationOf, statusOf } from "../transactions.js";
import { named, plain, typed } from "../value.js";
import { writtenRows } from "../written.js";

/** Milliseconds until a transaction that is not known is asked for again: it may be in the next ledger. */
const AGAIN = 3000;
/** Events, and changes, that are shown at a time. */
const AT_ONCE = 20;
const CHANGES_AT_ONCE = 50;

/** Creates a list of addresses as links; text where there are none. */
const addresses = (list, none) =>
  list.length === 0 ? none : make("span", "addresses", list.map((address) => make("span", "", addressLink(address))));

function shown(transaction, hash) {
  const { inner_tx: inner, source_account: source, fee_account: payer, decoded } = transaction;
  return facts([
    ["Found by its inner hash; its own is",
      transaction.tx === hash ? null : copyable(transaction.tx, "the hash of the transaction")],
    ["Status", statusOf(transaction)],
    ["Why it failed", transaction.successful || decoded?.function !== undefined ? null : failureOf(transaction)],
    ["Ledger", ledgerLink(transaction.ledger)],
    ["Closed", time(transaction.ledger_closed_at)],
    ["Position", `No. ${transaction.application_order} of the ledger`],
    ["Source account", addressLink(source)],
    ["Fee", make("span", "", lumens(transaction.fee_charged), ", paid by ",
      payer === source ? "its source account" : addressLink(payer))],
    ["Fee bump", transaction.fee_bump
      ? make("span", "", "of the inner transaction ", copyable(inner, "the hash of the inner transaction")) : null],
    ["Authorized by", decoded?.auth && addresses(decoded.auth, "Nobody: the call needs no authorization")],
    ["Contracts that it touched", addresses(transaction.contracts, "None")],
  ]);
}

function call(transaction, body) {
  const { decoded, successful } = transaction;
  const operation = operationOf(transaction);
  if (operation !== null) return put(body, `It calls no function. Its operation is the ${operation}.`);
  if (decoded?.function === undefined) return put(body, "What it called cannot be read from its envelope.");
  const { returned, args } = decoded;
  const given = argumentsOf(transaction).map(([name, value], index) => [name || `argument ${index + 1}`, value]);
  const result = returned === null || returned === "void" ? make("span", "null", "nothing (void)")
    : Array.isArray(args) ? typed(returned) : plain(returned);
  return put(body,
    make("p", "", make("b", "mono", decoded.function), " of ", addressLink(decoded.contract, 8)),
    make("h3", "", "Arguments"),
    given.length === 0 ? note("It has none.") : named(given, (value) => value),
    Array.isArray(args) && given.length > 0 ? note("The names of the arguments are not known, because "
      + "the interface of the contract is not: its page says why.") : null,
    make("h3", "", successful ? "Returned" : "Error"), make("p", "", successful ? result : failureOf(transaction)));
}

function eventsOf(list) {
  if (list.length === 0) {
    return note("It has no stored events. A failed transaction has none, and retention removes old ones.");
  }
  return pieces(list, AT_ONCE, (some) => make("div", "event-cards", some.map((event) =>
    make("article", "event", make("h3", "", nameOf(event)),
      event.contract_id === "" ? null : note("of ", addressLink(event.contract_id)),
      parametersOf(event)))));
}

/** Adds the parts of a transaction that is known. */
function parts(view, transaction) {
  const { signal } = view;
  const route = (name) => `rest/${name}/${transaction.tx}`;
  view.part(operationOf(transaction) === null ? "Call" : "Operation", (body) => { call(transaction, body); });
  view.part(`Events (${transaction.event_count})`, async (body) => {
    put(body, eventsOf(await ask(`${route("events/by-tx")}?decoded=true`, { signal })));
  });
  view.part("Changes of what contracts hold", async (body) => {
    const { changesOf } = await import("../storage.js");
    const { changes } = await ask(`rest/txs/${transaction.tx}/storage?decoded=true`, { signal });
    put(body, changes.length === 0 ? note("It changed nothing that contracts hold.")
      : make("div", "changes", pieces(changes, CHANGES_AT_ONCE, (some) =>
        changesOf(some, "Changes of what contracts hold", ({ contract_id: contract }) => addressLink(contract, 4)))));
  });
  view.part("Changed entries", async (body) => {
    put(body, changesTable(await ask(`${route("txs/by-hash")}/changes`, { signal })));
  });
  view.part("Rows that programs made of it", (body) => {
    put(body, folded("", "Look in the tables that this token may read", () => writtenRows(view, transaction.tx)));
  });
  view.part("XDR", (body) => {
    put(body, raw("Envelope", transaction.envelope_xdr), raw("Result", transaction.result_xdr),
      raw("Metadata", transaction.meta_xdr));
  });
}

/** Shows what is left of a transaction that is not stored. Returns whether anything is. */
async function missing(view, hash, body) {
  const left = await askLeft(`rest/events/by-tx/${hash}?decoded=true`, { signal: view.signal });
  if (left.length > 0) {
    put(body, make("p", "", "Only events of this transaction are stored, of the ledger ", ledgerLink(left[0].ledger),
      ": retention has removed the rest, or it calls no contract."));
    view.part(`Events (${left.length})`, (place) => { put(place, eventsOf(left)); });
  } else {
    renew(body, make("p", "", "This transaction is not stored: no stored ledger has it, it calls no contract, or "
      + "retention has removed it. ", link("trust", "Which ledgers are stored")),
    note("It is looked for again every few seconds."));
  }
  return left.length > 0;
}

async function load(view, hash, body) {
  const [transaction] = await askLeft(`rest/txs/by-hash/${hash}?decoded=true`, { signal: view.signal });
  if (transaction === undefined) return missing(view, hash, body);
  // Which asset is genuine depends on the network.
  await beginning;
  put(body, shown(transaction, hash));
  watchRetention(view, transaction.ledger);
  parts(view, transaction);
  await Promise.allSettled(view.loads.slice(1));
  return true;
}

export function open(view) {
  const hash = hashOf(view.params.hash);
  if (hash === null) {
    view.heading("No such transaction");
    view.add(make("p", "", "The hash of a transaction has 64 hexadecimal digits."));
    return;
  }
  view.heading(`Transaction ${hash.slice(0, 8)}…`, copyable(hash, "the hash of the transaction", short(hash, 32)));
  let isKnown = false;
  view.part("Outcome", async (body) => { isKnown ||= await load(view, hash, body); }, { every: AGAIN });
}
