// The result of a trial: the runs, and the rows that they emitted.

import { addressLink, ledgerLink, ledgerRanges, transactionLink } from "./address.js";
import { make } from "./dom.js";
import { count, number } from "./format.js";
import { table } from "./table.js";
import { plain } from "./value.js";

/** Largest number of rows of a table that are shown. */
const MOST = 100;

function run({ ledger_sequence: ledger, tx_hash: hash, status, fidelity, fidelity_difference: difference, fuel, rows, error_message: because }) {
  return [ledgerLink(ledger), transactionLink(hash), [status, status === "error" ? "bad" : status === "success" ? "good" : "note"],
    [difference ? `${fidelity}: ${difference}` : fidelity, difference ? "wide" : ""], [number(fuel), "number"], [number(rows.length), "number"],
    [because ?? "", "wide"]];
}

function emitted(target, columns, runs) {
  const found = runs.flatMap(({ ledger_sequence: ledger, rows }) => rows.filter((row) => row.table === target).map((row) => [ledger, row]));
  const heads = ["_ledger", "contract_id", ...columns.map(({ name }) => name)];
  const rows = found.slice(0, MOST).map(([ledger, { contract_id: contract, values }]) =>
    [ledgerLink(ledger), addressLink(contract, 4), ...columns.map(({ name }) => [plain(values[name] ?? null), "mono"])]);
  return [
    make("h3", "", `${target}: ${count(found.length, "row")}`),
    make("p", "note", `Columns: ${columns.map(({ name, type }) => `${name} ${type}`).join(", ") || "none"}.`,
      found.length > MOST ? ` The first ${MOST} rows are shown.` : ""),
    rows.length > 0 ? table(heads, rows, `Rows of ${target}`) : null,
  ];
}

/** Creates the elements of a trial's answer. */
export function trial({ tables, transactions, missing_ledgers: missing }) {
  if (transactions.length === 0) return make("p", "note", "No stored transaction calls these contracts.");
  return [
    table(["Ledger", "Transaction", "Result", "Fidelity", ["Fuel", "number"], ["Rows", "number"], "Error"], transactions.map(run), "Runs of the trial"),
    missing.length > 0 ? make("p", "warning", "Ledgers that were searched and are not stored in full: ", ledgerRanges(missing), ".") : null,
    ...Object.entries(tables).flatMap(([target, columns]) => emitted(target, columns, transactions)),
  ].filter(Boolean);
}
