// A transaction: what it called, what came of it, and what programs made of it.

import { ask } from "../api.js";
import { addressLink, ledgerLink, link } from "../address.js";
import { changesTable } from "../changes.js";
import { copyable } from "../copy.js";
import { button, make, put } from "../dom.js";
import { nameOf } from "../event.js";
import { lumens, short, time } from "../format.js";
import { parameterOf, parametersOf } from "../parameters.js";
import { raw } from "../raw.js";
import { failureOf } from "../result.js";
import { watchRetention } from "../retention.js";
import { hashOf } from "../search.js";
import { facts } from "../table.js";
import { argument, argumentsOf, operationOf, statusOf } from "../transactions.js";
import { tokenOf, tokensOf } from "../unit.js";
import { named } from "../value.js";
import { writtenRows } from "../written.js";

/** Milliseconds until a transaction that is not known is asked for again: it may be in the next ledger. */
const AGAIN = 3000;
/** Events that are shown at a time. */
const AT_ONCE = 20;

/** Creates a list of addresses as links; text where there are none. */
function addresses(list, none) {
  return list.length === 0 ? none : make("span", "addresses", list.map((address) => make("span", "", addressLink(address))));
}

function shown(transaction, hash) {
  const { fee_bump: isBump, inner_tx: inner, source_account: source, fee_account: payer, decoded } = transaction;
  const paid = [lumens(transaction.fee_charged), ", paid by ", payer === source ? "its source account" : addressLink(payer)];
  return facts([
    ["Found by its inner hash; its own is", transaction.tx === hash ? null : copyable(transaction.tx, "the hash of the transaction")],
    ["Status", statusOf(transaction)],
    ["Why it failed", transaction.successful || decoded?.function !== undefined ? null : failureOf(transaction)],
    ["Ledger", ledgerLink(transaction.ledger)],
    ["Closed", time(transaction.ledger_closed_at)],
    ["Position", `No. ${transaction.application_order} of the ledger`],
    ["Source account", addressLink(source)],
    ["Fee", make("span", "", ...paid)],
    ["Fee bump", isBump ? make("span", "", "of the inner transaction ", copyable(inner, "the hash of the inner transaction")) : null],
    ["Authorized by", decoded?.auth === undefined ? null : addresses(decoded.auth, "Nobody: the call needs no authorization")],
    ["Contracts that it touched", addresses(transaction.contracts, "None")],
  ]);
}

function returned(transaction) {
  const { decoded } = transaction;
  return decoded.returned === null || decoded.returned === "void" ? make("span", "null", "nothing (void)") : argument(transaction, decoded.returned);
}

/** Returns what creates the element of an argument. Amounts of a token's functions (SEP-41) are in its unit. */
async function argumentOf(transaction) {
  const { args, contract, function: name } = transaction.decoded;
  const isAmount = !Array.isArray(args) && args.amount !== undefined;
  const token = isAmount ? await tokenOf(contract) : null;
  const asEvent = { decoded: { name: name.replace(/_from$/, ""), params: args } };
  return (value, key) => token === null ? argument(transaction, value) : parameterOf(asEvent, key, value, token);
}

async function call(transaction, body) {
  const { decoded } = transaction;
  const operation = operationOf(transaction);
  if (operation !== null) return put(body, make("p", "", `It calls no function. Its operation is the ${operation}.`));
  if (decoded?.function === undefined) return put(body, make("p", "", "What it called cannot be read from its envelope."));
  const values = argumentsOf(transaction);
  // Two arguments cannot have one name: the service then gives them without names.
  const list = values.map(([name, value], index) => [name || `argument ${index + 1}`, value]);
  return put(body,
    make("p", "", make("b", "mono", decoded.function), " of ", addressLink(decoded.contract, 8)),
    make("h3", "", "Arguments"),
    values.length === 0 ? make("p", "note", "It has none.") : named(list, await argumentOf(transaction)),
    Array.isArray(decoded.args) && values.length > 0 ? make("p", "note", "The names of the arguments are not known, because the interface of the contract is not: its page says why.") : null,
    make("h3", "", transaction.successful ? "Returned" : "Error"), make("p", "", transaction.successful ? returned(transaction) : failureOf(transaction)));
}

