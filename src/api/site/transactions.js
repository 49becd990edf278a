// Transactions: in lists, and what they called.

import { addressLink, ledgerLink, transactionLink } from "./address.js";
import { make } from "./dom.js";
import { parameter } from "./event.js";
import { clock, lumens, words } from "./format.js";
import { Rows, fitTimes } from "./rows.js";
import { IN_LIST, plain, typed } from "./value.js";

/** Operations of smart-contract transactions that call no function. */
const OPERATIONS = words({
  upload: "upload of code", create: "creation of a contract", extend: "extension of entries", restore: "restoration of entries",
});

/** Returns the name of the operation of a transaction that calls no function; null if it calls one, or it is not known. */
export const operationOf = ({ decoded }) => decoded?.operation === undefined ? null : OPERATIONS[decoded.operation] ?? decoded.operation;

/** Creates the word for whether a transaction succeeded. */
export const statusOf = ({ successful }) => make("span", successful ? "good" : "bad", successful ? "succeeded" : "failed");

/** Creates an argument or returned value: without types if the function's declaration is known, otherwise with them. */
export const argument = ({ decoded }, value, most) => Array.isArray(decoded.args) ? typed(value, most) : plain(value, most);

/** Returns the arguments of a call as pairs of a name, empty if it is not known, and a value. */
export function argumentsOf({ decoded }) {
  if (Array.isArray(decoded?.args)) return decoded.args.map((value) => ["", value]);
  return Object.entries(decoded?.args ?? {});
}

function called(transaction, withContract) {
  const { decoded } = transaction;
  if (decoded?.function === undefined) return operationOf(transaction) ?? make("span", "null", "not known");
  const name = make("b", "mono", decoded.function.slice(0, 64) || "(no name)");
  return withContract ? make("span", "", addressLink(decoded.contract, 4), " ", name) : name;
}

function summary(transaction, token) {
  const { decoded } = transaction;
  const shown = argumentsOf(transaction).slice(0, 12);
  // Functions of tokens (SEP-41) are called as their events.
  const asEvent = { decoded: { name: decoded?.function?.replace(/_from$/, ""), params: decoded?.args } };
  const one = (name, value) => token !== null && name === "amount" ? parameter(asEvent, name, value, token) : argument(transaction, value, IN_LIST);
  const error = transaction.decoded?.error;
  const failure = error && make("span", "bad", error.name ? `${error.name.slice(0, 64)} (${error.code})` : `error ${error.code}`);
  return make("span", "summary", failure, shown.map(([name, value]) => make("span", "", name && make("i", "", `${name} `), one(name, value))));
}

/** Columns: name, head, width, and what makes the cell. */
const COLUMNS = [
  ["time", "Time", "var(--time, 5rem)", ({ ledger_closed_at: at }) => clock(at)],
  ["ledger", "Ledger", "minmax(3rem, 5rem)", ({ ledger }) => ledgerLink(ledger)],
  ["order", "No.", "2.5rem", ({ application_order: order }) => make("span", "null", String(order))],
  ["tx", "Transaction", "minmax(4rem, 6.5rem)", ({ tx }) => transactionLink(tx, 4)],
  ["status", "Status", "5.2rem", statusOf],
  ["call", "Call or operation", "minmax(6rem, 13rem)", (transaction, token, own) => called(transaction, transaction.decoded?.contract !== own)],
  ["function", "Function", "minmax(5rem, 11rem)", (transaction) => called(transaction, false)],
  ["arguments", "Arguments", "minmax(0, 1fr)", (transaction, token) => summary(transaction, token(transaction))],
  ["source", "Source", "minmax(4rem, 6.5rem)", ({ source_account: source }) => addressLink(source, 4)],
  ["fee", "Fee", "minmax(4rem, 8rem)", ({ fee_charged: fee }) => lumens(fee)],
];

/** Returns a transaction without its XDR, which is most of it and which lists do not show. */
export function light(transaction) {
  const kept = { ...transaction };
  for (const name of ["envelope_xdr", "result_xdr", "meta_xdr"]) delete kept[name];
  return kept;
}

/**
 * Creates a list of transactions. `path` is the route with its parameters; `without` names columns that are left out
 * because all rows have the same: time, ledger, order, contract, source, and others of those above. `token` returns the
 * unit of the amount of a transaction's call; null if that is not known. The name of the contract `own` is left out.
 */
export function transactionRows({ label, path, without = [], empty = "There are no such transactions.", signal, ask, pages = true, token = () => null, own = "" }) {
  const left = [...without, without.includes("contract") ? "call" : "function"];
  const columns = COLUMNS.filter(([name]) => !left.includes(name));
  const page = async (last) => {
    if (last !== null && !pages) return [];
    const joint = path.includes("?") ? "&" : "?";
    const answer = await ask(`${path}${joint}decoded=true${pages ? "&limit=100" : ""}${last === null ? "" : `&cursor=${last.tx}`}`, { signal });
    fitTimes(rows.element, answer);
    return answer.map(light);
  };
  const rows = new Rows({
    label, kind: "transactions", empty,
    heads: columns.map(([, head]) => head), row: (transaction) => columns.map(([, , , cell]) => cell(transaction, token, own)), more: page,
  });
  rows.element.style.setProperty("--columns", columns.map(([, , width]) => width).join(" "));
  return rows;
}
