// The interface of a contract, as its code declares it (SEP-48).

import { addressLink, pathOf } from "./address.js";
import { folded, make, paragraph } from "./dom.js";
import { count } from "./format.js";
import { facts } from "./table.js";

/** Describes the code of a contract. */
function executable(info) {
  if (info.executable?.wasm) return make("span", "", "Code (WebAssembly) with the hash ", make("span", "mono", info.executable.wasm));
  return info.executable?.stellar_asset ? "A Stellar asset: this contract is built into the protocol." : "The code that it runs is not known.";
}

/** Creates the name of a token. That of an asset contract is `code:issuer`. */
function tokenName(name) {
  const [code, issuer] = name.split(":");
  return issuer !== undefined && pathOf(issuer) !== null ? make("span", "note", `${code} of `, addressLink(issuer)) : name;
}

/** Creates the list of what a contract runs, and of its token. */
export function whatItRuns(info) {
  const { token } = info;
  const known = token && facts([
    ["Token", tokenName(token.name)],
    ["Symbol", token.symbol],
    ["Decimals", String(token.decimals)],
  ]);
  return make("div", "", make("p", "", executable(info)), known);
}

const typed = ({ name, type }) => [make("bdi", "", name), make("span", "null", `: ${type}`)];
const listed = (entries) => entries.flatMap((entry, index) => index === 0 ? typed(entry) : [", ", ...typed(entry)]);

/** Creates one entry: its form, and its documentation in the words of its author. */
function entry(form, doc) {
  return make("li", "", make("div", "mono", ...form), doc ? paragraph("note contract-doc", doc) : null);
}

function functionEntry({ name, doc, inputs, outputs }) {
  const result = outputs.length === 0 ? [] : [" → ", outputs.join(", ")];
  return entry([make("b", "contract-name", name), "(", ...listed(inputs), ")", ...result], doc);
}

function eventEntry({ name, doc, prefix, params }) {
  const words = prefix.map((word) => make("i", "", JSON.stringify(word)));
  const topics = [...words, ...params.filter((it) => it.in === "topic").map(typed)];
  const data = params.filter((it) => it.in !== "topic");
  const shown = topics.flatMap((topic, index) => index === 0 ? topic : [", ", ...[topic].flat()]);
  return entry([make("b", "contract-name", name), " topics [", ...shown, "], data {", ...listed(data), "}"], doc);
}

function typeEntry({ kind, name, doc, members }) {
  const shown = members.flatMap((member, index) => [
    index === 0 ? "" : ", ", make("bdi", "", member.name),
    member.value !== undefined && member.value !== null ? ` = ${member.value}` : member.type ? `: ${member.type}` : "",
  ]);
  return entry([`${kind} `, make("b", "contract-name", name), " {", ...shown, "}"], doc);
}

function group(entries, thing, show) {
  if (entries.length === 0) return null;
  return folded("contract-group", count(entries.length, thing), () => make("ul", "", entries.map(show)));
}

/** Creates the interface: functions, events and types, each kind closed at first. */
export function interfaceOf({ functions, events, types }) {
  const groups = [group(functions, "function", functionEntry), group(events, "event", eventEntry), group(types, "type", typeEntry)];
  return groups.some((it) => it !== null) ? make("div", "contract-groups", ...groups)
    : make("p", "note", "Its code declares no functions, events or types.");
}

/** Creates the sentence for an interface that is not known. */
export function unknownInterface(reason, isAskedAgain) {
  const end = /[.!?]$/.test(reason) ? "" : ".";
  return make("p", "note", `Its interface is not known: ${reason}${end} `,
    isAskedAgain ? "It is looked up where that is possible; this page asks again every few seconds."
      : "This page has asked for two minutes; open it again later.");
}