function eventOf(event, token) {
  return make("article", "event", make("h3", "", nameOf(event)),
    event.contract_id === "" ? null : make("p", "note", "of ", addressLink(event.contract_id)), parametersOf(event, token));
}

async function events(hash, body, signal, known = null) {
  const list = known ?? await ask(`rest/events/by-tx/${hash}?decoded=true`, { signal });
  if (list.length === 0) return put(body, make("p", "note", "It has no stored events. A failed transaction has none, and retention removes old ones."));
  const tokens = await tokensOf(list);
  let at = 0;
  const place = make("div", "event-cards");
  const more = make("p");
  const next = () => {
    place.append(...list.slice(at, at + AT_ONCE).map((event) => eventOf(event, tokens.get(event.contract_id) ?? null)));
    at += AT_ONCE;
    put(more, at < list.length ? button(`Show ${Math.min(AT_ONCE, list.length - at)} more of ${list.length}`, "quiet", next) : null);
  };
  next();
  return put(body, place, more);
}

/** Adds the parts of a transaction that is known. */
function parts(view, transaction) {
  const { tx: hash } = transaction;
  const { signal } = view;
  view.part(operationOf(transaction) === null ? "Call" : "Operation", (body) => call(transaction, body));
  view.part(`Events (${transaction.event_count})`, (body) => events(hash, body, signal));
  view.part("Changed entries", async (body) => {
    put(body, changesTable(await ask(`rest/txs/by-hash/${hash}/changes`, { signal })));
  });
  view.part("Rows that programs made of it", (body) => {
    // Many tables take long, for which the rest of the page does not wait.
    view.fill(body, () => writtenRows(hash, body, signal));
  });
  view.part("XDR", (body) => {
    put(body, raw("Envelope", transaction.envelope_xdr), raw("Result", transaction.result_xdr), raw("Metadata", transaction.meta_xdr));
  });
}

/** Says that a transaction is not stored, or shows what is left of it. */
async function missing(view, hash, body) {
  const left = await ask(`rest/events/by-tx/${hash}?decoded=true`, { signal: view.signal });
  if (left.length > 0) {
    const [{ ledger }] = left;
    put(body, make("p", "", "Only events of this transaction are stored, of the ledger ", ledgerLink(ledger),
      ": retention has removed the rest, or it calls no contract."));
    view.part(`Events (${left.length})`, (place) => events(hash, place, view.signal, left));
    return true;
  }
  put(body, make("p", "", "This transaction is not stored: no stored ledger has it, it calls no contract, or retention has removed it. ",
    link("trust", "Which ledgers are stored")), make("p", "note", "It is looked for again every few seconds."));
  return false;
}

/** Calls `work` after a while, unless the page is left. While the window is hidden, it waits. */
function again(work, signal) {
  setTimeout(() => {
    if (signal.aborted) return;
    if (document.hidden) again(work, signal);
    else work();
  }, AGAIN);
}

async function load(view, hash, body) {
  const { signal } = view;
  const [transaction] = await ask(`rest/txs/by-hash/${hash}?decoded=true`, { signal });
  const from = view.loads.length;
  if (transaction !== undefined) {
    put(body, shown(transaction, hash));
    watchRetention(view, transaction.ledger);
    parts(view, transaction);
  } else if (!await missing(view, hash, body)) {
    again(() => view.fill(body, () => load(view, hash, body)), signal);
  }
  await Promise.allSettled(view.loads.slice(from));
}

export function open(view) {
  const hash = hashOf(view.params.hash);
  if (hash === null) {
    view.heading("No such transaction");
    view.add(make("p", "", "The hash of a transaction has 64 hexadecimal digits."));
    return;
  }
  view.heading(`Transaction ${hash.slice(0, 8)}…`, copyable(hash, "the hash of the transaction", short(hash, 32)));
  view.part("What came of it", (body) => load(view, hash, body));
}
