// Events: in lists, and whole.

import { addressLink, eventLink, ledgerLink, transactionLink } from "./address.js";
import { contractOf } from "./asset.js";
import { make } from "./dom.js";
import { amount, clock } from "./format.js";
import { beginning, latest } from "./health.js";
import { Rows, fitTimes } from "./rows.js";
import { IN_LIST, plain, typed } from "./value.js";

/** Parameters that a list shows of an event. */
const MOST = 12;

/** Events whose parameter `amount` is in the smallest unit of the token that emits them (SEP-41, CAP-67). */
const OF_TOKENS = ["transfer", "mint", "burn", "clawback", "approve", "fee"];

/** Returns the asset of an event of its contract; null of other events. Any contract may name any asset. */
function assetOf({ contract_id: contract, decoded }) {
  const asset = decoded?.params?.sep0011_asset;
  return typeof asset === "string" && latest !== null && contractOf(asset, latest.network_passphrase) === contract ? asset : null;
}

/**
 * Returns the unit of an event's amount, `{ decimals, symbol }`; null if it has none, or it is not known. Asset contracts
 * have 7 decimals and name the asset in the event (CAP-67); of others, `token` tells what the contract says.
 */
export function unitOf(event, token = null) {
  const { decoded } = event;
  if (!OF_TOKENS.includes(decoded?.name) || decoded.params?.amount === undefined) return null;
  if (token !== null) return token;
  const asset = assetOf(event);
  return asset === null ? null : { decimals: 7, symbol: asset === "native" ? "XLM" : asset.split(":")[0] };
}

/** Creates the element of an asset, `code:issuer` (SEP-11). The issuer is always shown: any issuer may use any code. */
function asset(text) {
  const [code, issuer] = text.split(":");
  return make("span", "value mono", code, issuer && [":", addressLink(issuer, 4)]);
}

/** Creates the element of an asset that an event names. */
function namedAsset(event, text) {
  return assetOf(event) !== null ? asset(text)
    : make("span", "value", plain(text, IN_LIST), " ", make("small", "bad", "not said by this asset's contract"));
}

/** Creates the element of an event's parameter. */
export function parameter(event, name, value, token = null, most = Infinity) {
  if (name === "sep0011_asset" && typeof value === "string") return namedAsset(event, value);
  const unit = name === "amount" ? unitOf(event, token) : null;
  // The author of a contract chooses its symbol, which may look like digits.
  return unit === null ? plain(value, most) : make("span", "value", `${amount(value, unit.decimals)} `, make("bdi", "unit", (unit.symbol ?? "").slice(0, 32)));
}

/** Creates the element of an amount and its asset, which names the issuer, too; null if they do not belong together. */
function amountOfAsset(event, token) {
  const unit = unitOf(event, token);
  const { amount: value } = event.decoded.params;
  const named = assetOf(event);
  if (unit === null || named === null) return null;
  const code = named === "native" ? "XLM" : named.split(":")[0];
  return code !== unit.symbol ? null : make("span", "value", `${amount(value, unit.decimals)} `, named === "native" ? code : asset(named));
}

/** Returns the name of an event: as its contract declares it, or its leading symbols. */
export function wordsOf({ decoded: { name, topics } }) {
  const words = name ?? topics.slice(0, 2).map((topic) => topic.symbol ?? topic.string ?? "").filter(Boolean).join(" ");
  return words.slice(0, 64) || "(no name)";
}

/** Creates the name of an event as a link to its page. */
export function nameOf(event) {
  const made = eventLink(event.id);
  made.textContent = wordsOf(event);
  return made;
}

/** Creates the parameters of an event in one line; of one without a declaration, its topics and data. */
export function summary(event, token = null) {
  const { params, topics, data } = event.decoded;
  const ofAsset = params === null ? null : amountOfAsset(event, token);
  const isNamed = event.decoded.name === null && (topics[0]?.symbol ?? topics[0]?.string ?? "") !== "";
  const shown = params === null ? [...topics.slice(isNamed ? 1 : 0), data].map((value) => ["", typed(value, IN_LIST)])
    : Object.entries(params).filter(([name]) => ofAsset === null || !["sep0011_asset", "amount"].includes(name)).slice(0, MOST)
      .map(([name, value]) => [name === "sep0011_asset" ? "" : `${name} `, parameter(event, name, value, token, IN_LIST)]);
  // Narrow lists cut the end off: the amount comes first.
  if (ofAsset) shown.unshift(["amount ", ofAsset]);
  return make("span", "summary", shown.slice(0, MOST).map(([name, value]) => make("span", "", name && make("i", "", name), value)));
}

/**
 * Creates a list of events. `path` is the route with its parameters; `without` names columns that are left out because
 * all rows have the same.
 */
export function eventRows({ label, path, without = [], token = null, empty = "There are no such events.", signal, ask, pages = true }) {
  const columns = [
    ["time", "Time", ({ ledger_closed_at: at }) => clock(at)],
    ["ledger", "Ledger", ({ ledger }) => ledgerLink(ledger)],
    ["contract", "Contract", ({ contract_id: contract }) => contract === "" ? "" : addressLink(contract, 4)],
    ["name", "Event", nameOf],
    ["summary", "Parameters", (event) => summary(event, token)],
    ["tx", "Transaction", ({ tx }) => transactionLink(tx, 4)],
  ].filter(([name]) => !without.includes(name));
  const page = async (last) => {
    if (last !== null && !pages) return [];
    const joint = path.includes("?") ? "&" : "?";
    const answer = await ask(`${path}${joint}decoded=true${pages ? "&limit=200" : ""}${last === null ? "" : `&cursor=${last.id}`}`, { signal });
    await beginning;
    fitTimes(rows.element, answer);
    return answer;
  };
  const rows = new Rows({
    label, kind: `events ${without.map((name) => `no-${name}`).join(" ")}`, empty,
    heads: columns.map(([, head]) => head), row: (event) => columns.map(([, , cell]) => cell(event)), more: page,
  });
  return rows;
}
