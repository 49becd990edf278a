// Panels of the disk: the store by its parts, and by contract.

import { addressLink } from "./address.js";
import { draw, make } from "./dom.js";
import { bytes, count, duration, number } from "./format.js";
import { facts, table } from "./table.js";

/** Number of parts of the store that are shown by name. */
const PARTS = 6;

function meter(part, whole) {
  const width = whole > 0 ? 100 * part / whole : 0;
  return draw("svg", { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { class: "whole", width: 100, height: 8 }), draw("rect", { class: "part", width, height: 8 }));
}

/** Creates the panel of the store on disk, from `rest/status`. */
export function disk(record) {
  const { store } = record;
  const largest = Object.entries(store.parts).sort(([, a], [, b]) => b - a);
  const shown = largest.slice(0, PARTS).filter(([, size]) => size > 0);
  const rest = largest.slice(shown.length).reduce((sum, [, size]) => sum + size, 0);
  const parts = [...shown, ["all others", rest]].map(([name, size]) =>
    [name.replaceAll("_", " "), meter(size, store.bytes), [bytes(size), "number"]]);
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
    make("p", "note", "The SQL tables of programs are not included. The write-ahead log holds what was stored last; its content moves to the other parts."),
  ];
}

/** Creates the panel of the contracts that take the most space, from `rest/status`. */
export function contracts(sizes) {
  if (sizes === undefined || sizes.largest.length === 0) return [make("p", "note", "Nothing is known yet: the first estimate comes some seconds after the start.")];
  const row = ({ contract_id: contract, share, bytes: size }) => [addressLink(contract), meter(share, 1),
    [`${(100 * share).toFixed(1)} %`, "number"], [sizes.bytes > 0 ? bytes(size) : "–", "number"]];
  const looked = sizes.sampled_ledgers < sizes.of_ledgers
    ? `Estimated from ${number(sizes.sampled_ledgers)} of ${number(sizes.of_ledgers)} ledgers, spread evenly. ` : "";
  const whole = sizes.bytes > 0 ? bytes(sizes.bytes) : "nothing on disk yet: all is in the write-ahead log";
  const others = sizes.others > 0 ? ` ${count(sizes.others, "other contract")} take${sizes.others === 1 ? "s" : ""} less.` : "";
  return [
    table(["Contract", "Part", ["Share", "number"], ["Size", "number"]], sizes.largest.map(row), "Disk by contract"),
    make("p", "note", `${looked}The whole is that of all events and transactions with their indexes (${whole}).${others}`),
  ];
}
