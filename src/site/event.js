// Events: in lists, and whole.

import { addressLink, eventLink, ledgerLink, transactionLink } from "./address.js";
import { askOn } from "./api.js";
import { having, make, put } from "./dom.js";
import { amount, clock, count } from "./format.js";
import { beginning } from "./health.js";
import { untab } from "./row_keys.js";
import { Rows } from "./rows.js";
import { assetOf, unitOf } from "./unit.js";
import { IN_LIST, plain, typed } from "./value.js";

/** Parameters that a list shows of an event. */
const MOST = 12;

/** Creates the element of an asset, `code:issuer` (SEP-11). The issuer is always shown: any issuer may use any code. */
function asset(text) {
  if (text === "native") return make("span", "unit", "XLM");
  const [code, issuer] = text.split(":");
  return make("span", "unit", code, issuer && [":", addressLink(issuer, 4)]);
}

function namedAsset(event, text) {
  return assetOf(event) !== null ? make("span", "value", asset(text))
    : make("span", "value", plain(text, IN_LIST), " ", make("small", "bad", "not said by this asset's contract"));
}

/**
 * Creates the element of an event's parameter, in a list with `most` letters of it. An amount of a token gets its unit
 * when that is known; by itself, the integer that the contract wrote stands beside it.
 */
export function parameter(event, name, value, most = Infinity) {
  if (name === "sep0011_asset" && typeof value === "string") return namedAsset(event, value);
  const made = plain(value, most);
  if (name !== "amount") return made;
  unitOf(event).then((unit) => {
    if (unit === null) return;
    // The author of a contract chooses its symbol, which may look like digits.
    put(made, make("span", "figure", amount(value, unit.decimals)), " ", unit.asset ? asset(unit.asset) : make("bdi", "unit", unit.symbol),
      most === Infinity ? [" ", make("small", "note", `(${value})`)] : null).className = "value";
    // The row of a long list was made before its unit was known.
    if (made.closest("[role=row]") !== null) untab(made);
  });
  return made;
}

const wordOf = (topic) => topic?.symbol ?? topic?.string ?? "";

/** Returns the name of an event: as its contract declares it, or its leading symbols. */
export function wordsOf({ decoded: { name, topics } }) {
  const words = name ?? topics.slice(0, 2).map(wordOf).filter(Boolean).join(" ");
  return words.slice(0, 64) || "(no name)";
}

/** Creates the name of an event as a link to its page. */
export function nameOf(event) {
  const made = eventLink(event.id);
  made.textContent = wordsOf(event);
  return made;
}

/** Names of parameters that are the parties of a payment, and how many of them stand before everything else. */
const PARTIES = ["from", "to", "spender", "admin"];
const MOST_PARTIES = 2;

/** Whether a parameter is a party: its value is an address and nothing else. */
const isParty = ([name, value]) => PARTIES.includes(name) && value.childNodes?.length === 1
  && value.firstElementChild?.matches(".address");

/**
 * Creates the values of an event or a call in one line: pairs of a name, empty if it has none, and an element. Narrow
 * lists cut the end off: the parties and the amount come first, and what is left of them is never cut.
 */
export function line(pairs, ...before) {
  const parties = pairs.filter(isParty).slice(0, MOST_PARTIES);
  const amounts = pairs.filter(([name]) => name === "amount");
  const rest = pairs.filter((pair) => !parties.includes(pair) && !amounts.includes(pair));
  const show = (kind) => ([name, value]) => make("span", kind, name && make("i", "", `${name} `), value, " ");
  return make("span", "summary", before, parties.map(show("party")), amounts.map(show("amount")),
    rest.length === 0 ? null : make("span", "rest", rest.map(show(""))));
}

/** Creates the parameters of an event in one line; of one without a declaration, its topics and data. */
function summary(event) {
  const { params, topics, data } = event.decoded;
  if (params === null) {
    // The first word is its name already.
    const values = [...wordOf(topics[0]) === "" ? topics : topics.slice(1), data];
    return line(values.slice(0, MOST).map((value) => ["", typed(value, IN_LIST)]));
  }
  // The unit of the amount names the asset.
  const isInUnit = assetOf(event) !== null && params.amount !== undefined;
  const shown = Object.entries(params).filter(([name]) => !isInUnit || name !== "sep0011_asset").slice(0, MOST);
  return line(shown.map(([name, value]) =>
    [name === "sep0011_asset" ? "" : name, parameter(event, name, value, IN_LIST)]));
}

const COLUMNS = [
  ["time", "Time", ({ ledger_closed_at: at }) => clock(at)],
  ["ledger", "Ledger", ({ ledger }) => ledgerLink(ledger)],
  ["contract", "Contract", ({ contract_id: contract }) => contract === "" ? "" : addressLink(contract, 4)],
  ["name", "Event", nameOf],
  ["summary", "Parameters", summary],
  ["tx", "Transaction", ({ tx }) => transactionLink(tx, 4)],
];

/** Returns what reads a list page by page. `cursorOf` tells what of the last item of a page continues behind it. */
export const pagesOf = (path, signal, cursorOf) => (last, rows) => {
  const searched = () => put(rows.said, "Nothing is found so far; searching on …");
  return askOn(`${path}${last === null ? "" : `&cursor=${cursorOf(last)}`}`, { signal, searched });
};

/**
 * Creates a list of events. `path` is the route with its parameters, of which one is `decoded`; `without` names columns
 * that are left out because all rows have the same.
 */
export function eventRows({ label, path, without = [], empty, signal }) {
  const columns = COLUMNS.filter(([name]) => !without.includes(name));
  const read = pagesOf(`${path}&limit=200`, signal, ({ id }) => id);
  const rows = new Rows({
    label, keptAs: path, kind: `events ${without.map((name) => `no-${name}`).join(" ")}`, empty,
    heads: columns.map(([, head]) => head),
    row: (event) => columns.map(([, , cell]) => cell(event)),
    more: async (last) => {
      // The network tells which contract is that of an asset.
      await beginning;
      return read(last, rows);
    },
  });
  return rows;
}

/**
 * Returns a function that lists events in a place, instead of those that it has listed there before. How many those of a
 * further list are is said aloud.
 */
export function listing(view, place) {
  let leaving = new AbortController();
  let isFirst = true;
  const [body, aloud] = [make("div"), having(make("p", "offscreen"), { role: "status" })];
  put(place, body, aloud);
  return (options, begun = () => {}) => {
    leaving.abort();
    leaving = new AbortController();
    const signal = AbortSignal.any([view.signal, leaving.signal]);
    const said = isFirst ? () => "" : (rows) => rows.isEnd ? rows.extent()
      : `${count(rows.items.length, "event")}, and more when you scroll.`;
    isFirst = false;
    const list = make("div");
    put(body, list);
    aloud.textContent = "";
    return view.fill(list, async () => {
      const rows = eventRows({ ...options, signal });
      put(list, rows.element);
      await rows.load();
      aloud.textContent = said(rows);
      begun(rows, signal);
    });
  };
}
