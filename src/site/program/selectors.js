// Selectors of a project of events, and what its status says of their contracts.

import { contractsArea, ofField, wordsOf } from "../actions.js";
import { addressLink, ledgerLink } from "../address.js";
import { button, code, field, having, input, joined, make, paragraph } from "../dom.js";
import { count, number, short } from "../format.js";

const PARTS = [["factories", "Factory", "C…"], ["factory_event", "Its event", "add_pool"],
  ["factory_param", "Its parameter with the new contract", "pool_address, value_1"]];

/** Creates the fields of factories, to which further ones can be added. */
function factories() {
  const list = make("div");
  const add = () => {
    const row = having(make("div", "row"), { role: "group", "aria-label": `Factory ${list.childElementCount + 1}` });
    const remove = button("Remove", "quiet", () => {
      const next = row.nextElementSibling ?? row.previousElementSibling;
      row.remove();
      (next ?? add()).querySelector("input").focus();
    });
    having(remove, { "aria-label": "Remove this factory" });
    row.append(...PARTS.map(([name, label, placeholder]) =>
      field(label, input({ name, placeholder }), "grow")), remove);
    list.append(row);
    return row;
  };
  add();
  return make("div", "", list,
    make("div", "row", button("Another factory", "quiet small", () => add().querySelector("input").focus())));
}

/** Creates the fields. */
export const selectorFields = () => having(make("div", "programs-selectors",
  make("h3", "", "Contracts that are not known yet"),
  paragraph("note", "Those that any of these selects, also later ones. A factory needs an event that names the new "
    + "contract; the hash of a code works for all. Of many of today's factories, the creator cannot be read."),
  factories(),
  make("div", "row",
    field("Created by these contracts or accounts", contractsArea({ name: "created_by", placeholder: "C…, G…" }), "grow"),
    field("While they run the code with one of these hashes",
      contractsArea({ name: "wasm", placeholder: "64 hexadecimal digits" }), "grow")),
  make("div", "row", field("All contracts, but only their events with these names",
    input({ name: "all", placeholder: "transfer, mint" }), "grow"))),
{ role: "group", "aria-label": "Contracts that are not known yet" });

/** Returns what a form with these fields says in a request. */
export function selectorsOf(whole) {
  const given = new FormData(whole);
  const columns = PARTS.map(([name]) => given.getAll(name).map((text) => text.trim()));
  const rows = columns[0].map((contract, index) => ({ contract, event: columns[1][index], param: columns[2][index] }));
  const all = rows.filter((row) => Object.values(row).some((text) => text !== ""));
  for (const [index, row] of rows.entries()) {
    const missing = all.includes(row) ? Object.values(row).indexOf("") : -1;
    if (missing < 0) continue;
    const [name, label] = PARTS[missing];
    throw ofField(name, `factory ${index + 1} needs the field "${label}"`, index);
  }
  const lists = ["created_by", "wasm", "all"].map((name) => [name, wordsOf(given.get(name))]);
  return Object.fromEntries([["factories", all], ...lists].filter(([, list]) => list.length > 0));
}

/** Lists what a project selects beside the contracts that it names; null if that is nothing. */
export function selected({ factories: of = [], created_by: creators = [], wasm = [], all = [] } = {}) {
  const items = [
    ...of.map(({ contract, event, param }) => ["those that the factory ", addressLink(contract, 8), " names in ",
      code(param), " of ", code(event)]),
    ...creators.map((creator) => ["those that ", addressLink(creator, 8), " created"]),
    ...wasm.map((hash) => ["those that run the code ", short(hash, 8)]),
    ...all.length > 0 ? [["all, but only events with the names ", ...joined(all.map((name) => [code(name)]))]] : [],
  ];
  return items.length === 0 ? null : make("ul", "programs-selected", items.map((parts) => make("li", "", parts)));
}

const ranged = ({ first_ledger: first, last_ledger: last }) =>
  (first ?? null) === null ? null : [", in the ledgers ", ledgerLink(first), " to ", ledgerLink(last)];

/** Counts of contracts of which something is not known: member of the status, fact, sentence. */
const UNREAD = [
  ["code_unread", "Code not known", "with stored events it is not known what they ran"],
  ["creations_unread", "Creator not known", "that stored ledgers created it is not known by whom: "
    + "select them by the event of their factory, or by the hash of their code"],
  ["names_unread", "Names of events not known", "it is not known yet what their events are called"],
];

/** Returns facts: how many contracts a project has, and of how many that is not known. */
export const memberFacts = (program) => [
  ["Members", program.members === undefined ? null : number(program.members)],
  ...UNREAD.map(([name, fact]) => [fact, program[name] && make("span", program[name].contracts > 0 ? "warn" : "",
    `${number(program[name].contracts)}${program[name].more ? " or more" : ""}`, ranged(program[name]))]),
];

/** Returns sentences on members, each a class and a text. */
export const memberTroubles = (program) => [
  ...[program.members_limited, program.members_cut, program.members_not_seen].map((text) => text && ["warning", text]),
  ...UNREAD.map(([name, , text]) => program[name]?.contracts > 0 && ["warning",
    `Of ${count(program[name].contracts, "contract")}${program[name].more ? " or more" : ""} ${text}.`
      + `${program[name].help ? ` This helps: ${program[name].help}.` : ""}`]),
  program.members_are === "unbound" && ["note", "Nothing in a ledger binds who its contracts are: the node said it."],
];
