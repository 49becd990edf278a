// The tables of a program with their columns, and its contracts.

import { attempt, outcome, wordsOf } from "./actions.js";
import { ask } from "./api.js";
import { button, field, form, having, make, put, submit } from "./dom.js";
import { number } from "./format.js";
import { change, contractList, queryLink } from "./program_parts.js";
import { table } from "./table.js";

/** Columns that every table has. */
const SHARED = ["contract_id", "transaction", "_service_event_id", "_ledger", "_ledger_closed_at"];

/** Columns that the tables of declared events have besides. */
const OF_EVENTS = ["_event_id", "_event_index", "_declared", "_rest"];

const code = (name, index) => [index === 0 ? "" : ", ", make("code", "", name)];

const rowsOf = (query, params, signal) => ask("rest/retroshade/query", { body: { query, params, max_rows: 10000 }, signal });

/** Reads the columns and the numbers of rows of tables, by their names. */
async function described(names, signal) {
  const [columns, counts] = [new Map(), new Map()];
  if (names.length === 0) return { columns, counts };
  const marks = names.map(() => "?").join(", ");
  const found = await rowsOf(`select table_name, column_name, data_type from information_schema.columns where table_schema = 'retroshade' and table_name in (${marks}) order by table_name, ordinal_position`, names, signal);
  for (const { table_name: name, column_name: column, data_type: type } of found) columns.set(name, [...columns.get(name) ?? [], [column, type]]);
  // A listed table may not exist in SQL yet.
  const existing = names.filter((name) => columns.has(name));
  const count = (name) => `select '${name}' as name, count(*) as "rows" from retroshade."${name}"`;
  if (existing.length > 0) {
    for (const { name, rows } of await rowsOf(existing.map(count).join(" union all "), [], signal)) counts.set(name, rows);
  }
  return { columns, counts };
}

function columnsCell(columns) {
  if (columns === undefined) return ["not in SQL yet", "note"];
  const own = columns.filter(([name]) => ![...SHARED, ...OF_EVENTS].includes(name));
  return [make("span", "", own.flatMap(([name, type], index) => [index === 0 ? "" : ", ", make("span", "mono", name), make("span", "note", ` ${type}`)])), "wide"];
}

/** Adds the part of the page. `listeners` are called with each newer state of the program. */
export function tables(view, program, listeners) {
  let current = program;
  const names = () => current.tables;
  const part = view.part("Tables", async (body) => {
    if (names().length === 0) return put(body, make("p", "note", "It has no tables yet: they come with the first rows."));
    // A project of events has a view of all events, which is no table of its own.
    const all = current.kind === "events" && current.project_name ? [...names(), `program_${current.id}_events`] : names();
    const { columns, counts } = await described(all, view.signal);
    const listed = all.filter((name) => names().includes(name) || columns.has(name));
    const problems = (await ask("rest/retroshade/tables", { signal: view.signal })).filter((entry) => entry.problem && names().includes(entry.table_name));
    return put(body,
      ...problems.map((entry) => make("p", "problem", `${entry.table_name}: ${entry.problem}`)),
      table(["Table", ["Rows", "number"], "Its own columns"], listed.map((name) => [
        queryLink(current.project_name, name), [counts.has(name) ? number(counts.get(name)) : "–", "number"], columnsCell(columns.get(name)),
      ]), "Tables of this program"),
      make("p", "note", "A name opens the page for SQL with a query. Every table also has ", SHARED.flatMap(code),
        ...(current.kind === "events" ? ["; that of a declared event has ", OF_EVENTS.flatMap(code)] : []), ". The rows were counted when this page was opened or asked to; ", make("code", "", "orrery types --lang ts"), " prints types of these rows for clients."));
  }, { beside: [button("Count again", "quiet", () => part.reload())] });
  listeners.push((newer) => {
    const isSame = newer.tables.join() === current.tables.join() && newer.project_name === current.project_name;
    current = newer;
    if (!isSame) part.reload();
  });
}

/** Adds the part of the page. `reload` reads the state of the program again. */
export function contracts(view, program, listeners, reload) {
  const said = outcome();
  const further = having(make("textarea"), { rows: 2, spellcheck: "false", autocomplete: "off", required: "", placeholder: "C…, C…" });
  const append = () => attempt(said, "Registering …", async () => {
    const { contracts: all } = await change("append-contracts", { program_id: program.id, contracts: wordsOf(further.value) });
    further.value = "";
    await reload();
    return make("p", "good", `Registered: it has ${number(all.length)} contracts now.`);
  });
  const list = make("div", "");
  let shown = "";
  const show = ({ contracts: all }) => {
    if (all.join() === shown) return;
    shown = all.join();
    put(list, contractList(all));
  };
  view.part("Contracts", (body) => {
    put(body, list, form("", append, field("Further contracts", further), make("div", "row", submit("Append", "quiet"))),
      make("p", "note", program.kind === "events" ? "Their events become rows from the first stored ledger on." : "It runs on their transactions in new ledgers; a backfill runs it on those that are stored."), said);
  });
  show(program);
  listeners.push(show);
}
