// Panels of the disk: the store by its parts, and by contract.

import { addressLink } from "./address.js";
import { draw, note } from "./dom.js";
import { bytes, duration, number } from "./format.js";
import { facts, table } from "./table.js";

/** Number of parts of the store that are shown by name. */
const PARTS = 6;

/** Draws a share of one. */
const meter = (share) => draw("svg",
  { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
  draw("rect", { class: "whole", width: 100, height: 8 }),
  draw("rect", { class: "part", width: 100 * share, height: 8 }));

/** Creates the panel of the store on disk, from `rest/status`. */
export function disk({ store, ...record }) {
  const largest = Object.entries(store.parts).filter(([, size]) => size > 0).sort(([, one], [, other]) => other - one);
  const rest = largest.slice(PARTS).reduce((sum, [, size]) => sum + size, 0);
  const parts = [...largest.slice(0, PARTS), ["all others", rest]].map(([name, size]) =>
    [name.replaceAll("_", " "), meter(store.bytes > 0 ? size / store.bytes : 0), [bytes(size), "number"]]);
  return [
    facts([
      ["Store", bytes(store.bytes)],
      ["Free on that disk", store.disk_free_bytes === undefined ? "–" : bytes(store.disk_free_bytes)],
      ["Events", number(store.events)],
      ["Transactions", number(store.transactions)],
      ["Version", record.version],
      ["Store format", record.store_format],
      ["Protocol", record.protocol_version ?? "–"],
      ["Running for", duration(record.uptime_seconds)],
    ], "figures"),
    table(["Part of the store", "Share", ["Size", "number"]], parts, "Disk by part of the store"),
    note("Without the SQL tables of programs. What was stored last is still in the write-ahead log."),
  ];
}

/** Creates the panel of the contracts that take the most space, from `rest/status`. */
export function contracts(sizes) {
  if (!sizes?.largest.length) {
    return [note("Nothing is known yet: the first estimate comes some seconds after the start.")];
  }
  const row = ({ contract_id: contract, share, bytes: size }) => [addressLink(contract), meter(share),
    [`${(100 * share).toFixed(1)} %`, "number"], [sizes.bytes > 0 ? bytes(size) : "–", "number"]];
  const { sampled_ledgers: sampled, of_ledgers: all, others } = sizes;
  const size = sizes.bytes > 0 ? bytes(sizes.bytes) : "all in the write-ahead log yet";
  const told = [
    sampled < all ? `Estimated from ${number(sampled)} of ${number(all)} ledgers, spread evenly.` : "",
    `The whole is that of all events and transactions with their indexes (${size}).`,
    others > 0 ? `Other contracts that take less: ${number(others)}.` : "",
  ];
  return [
    table(["Contract", "Part", ["Share", "number"], ["Size", "number"]], sizes.largest.map(row), "Disk by contract"),
    note(told.join(" ")),
  ];
}
