// The interface of a contract, as its code declares it (SEP-48).

import { addressLink, pathOf } from "./address.js";
import { folded, joined, make, note, paragraph } from "./dom.js";
import { count } from "./format.js";
import { facts } from "./table.js";

/** Creates the name of a token. That of an asset contract is `code:issuer`. */
function tokenName(name) {
  if (name === "native") return "XLM, the native asset";
  const [code, issuer] = (name ?? "").split(":");
  return issuer === undefined || pathOf(issuer) === null ? name
    : make("span", "note", `${code} of `, addressLink(issuer));
}

/** Creates the list of what a contract runs, and of its token. */
export function whatItRuns({ executable, token }) {
  const code = executable?.wasm ? ["Code (WebAssembly) with the hash ", make("span", "mono", executable.wasm)]
    : executable?.stellar_asset ? "A Stellar asset: this contract is built into the protocol."
      : "The code that it runs is not known.";
  const known = token && facts([
    ["Token", tokenName(token.name)], ["Symbol", token.symbol === "native" ? "XLM" : token.symbol], ["Decimals", String(token.decimals)],
  ]);
  return make("div", "", make("p", "", code), known);
}

const soft = (text) => make("span", "null", text);
const typed = ({ name, type }) => [make("bdi", "", name), soft(`: ${type}`)];
const listed = (entries) => joined(entries.map(typed));

/** Creates one entry: its form after its name, and its documentation in the words of its author. */
const entry = ({ name, doc }, before, ...form) => make("li", "",
  make("div", "mono", before, make("b", "contract-name", name), ...form),
  doc ? paragraph("note contract-doc", doc) : null);

function functionEntry(it) {
  const result = it.outputs.length === 0 ? "" : ` → ${it.outputs.join(", ")}`;
  return entry(it, "", "(", listed(it.inputs), ")", result);
}

function eventEntry(it) {
  const words = it.prefix.map((word) => make("i", "", JSON.stringify(word)));
  const isTopic = (param) => param.in === "topic";
  const topics = joined([...words, ...it.params.filter(isTopic).map(typed)]);
  return entry(it, "", " topics [", topics, "], data {", listed(it.params.filter((param) => !isTopic(param))), "}");
}

function typeEntry(it) {
  const member = ({ name, type, value }) =>
    [make("bdi", "", name), soft(value !== undefined ? ` = ${value}` : type ? `: ${type}` : "")];
  return entry(it, `${it.kind} `, " {", joined(it.members.map(member)), "}");
}

/** Creates the list of entries of one kind. Several forms of one name are below each other, and count once. */
function group(entries, thing, show) {
  if (entries.length === 0) return null;
  const names = Map.groupBy(entries, ({ name }) => name);
  const forms = names.size === entries.length ? "" : ` in ${count(entries.length, "form")}`;
  return folded("contract-group", `${count(names.size, thing)}${forms}`,
    () => make("ul", "", [...names.values()].flat().map(show)));
}

/** Creates the interface: functions, events and types, each kind closed at first; or says why it is not known. */
export function interfaceOf({ functions, events, types, interface_unknown_because: reason, truncated }) {
  if (reason !== null) {
    return note(`Its interface is not known: ${reason.replace(/[.!?]$/, "")}. `
      + "It is looked up where that is possible; this page asks again for two minutes.");
  }
  return make("div", "contract-groups",
    group(functions, "function", functionEntry), group(events, "event", eventEntry), group(types, "type", typeEntry),
    functions.length + events.length + types.length > 0 ? null
      : note("Its code declares no functions, events or types."),
    truncated ? note("It is longer than what is shown here.") : null);
}
