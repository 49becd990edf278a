// The tables of a program with their columns, and its contracts.

import { attempt, contractsArea, outcome, wordsOf } from "../actions.js";
import { addressLink } from "../address.js";
import { ask } from "../api.js";
import { button, field, form, make, paragraph, put, renew, submit } from "../dom.js";
import { number } from "../format.js";
import { table } from "../table.js";
import { change, listed, queryLink } from "./parts.js";

/** Columns that every table has, and those that the tables of events have besides. */
const SHARED = ["contract_id", "transaction", "_service_event_id", "_ledger", "_ledger_closed_at"];
const OF_EVENTS = ["_event_id", "_event_index", "_declared", "_event", "_rest"];

const quoted = (names) => names.map((name) => `\`${name}\``).join(", ");

/** Reads the columns of tables by names, and the numbers of their rows. A listed table may not exist in SQL yet. */
async function described(names, signal) {
  const rowsOf = (query, params) => ask("rest/retroshade/query", { body: { query, params, max_rows: 10000 }, signal });
  const marks = names.map(() => "?").join(", ");
  const found = await rowsOf("select table_name, column_name, data_type from information_schema.columns "
    + `where table_schema = 'retroshade' and table_name in (${marks}) order by ordinal_position`, names);
  const columns = Map.groupBy(found, (column) => column.table_name);
  const counting = [...columns.keys()]
    .map((name) => `select '${name}' as name, count(*) as number from retroshade."${name}"`);
  const counted = counting.length === 0 ? [] : await rowsOf(counting.join(" union all "), []);
  return { columns, counts: new Map(counted.map((row) => [row.name, row.number])) };
}

function columnsCell(columns) {
  if (columns === undefined) return ["not in SQL yet", "note"];
  const own = columns.filter(({ column_name: name }) => ![...SHARED, ...OF_EVENTS].includes(name));
  return [make("span", "", listed(own.map(({ column_name: name, data_type: type }) =>
    make("span", "", make("span", "mono", name), make("span", "note", ` ${type}`))))), "wide"];
}

async function drawTables(body, { id, kind, project_name: project, tables: names }, signal) {
  if (names.length === 0) return put(body, make("p", "note", "It has no tables yet: they come with the first rows."));
  // A project of events has a view of all events, which is no table of its own.
  const all = `program_${id}_events`;
  const { columns, counts } = await described(kind === "events" && project ? [...names, all] : names, signal);
  const entries = await ask("rest/retroshade/tables", { signal });
  const row = (name) => [queryLink(project, name), [counts.has(name) ? number(counts.get(name)) : "–", "number"],
    columnsCell(columns.get(name))];
  const rows = [...names, ...columns.has(all) ? [all] : []].map(row);
  return put(body,
    ...entries.filter((entry) => entry.problem && names.includes(entry.table_name))
      .map((entry) => make("p", "problem", `${entry.table_name}: ${entry.problem}`)),
    table(["Table", ["Rows", "number"], "Its own columns"], rows, "Tables of this program"),
    paragraph("note", `A name opens the page for SQL with a query. Every table also has ${quoted(SHARED)}`
      + `${kind === "events" ? `; that of a declared event has ${quoted(OF_EVENTS)}` : ""}. `
      + "`orrery types --lang ts` prints types of these rows for clients."));
}

/** Adds the part of the page. What is returned shows each newer state of the program. */
export function tables(view, program) {
  const part = view.part("Tables", (body) => drawTables(body, program, view.signal),
    { beside: [button("Refresh", "quiet small", () => part.reload())] });
  return (newer) => {
    const isSame = newer.tables.join() === program.tables.join() && newer.project_name === program.project_name;
    program = newer;
    if (!isSame) part.reload();
  };
}

/** Adds the part of the page. `reload` reads the state of the program; what is returned shows each newer one. */
export function contracts(view, { id, kind }, reload) {
  const [said, list] = [outcome(), make("ul", "programs-contracts")];
  const further = contractsArea({ required: "" });
  const append = () => attempt(said, "Registering …", async () => {
    const { contracts: all } = await change("append-contracts", { program_id: id, contracts: wordsOf(further.value) });
    further.value = "";
    await reload();
    return `Registered: it has ${number(all.length)} contracts now.`;
  });
  view.part("Contracts", (body) => {
    put(body, list,
      form("", append, field("Further contracts", further), make("div", "row", submit("Append", "quiet"))),
      make("p", "note", kind === "events" ? "Their events become rows from the first stored ledger on."
        : "It runs on their transactions in new ledgers; a backfill runs it on those that are stored."), said);
  });
  const item = (contract) => make("li", "", addressLink(contract, 8));
  return (program) => renew(list, program.contracts.map(item));
}
