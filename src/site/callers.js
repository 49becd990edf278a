// Who calls a contract: its newest transactions, and a summary of them.

import { addressLink } from "./address.js";
import { ask } from "./api.js";
import { make, note, put } from "./dom.js";
import { number } from "./format.js";
import { table } from "./table.js";
import { errorOf, light, operationOf, transactionRows } from "./transactions.js";

/** Transactions of a page of the service, of which the summary is made, and the rows of each of its tables. */
const PAGE = 100;
const MOST = 8;
/** How often newer transactions are asked for, in milliseconds. */
const EVERY = 8000;

/**
 * Creates a table of how many transactions have the same key, the most frequent first. `show` creates its name from one
 * of them.
 */
function counts(head, transactions, keyOf, show) {
  const groups = [...Map.groupBy(transactions, keyOf).values()].sort((one, other) => other.length - one.length);
  const row = (name, group) => {
    const failed = group.filter(({ successful }) => !successful).length;
    return [name, [number(group.length), "number"],
      [failed === 0 ? "0" : make("span", "bad", number(failed)), "number"]];
  };
  const others = groups.slice(MOST);
  const rows = groups.slice(0, MOST).map((group) => row(show(group[0]), group));
  if (others.length > 0) rows.push(row(others.length === 1 ? "1 other" : `${number(others.length)} others`, others.flat()));
  const heads = [head, ["Transactions", "number"], ["Failed", "number"]];
  return make("div", "", table(heads, rows, `Transactions by ${head.toLowerCase()}`, false));
}

/** Creates a name in a contract: where there is little room, the name gives way and the address does not. */
const nameOf = (name, contract) => make("span", "named-of", name, " of ", addressLink(contract, 4));

/** Creates what a transaction called, as the contract of the page sees it. */
function called(transaction, contract) {
  const { decoded } = transaction;
  if (decoded?.function === undefined) return operationOf(transaction) ?? "not known";
  const name = make("span", "name mono", decoded.function.slice(0, 64) || "(no name)");
  return decoded.contract === contract ? name : nameOf(name, decoded.contract);
}

function failure({ decoded }) {
  const error = decoded?.error;
  return error ? nameOf(make("span", "name mono", errorOf(error)), error.contract)
    : "without an error of a contract";
}

function summary(transactions, isAll, contract) {
  const failed = transactions.filter(({ successful }) => !successful);
  const some = number(transactions.length);
  const keyOf = (...names) => ({ decoded }) => JSON.stringify(names.map((name) => decoded?.[name]));
  return [
    note(transactions.length === 1 ? "One stored transaction"
      : isAll ? `All ${some} stored transactions` : `The newest ${some} transactions`,
    failed.length === 0 ? ", without a failure:" : `, of which ${number(failed.length)} failed:`),
    make("div", "contract-counts",
      counts("Function", transactions, keyOf("contract", "function", "operation"), (it) => called(it, contract)),
      counts("Caller", transactions, (it) => it.source_account, (it) => addressLink(it.source_account, 4)),
      failed.length === 0 ? null : counts("Error", failed, keyOf("error"), failure)),
  ];
}

/** Fills a part of a contract's page. */
export async function callers(view, contract, body) {
  const { signal } = view;
  const path = `rest/txs/by-contract/${contract}?decoded=true`;
  const rows = transactionRows({
    label: "Transactions that call it", path, without: ["order", "fee"], own: contract, signal,
    empty: "No stored transaction calls it. Those before the first stored ledger, and those that retention has "
      + "removed, are not listed.",
  });
  const place = make("div");
  put(body, place, rows.element);
  const summarise = () => {
    const newest = rows.items.slice(0, PAGE);
    const isAll = rows.isEnd && rows.items.length <= PAGE;
    if (newest.length > 0) put(place, ...summary(newest, isAll, contract));
  };
  // Only an empty page is the end.
  await rows.load();
  if (rows.items.length < PAGE) await rows.load();
  summarise();
  const poll = async () => {
    const [first] = rows.items;
    const newest = light(await ask(`${path}&from=${first?.ledger ?? 1}&limit=${PAGE}`, { signal }));
    const known = newest.findIndex(({ tx }) => tx === first?.tx);
    if (known === 0 || newest.length === 0) return;
    // Of a whole page, others may lie between it and those that are known.
    if (known > 0) rows.prepend(newest.slice(0, known));
    else rows.restart(newest);
    summarise();
  };
  // It is asked again; the head of the page tells when the service does not answer.
  setTimeout(() => view.every(EVERY, () => poll().catch(() => {})), EVERY);
}
