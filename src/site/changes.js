// Ledger entries that a transaction changed.

import { addressLink } from "./address.js";
import { make, note } from "./dom.js";
import { words } from "./format.js";
import { pieces } from "./pieces.js";
import { table } from "./table.js";
import { foldedLong, isObject, plain, typed } from "./value.js";

/** Changes that are shown at a time. */
const AT_ONCE = 50;

const ENTRIES = words({
  trustline: "trust line", contract_data: "contract data", contract_code: "contract code", ttl: "time to live",
});

/** Creates a value of an entry. */
function value({ entry }, content) {
  const show = entry === "contract_data" ? typed : plain;
  const isThere = content !== undefined && content !== null;
  return [isThere ? foldedLong(content, show) : make("span", "null", "none"), "wide"];
}

/** Creates what an entry is after the change; of one with members, those that differ. */
function after(change) {
  const { entry, before, after: now } = change;
  if (entry === "contract_data" || !isObject(before) || !isObject(now)) return value(change, now);
  const differs = ([name, inner]) => JSON.stringify(inner) !== JSON.stringify(before[name]);
  return value(change, Object.fromEntries(Object.entries(now).filter(differs)));
}

function row(change) {
  const { change: kind, entry, contract, durability, key, before } = change;
  return [kind, `${ENTRIES[entry] ?? entry}${durability === "temporary" ? ", temporary" : ""}`,
    contract === undefined ? "" : addressLink(contract, 4),
    value(change, key), value(change, before), after(change)];
}

/** Creates the table of these changes. Those of times to live come last. */
export function changesTable({ changes, truncated }) {
  if (changes.length === 0) return note("It changed no entry.");
  const ordered = changes.toSorted((one, other) => (one.entry === "ttl") - (other.entry === "ttl"));
  const heads = ["Change", "Entry", "Contract", "Key", "Before", "After"];
  return make("div", "changes",
    pieces(ordered, AT_ONCE, (some) => table(heads, some.map(row), "Changed entries")),
    note("After the update of an account, a trust line or a time to live, only what differs is shown.",
      truncated ? " There are more changes, too many or too large for the answer." : ""));
}
