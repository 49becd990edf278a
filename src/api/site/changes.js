// Ledger entries that a transaction changed.

import { addressLink } from "./address.js";
import { button, folded, make, put } from "./dom.js";
import { count, number, words } from "./format.js";
import { table } from "./table.js";
import { isObject, plain, typed } from "./value.js";

/** Changes that are shown at a time. */
const AT_ONCE = 50;
/** Length of a value, in letters of JSON, from which on it is shown closed. */
const LONG = 240;

const ENTRIES = words({ account: "account", trustline: "trust line", contract_data: "contract data", contract_code: "contract code", ttl: "time to live" });

function value(change, content) {
  if (content === undefined || content === null) return make("span", "null", "none");
  const shown = (most) => change.entry === "contract_data" ? typed(content, most) : plain(content, most);
  const text = JSON.stringify(content);
  if (text.length <= LONG) return shown();
  return folded("", make("span", "mono", `${shown(60).textContent}`), shown);
}

/** Returns the members of an entry that changed; the whole value where it has no members, or is typed. */
function changed({ entry, before, after }) {
  if (entry === "contract_data" || !isObject(before) || !isObject(after)) return after;
  return Object.fromEntries(Object.entries(after).filter(([name, inner]) => JSON.stringify(inner) !== JSON.stringify(before[name])));
}

/** Creates what an entry is after the change: of one that has members, those that changed. */
function afterwards(change) {
  const content = changed(change);
  return isObject(content) && Object.keys(content).length === 0 ? make("span", "null", "the same") : value(change, content);
}

/** Puts the name of the column before a value, which is shown where rows are not side by side. */
const labelled = (name, shown) => make("div", "", make("span", "label", `${name} `), shown);

function row(change) {
  const { change: kind, entry, contract, durability, key, before } = change;
  return [kind, `${ENTRIES[entry] ?? entry}${durability === "temporary" ? ", temporary" : ""}`, contract === undefined ? "" : addressLink(contract, 4),
    [labelled("Key", value(change, key)), "wide"], [labelled("Before", value(change, before)), "wide"],
    [labelled("After", afterwards(change)), "wide"]];
}

/** Creates the table of these changes. Those of times to live come last. */
export function changesTable({ changes, truncated }) {
  if (changes.length === 0) return make("p", "note", "It changed no entry.");
  const ordered = [...changes.filter(({ entry }) => entry !== "ttl"), ...changes.filter(({ entry }) => entry === "ttl")];
  const place = make("div", "changes");
  let most = AT_ONCE;
  const left = truncated ? " There are more, which the service has left out because they are too many or too large." : "";
  const draw = () => {
    const shown = Math.min(most, ordered.length);
    const more = () => {
      most += AT_ONCE;
      draw();
    };
    put(place,
      table(["Change", "Entry", "Contract", "Key", "Before", "After"], ordered.slice(0, shown).map(row), "Changed entries"),
      make("p", "note", `${number(shown)} of ${count(ordered.length, "change")}. After the update of an account, a trust line or a time to live, only what differs is shown.${left}`),
      shown < ordered.length ? button(`Show ${number(Math.min(AT_ONCE, ordered.length - shown))} more`, "quiet", more) : null);
  };
  draw();
  return place;
}
