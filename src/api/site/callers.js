// Who calls a contract: its newest transactions, and a summary of them.

import { addressLink } from "./address.js";
import { ask, askOn } from "./api.js";
import { make, put } from "./dom.js";
import { number } from "./format.js";
import { table } from "./table.js";
import { light, operationOf, transactionRows } from "./transactions.js";

/** Transactions of which the summary is made, and the rows of each of its tables. */
const SUMMARISED = 200;
const MOST = 8;
/** Transactions of a page of the service. */
const PAGE = 200;
/** How often newer transactions are asked for, in milliseconds. */
const EVERY = 8000;

/** Counts transactions by a key: pairs of a key and `{ calls, failed }`, the most frequent first. */
function counted(transactions, keyOf) {
  const found = new Map();
  for (const transaction of transactions) {
    const key = keyOf(transaction);
    const counts = found.get(key) ?? { calls: 0, failed: 0 };
    counts.calls += 1;
    if (!transaction.successful) counts.failed += 1;
    found.set(key, counts);
  }
  return [...found].sort(([, one], [, other]) => other.calls - one.calls);
}

function counts(head, pairs, show) {
  const row = ([key, { calls, failed }]) =>
    [show(key), [number(calls), "number"], [failed === 0 ? "0" : make("span", "bad", number(failed)), "number"]];
  const others = pairs.slice(MOST);
  const sum = (name) => [number(others.reduce((all, [, it]) => all + it[name], 0)), "number"];
  const rows = pairs.slice(0, MOST).map(row);
  if (others.length > 0) rows.push([`${number(others.length)} others`, sum("calls"), sum("failed")]);
  return make("div", "", table([head, ["Transactions", "number"], ["Failed", "number"]], rows, `Transactions by ${head.toLowerCase()}`));
}

/** Returns what a transaction called, as the contract of the page sees it. */
function functionOf(transaction, contract) {
  const { decoded } = transaction;
  if (decoded?.function === undefined) return JSON.stringify(["", operationOf(transaction) ?? "not known"]);
  return JSON.stringify([decoded.contract === contract ? "" : decoded.contract, decoded.function]);
}

function functionName(key) {
  const [through, name] = JSON.parse(key);
  const shown = make("span", "mono", name.slice(0, 64) || "(no name)");
  return through === "" ? shown : make("span", "", shown, " of ", addressLink(through, 4));
}

function errorOf({ decoded }) {
  const error = decoded?.error;
  return error ? JSON.stringify([error.name ?? "", error.code, error.contract]) : "";
}

function errorName(key) {
  if (key === "") return "No error of a contract is known";
  const [name, code, contract] = JSON.parse(key);
  const shown = name === "" ? `error ${code}` : `${name.slice(0, 64)} (${code})`;
  return make("span", "", make("span", "mono", shown), " of ", addressLink(contract, 4));
}

function summary(transactions, isAll, contract) {
  const failed = transactions.filter(({ successful }) => !successful);
  const of = isAll ? `All ${number(transactions.length)} stored transactions` : `The newest ${number(transactions.length)} transactions`;
  const tables = [
    counts("Function", counted(transactions, (it) => functionOf(it, contract)), functionName),
    counts("Caller", counted(transactions, (it) => it.source_account), (source) => addressLink(source)),
  ];
  if (failed.length > 0) tables.push(counts("Error", counted(failed, errorOf), errorName));
  return [make("p", "note", `${of}, of which ${number(failed.length)} failed:`), make("div", "contract-counts", ...tables)];
}

/** Fills a part of a contract's page. `token` returns the unit of its amounts; null if it has none, or it is not known. */
export async function callers(view, contract, body, token) {
  const { signal } = view;
  const rows = transactionRows({
    label: "Transactions that call it", path: `rest/txs/by-contract/${contract}`, without: ["order", "fee"], own: contract, signal, ask: askOn,
    token: ({ decoded }) => decoded?.contract === contract ? token() : null,
    empty: "No stored transaction calls it. Those before the first stored ledger, and those that retention has removed, are not listed.",
  });
  await rows.load();
  const place = make("div");
  put(body, place, rows.element);
  rows.draw();
  const summarise = () => {
    const newest = rows.items.slice(0, SUMMARISED);
    if (newest.length > 0) put(place, ...summary(newest, rows.isEnd && rows.items.length <= SUMMARISED, contract));
  };
  summarise();
  if (rows.items.length < SUMMARISED) {
    await rows.load();
    if (!rows.isEnd && rows.items.length < SUMMARISED) await rows.load();
    summarise();
  }
  const poll = async () => {
    try {
      const first = rows.items[0];
      const newest = first === undefined ? await rows.more(null) : await newer(contract, first, signal);
      if (newest.length === 0 || signal.aborted) return;
      // Of a whole page, others may lie between it and those that are known.
      if (newest.length === PAGE) rows.restart(newest);
      else rows.prepend(newest);
      summarise();
    } catch {
      // It is asked again; the head of the page tells when the service does not answer.
    }
  };
  setTimeout(() => view.every(EVERY, poll), EVERY);
}

/** Returns the transactions after this one, the newest first. Of more than a page, only the newest are known. */
async function newer(contract, first, signal) {
  const answer = await ask(`rest/txs/by-contract/${contract}?from=${first.ledger}&limit=${PAGE}&decoded=true`, { signal });
  const known = answer.findIndex(({ tx }) => tx === first.tx);
  return (known < 0 ? answer : answer.slice(0, known)).map(light);
}
