// The tables of a program with their columns, and its contracts.

import { attempt, contractsArea, outcome, wordsOf } from "../actions.js";
import { addressLink } from "../address.js";
import { ask } from "../api.js";
import { button, field, form, make, note, paragraph, put, renew, submit } from "../dom.js";
import { number } from "../format.js";
import { nameOf } from "../sql/names.js";
import { readTables } from "../sql/tables.js";
import { table } from "../table.js";
import { change, listed, queryLink } from "./parts.js";
import { selected } from "./selectors.js";

/** Columns that every table has, and those that the tables of events have besides. */
const SHARED = ["contract_id", "transaction", "_service_event_id", "_ledger", "_ledger_closed_at"];
const OF_EVENTS = ["_event_id", "_event_index", "_declared", "_event", "_rest"];

const quoted = (names) => names.map((name) => `\`${name}\``).join(", ");

/** Reads the tables and views of a program's project as SQL has them, in the order of `names`. */
async function described({ id, project_name: project, tables: names }, signal) {
  const isOwn = project === "" ? ({ table }) => names.includes(table)
    : (it) => it.project.toLowerCase() === project.toLowerCase();
  const place = ({ table }) => {
    const at = Math.max(names.indexOf(table), names.indexOf(`program_${id}_${table}`));
    return at < 0 ? names.length : at;
  };
  return (await readTables(signal)).filter(isOwn).sort((a, b) => place(a) - place(b));
}

/** Counts the rows of tables. A listed table may not exist in SQL yet. */
async function counted(tables, signal) {
  const counting = tables.flatMap((it, index) => it.columns.length === 0 ? []
    : [`select ${index} as at, count(*) as number from ${nameOf(it)}`]);
  if (counting.length === 0) return new Map();
  const query = counting.join(" union all ");
  const rows = await ask("rest/retroshade/query", { body: { query, max_rows: 10000 }, signal });
  return new Map(rows.map(({ at, number }) => [at, number]));
}

function columnsCell(columns) {
  if (columns.length === 0) return ["not in SQL yet", "note"];
  const own = columns.filter(({ name }) => ![...SHARED, ...OF_EVENTS].includes(name));
  return [make("span", "", listed(own.map(({ name, type }) =>
    make("span", "", make("span", "mono", name), make("span", "note", ` ${type}`))))), "wide"];
}

async function drawTables(body, program, signal) {
  const { kind, project_name: project, tables: names } = program;
  if (names.length === 0) return put(body, note("It has no tables yet: they come with the first rows."));
  const own = await described(program, signal);
  const counts = await counted(own, signal);
  const rows = own.map((it, index) => [queryLink(project, it.table),
    [counts.has(index) ? number(counts.get(index)) : "–", "number"], columnsCell(it.columns)]);
  return put(body,
    ...own.filter(({ problem }) => problem)
      .map(({ table: name, problem }) => make("p", "problem", `${name}: ${problem}`)),
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
  const [said, list, others] = [outcome(), make("ul", "programs-contracts"), make("div")];
  const further = contractsArea({ required: "" });
  const append = () => attempt(said, "Registering …", async () => {
    const { contracts: all } = await change("append-contracts", { program_id: id, contracts: wordsOf(further.value) });
    further.value = "";
    await reload();
    return `Registered: it has ${number(all.length)} contracts now.`;
  });
  view.part("Contracts", (body) => {
    put(body, list, others,
      form("", append, field("Further contracts", further), make("div", "row", submit("Append", "quiet"))),
      note(kind === "events" ? "Their events become rows from the first stored ledger on."
        : "It runs on their transactions in new ledgers; a backfill runs it on those that are stored."), said);
  });
  const item = (contract) => make("li", "", addressLink(contract, 8));
  return (program) => {
    const more = selected(program.selectors);
    renew(list, program.contracts.map(item));
    renew(others, more && note(program.contracts.length > 0 ? "And further ones:" : "It has these:"), more);
  };
}
