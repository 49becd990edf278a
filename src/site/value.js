// Contract values as text and links: values with their types, as the service decodes them (SEP-51), and parameters.

import { addressLink, link, pathOf } from "./address.js";
import { short } from "./format.js";
import { folded, make } from "./dom.js";

/** Letters of a value in a list. Where it is shown by itself, it is whole. */
export const IN_LIST = 400;
/** Addresses of a value that get names: in a list, and where it is shown by itself. */
const NAMED_IN_LIST = 4;
const NAMED = 20;

/** Returns whether a JSON value is one with members. */
export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Text and links of a value, up to so many letters. Neighbouring texts are one node, however long a list is. */
class Parts {
  constructor(most) {
    const [kept, mostNamed] = most === Infinity ? [6, NAMED] : [4, NAMED_IN_LIST];
    Object.assign(this, { nodes: [], left: most, kept, mostNamed, named: new Set() });
  }

  text(text) {
    if (this.left <= 0) return;
    const shown = text.length < this.left ? text : `${text.slice(0, this.left)}…`;
    this.left -= text.length;
    if (typeof this.nodes.at(-1) === "string") this.nodes.push(this.nodes.pop() + shown);
    else this.nodes.push(shown);
  }

  address(text) {
    const path = pathOf(text);
    if (path === null) this.text(text);
    else if (this.left > 0) {
      // Each address is named once, and not all of many.
      const isNamed = this.named.size < this.mostNamed && !this.named.has(text);
      if (isNamed) this.named.add(text);
      this.nodes.push(isNamed ? addressLink(text, this.kept) : link(path, short(text, this.kept)));
      this.left -= 2 * this.kept + 1;
    }
  }

  /** Adds what `add` adds for each item, with commas between them. */
  list([before, after], items, add) {
    this.text(before);
    for (const [index, item] of items.entries()) {
      if (this.left <= 0) break;
      if (index > 0) this.text(", ");
      add(item);
    }
    this.text(after);
  }
}

function addTyped(parts, value) {
  if (typeof value === "string") return parts.text(value === "ledger_key_contract_instance" ? "instance" : value);
  if (!isObject(value)) return parts.text(JSON.stringify(value));
  const [[kind, inner] = [], ...others] = Object.entries(value);
  switch (others.length === 0 ? kind : "") {
    case "symbol": case "bool": case "u32": case "i32": case "u64": case "i64": case "u128": case "i128": case "u256":
    case "i256": return parts.text(String(inner));
    case "string": return parts.text(JSON.stringify(inner));
    case "bytes": return parts.text(`0x${inner}`);
    case "duration": return parts.text(`${inner} s`);
    case "timepoint": return parts.text(timepoint(inner));
    case "address": return parts.address(String(inner));
    case "vec": return parts.list("[]", inner ?? [], (item) => addTyped(parts, item));
    case "map": return parts.list("{}", inner ?? [], ({ key, val }) => {
      addTyped(parts, key);
      parts.text(": ");
      addTyped(parts, val);
    });
    case "contract_instance":
      parts.text(`{code: ${inner.executable?.wasm ?? "built in"}, storage: `);
      addTyped(parts, { map: inner.storage });
      return parts.text("}");
    case "error": return parts.text(`error ${JSON.stringify(inner)}`);
    default: return parts.text(JSON.stringify(value));
  }
}

/** Formats UNIX seconds, followed by the time if `Date` can represent them. */
function timepoint(seconds) {
  const date = new Date(Number(seconds) * 1000);
  return Number.isNaN(date.getTime()) ? String(seconds) : `${seconds} (${date.toISOString().slice(0, 19)}Z)`;
}

function addPlain(parts, value) {
  if (typeof value === "string") parts.address(value);
  else if (Array.isArray(value)) parts.list("[]", value, (item) => addPlain(parts, item));
  else if (isObject(value)) {
    parts.list("{}", Object.entries(value), ([name, inner]) => {
      parts.text(`${name}: `);
      addPlain(parts, inner);
    });
  } else parts.text(String(value));
}

function element(add, value, most) {
  const parts = new Parts(most);
  add(parts, value);
  return make("span", "value mono", parts.nodes);
}

/** Creates the element of a value with its type, such as `{"u64": "5"}`, cut after so many letters. */
export const typed = (value, most = Infinity) => element(addTyped, value, most);

/** Creates the element of a parameter or argument without types, cut after so many letters. */
export const plain = (value, most = Infinity) => element(addPlain, value, most);

/** Length of a value, in letters of JSON, from which on it is shown closed in tables, and how much of it then. */
const LONG = 240;
const BEGINNING = 60;

/** Creates a value for a table with `show`, one of the above; a long one is closed at first. */
export const foldedLong = (value, show) => JSON.stringify(value).length > LONG
  ? folded("", show(value, BEGINNING).textContent, () => show(value)) : show(value);

/** Creates a list of pairs of a name and a value; `show` creates the element of each. */
export function named(pairs, show = (value) => plain(value)) {
  return make("dl", "named", pairs.map(([name, value]) =>
    make("div", "", make("dt", "mono", name), make("dd", "", show(value, name)))));
}
