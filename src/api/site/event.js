// Events: in lists, and whole.

import { addressLink, eventLink, ledgerLink, transactionLink } from "./address.js";
import { make } from "./dom.js";
import { amount, clock } from "./format.js";
import { Rows, fitTimes } from "./rows.js";
import { plain, typed } from "./value.js";

/** Events whose parameter `amount` is in the smallest unit of the token that emits them (SEP-41, CAP-67). */
const OF_TOKENS = ["transfer", "mint", "burn", "clawback", "approve", "fee"];

/**
 * Returns the unit of an event's amount, `{ decimals, symbol }`; null if it has none, or it is not known. Asset contracts
 * have 7 decimals and name the asset in the event (CAP-67); of others, `token` tells what the contract says.
 */
export function unitOf({ decoded }, token = null) {
  if (!OF_TOKENS.includes(decoded?.name) || decoded.params?.amount === undefined) return null;
  if (token !== null) return token;
  const asset = decoded.params.sep0011_asset;
  return typeof asset === "string" ? { decimals: 7, symbol: asset === "native" ? "XLM" : asset.split(":")[0] } : null;
}

/** Creates the element of an asset, `code:issuer` (SEP-11). The issuer is always shown: any contract may use any code. */
function asset(text) {
  const [code, issuer] = text.split(":");
  return make("span", "value mono", code, issuer && [":", addressLink(issuer, 4)]);
}

/** Creates the element of an event's parameter. */
export function parameter(event, name, value, token = null) {
  if (name === "sep0011_asset" && typeof value === "string") return asset(value);
  const unit = name === "amount" ? unitOf(event, token) : null;
  return unit === null ? plain(value) : make("span", "value", `${amount(value, unit.decimals)} ${(unit.symbol ?? "").slice(0, 32)}`);
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
  const shown = params === null ? [...topics.slice(event.decoded.name === null ? 1 : 0).map((topic) => ["", typed(topic)]), ["", typed(data)]]
    : Object.entries(params).map(([name, value]) => [name === "sep0011_asset" ? "" : `${name} `, parameter(event, name, value, token)]);
  return make("span", "summary", shown.slice(0, 12).map(([name, value]) => make("span", "", name && make("i", "", name), value)));
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
    fitTimes(rows.element, answer);
    return answer;
  };
  const rows = new Rows({
    label, kind: `events ${without.map((name) => `no-${name}`).join(" ")}`, empty,
    heads: columns.map(([, head]) => head), row: (event) => columns.map(([, , cell]) => cell(event)), more: page,
  });
  return rows;
}
