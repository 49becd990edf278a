// Ledger entries that a transaction changed.

import { addressLink } from "./address.js";
import { button, make, put } from "./dom.js";
import { count, number } from "./format.js";
import { table } from "./table.js";
import { plain, typed } from "./value.js";

/** Changes that are shown at a time. */
const AT_ONCE = 50;
/** Length of a value, in letters of JSON, from which on it is shown closed. */
const LONG = 240;

const ENTRIES = { account: "account", trustline: "trust line", contract_data: "contract data", contract_code: "contract code", ttl: "time to live" };

function value(change, content) {
  if (content === undefined || content === null) return make("span", "null", "none");
  const shown = () => change.entry === "contract_data" ? typed(content) : plain(content);
  const text = JSON.stringify(content);
  if (text.length <= LONG) return shown();
  const body = make("div");
  const made = make("details", "", make("summary", "mono", `${shown().textContent.slice(0, 60)}…`), body);
  made.addEventListener("toggle", () => { if (made.open && body.childElementCount === 0) put(body, shown()); });
  return made;
}

/** Puts the name of the column before a value, which is shown where rows are not side by side. */
const labelled = (name, shown) => make("div", "", make("span", "label", `${name} `), shown);

function row(change) {
  const { change: kind, entry, contract, durability, key, before, after } = change;
  return [kind, `${ENTRIES[entry] ?? entry}${durability === "temporary" ? ", temporary" : ""}`, contract === undefined ? "" : addressLink(contract, 4),
    [labelled("Key", value(change, key)), "wide"], [labelled("Before", value(change, before)), "wide"],
    [labelled("After", value(change, after)), "wide"]];
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
      make("p", "note", `${number(shown)} of ${count(ordered.length, "change")}.${left}`),
      shown < ordered.length ? button(`Show ${number(Math.min(AT_ONCE, ordered.length - shown))} more`, "quiet", more) : null);
  };
  draw();
  return place;
}
