// Transactions: in lists, and what they called.

import { addressLink, ledgerLink, transactionLink } from "./address.js";
import { make } from "./dom.js";
import { line, pagesOf, parameter } from "./event.js";
import { clock, lumens, words } from "./format.js";
import { Rows } from "./rows.js";
import { IN_LIST, typed } from "./value.js";

/** Operations of smart-contract transactions that call no function. */
const OPERATIONS = words({
  upload: "upload of code", create: "creation of a contract", extend: "extension of entries",
  restore: "restoration of entries",
});
/** Arguments that a list shows of a call. */
const MOST = 12;

/** Returns the operation of a transaction that calls no function; null if it calls one, or it is not known. */
export const operationOf = ({ decoded }) =>
  decoded?.operation === undefined ? null : OPERATIONS[decoded.operation] ?? decoded.operation;

/** Creates the word for whether a transaction succeeded. */
export const statusOf = ({ successful }) =>
  make("span", successful ? "good" : "bad", successful ? "succeeded" : "failed");

/** Creates an argument of a call. Functions of tokens (SEP-41) have amounts as their events do. */
function argument({ contract, function: called, args }, name, value, most) {
  const asEvent = { contract_id: contract, decoded: { name: called.replace(/_from$/, ""), params: args } };
  return parameter(asEvent, name, value, most);
}

/**
 * Returns the arguments of a call as pairs of a name and an element, up to so many letters of it. They have their types
 * and no names if the declaration of the function is not known.
 */
export function argumentsOf({ decoded }, most = Infinity) {
  const args = decoded.args ?? [];
  return Array.isArray(args) ? args.map((value) => ["", typed(value, most)])
    : Object.entries(args).map(([name, value]) => [name, argument(decoded, name, value, most)]);
}

function called(transaction, own) {
  const { decoded } = transaction;
  if (decoded?.function === undefined) return operationOf(transaction) ?? make("span", "null", "not known");
  const name = make("b", "name mono", decoded.function.slice(0, 64) || "(no name)");
  return decoded.contract === own ? name : make("span", "named-of", addressLink(decoded.contract, 4), " ", name);
}

/** Returns the error of a failed call in few words. */
export const errorOf = ({ name, code }) => name ? `${name.slice(0, 64)} (${code})` : `error ${code}`;

function summary(transaction) {
  const { decoded } = transaction;
  const given = decoded?.function === undefined ? [] : argumentsOf(transaction, IN_LIST);
  return line(given.slice(0, MOST), decoded?.error && make("span", "bad", errorOf(decoded.error)));
}

/** Columns: name, head, width, and what makes the cell. */
const COLUMNS = [
  ["time", "Time", "var(--time)", ({ ledger_closed_at: at }) => clock(at)],
  ["ledger", "Ledger", "minmax(3rem, 5rem)", ({ ledger }) => ledgerLink(ledger)],
  ["order", "No.", "2.5rem", ({ application_order: order }) => make("span", "null", String(order))],
  ["tx", "Transaction", "minmax(4rem, 6.5rem)", ({ tx }) => transactionLink(tx, 4)],
  ["status", "Status", "5.2rem", statusOf],
  ["call", "Call or operation", "minmax(6rem, 13rem)", called],
  ["arguments", "Arguments", "minmax(0, 1fr)", summary],
  ["source", "Source", "minmax(4rem, 6.5rem)", ({ source_account: source }) => addressLink(source, 4)],
  ["fee", "Fee", "minmax(4rem, 8rem)", ({ fee_charged: fee }) => lumens(fee)],
];

/** Returns transactions without their XDR, which is most of them and which lists do not show. */
export const light = (transactions) =>
  transactions.map(({ envelope_xdr, result_xdr, meta_xdr, ...kept }) => kept);

/**
 * Creates a list of transactions. `path` is the route with its parameters, of which one is `decoded`; `without` names
 * columns that are left out because all rows have the same. The name of the contract `own` is left out.
 */
export function transactionRows({ label, path, without, empty, signal, own }) {
  const columns = COLUMNS.filter(([name]) => !without.includes(name));
  const read = pagesOf(`${path}&limit=100`, signal, ({ tx }) => tx);
  const rows = new Rows({
    label, keptAs: path, kind: `transactions ${without.map((name) => `no-${name}`).join(" ")}`, empty,
    heads: columns.map(([, head]) => head),
    row: (transaction) => columns.map(([, , , cell]) => cell(transaction, own)),
    more: async (last) => light(await read(last, rows)),
  });
  rows.element.style.setProperty("--columns", columns.map(([, , width]) => width).join(" "));
  return rows;
}
