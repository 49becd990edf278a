// Contract values as text and links: values with their types, as the service decodes them (SEP-51), and parameters.

import { addressLink, pathOf } from "./address.js";
import { make } from "./dom.js";

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Puts a comma between parts. */
const joined = (list) => list.flatMap((part, index) => index === 0 ? part : [", ", ...part]);

function parts(value) {
  if (typeof value === "string") return value === "ledger_key_contract_instance" ? ["instance"] : [value];
  if (!isObject(value)) return [JSON.stringify(value)];
  const [[kind, inner]] = Object.entries(value).length === 1 ? Object.entries(value) : [[null, value]];
  switch (kind) {
    case "symbol": case "u32": case "i32": case "u64": case "i64": case "u128": case "i128": case "u256": case "i256":
    case "bool": return [String(inner)];
    case "string": return [JSON.stringify(inner)];
    case "bytes": return [`0x${inner}`];
    case "duration": return [`${inner} s`];
    case "timepoint": return [timepoint(inner)];
    case "address": return [address(String(inner))];
    case "vec": return ["[", ...joined((inner ?? []).map(parts)), "]"];
    case "map": return ["{", ...joined((inner ?? []).map(({ key, val }) => [...parts(key), ": ", ...parts(val)])), "}"];
    case "error": return [`error ${JSON.stringify(inner)}`];
    default: return [JSON.stringify(value)];
  }
}

const address = (text) => pathOf(text) === null ? text : addressLink(text);

/** Formats UNIX seconds, followed by the time if `Date` can represent them. */
function timepoint(seconds) {
  const date = new Date(Number(seconds) * 1000);
  return Number.isNaN(date.getTime()) ? String(seconds) : `${seconds} (${date.toISOString().slice(0, 19)}Z)`;
}

function plainParts(value) {
  if (typeof value === "string") return [address(value)];
  if (Array.isArray(value)) return ["[", ...joined(value.map(plainParts)), "]"];
  if (isObject(value)) return ["{", ...joined(Object.entries(value).map(([name, inner]) => [`${name}: `, ...plainParts(inner)])), "}"];
  return [String(value)];
}

/** Creates an element with a value with its type, such as `{"u64": "5"}`. Addresses are links. */
export const typed = (value) => make("span", "value mono", parts(value));

/** Creates an element with a parameter or argument without types. Addresses are links. */
export const plain = (value) => make("span", "value mono", plainParts(value));

/** Creates a list of named values; `show` creates the element of each. */
export function named(values, show = plain) {
  return make("dl", "named", Object.entries(values).map(([name, value]) =>
    make("div", "", make("dt", "mono", name), make("dd", "", show(value, name)))));
}
