// The result of a trial: the runs, and the rows that they emitted.

import { addressLink, ledgerLink, ledgerRanges, transactionLink } from "../address.js";
import { make, note } from "../dom.js";
import { count, number } from "../format.js";
import { table } from "../table.js";
import { plain } from "../value.js";

/** Largest number of rows of a table that are shown. */
const MOST = 100;

const HEADS = ["Ledger", "Transaction", "Result", "Fidelity", ["Fuel", "number"], ["Rows", "number"], "Error"];

function run({ fidelity, fidelity_difference: difference, status, ...told }) {
  return [ledgerLink(told.ledger_sequence), transactionLink(told.tx_hash),
    [status, status === "error" ? "bad" : status === "success" ? "good" : "note"],
    difference ? [`${fidelity}: ${difference}`, "wide"] : fidelity, [number(told.fuel), "number"],
    [number(told.rows.length), "number"], [told.error_message ?? "", "wide"]];
}

function emitted(target, columns, runs) {
  const all = runs.flatMap(({ ledger_sequence: ledger, rows }) => rows.map((row) => ({ ledger, ...row })));
  const found = all.filter((row) => row.table === target);
  const names = columns.map(({ name }) => name);
  const cells = ({ ledger, contract_id: contract, values }) =>
    [ledgerLink(ledger), addressLink(contract, 4), ...names.map((name) => [plain(values[name] ?? null), "mono"])];
  return [
    make("h3", "", `${target}: ${count(found.length, "row")}`),
    note(`Columns: ${columns.map(({ name, type }) => `${name} ${type}`).join(", ") || "none"}.`,
      found.length > MOST ? ` The first ${MOST} rows are shown.` : ""),
    found.length === 0 ? null
      : table(["_ledger", "contract_id", ...names], found.slice(0, MOST).map(cells), `Rows of ${target}`),
  ];
}

/** Creates the elements of a trial's answer. */
export function trial({ tables, transactions, missing_ledgers: missing }) {
  if (transactions.length === 0) return note("No stored transaction calls these contracts.");
  return [
    table(HEADS, transactions.map(run), "Runs of the trial"),
    missing.length === 0 ? null
      : make("p", "warning", "Ledgers that were searched and are not stored in full: ", ledgerRanges(missing), "."),
    ...Object.entries(tables).flatMap(([target, columns]) => emitted(target, columns, transactions)),
  ];
}
