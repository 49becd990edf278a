// The tables that can be read, by project, with their columns.

import { link } from "../address.js";
import { ask } from "../api.js";
import { button, folded, having, make, paragraph } from "../dom.js";
import { count } from "../format.js";
import { CHAIN, nameOf, quoted } from "./names.js";

/** Number of tables up to which all projects are open at first. */
const OPEN = 24;

// One row per table, because a result has at most 10,000. Tables of programs are in `retroshade`, too, which is all
// that a project has whose name cannot be a schema's.
const COLUMNS = `select table_schema as schema, table_name as "table",
  list(column_name order by ordinal_position) as names, list(data_type order by ordinal_position) as types
from information_schema.columns
where table_schema not in ('orrery', 'main')
  and (table_schema <> 'retroshade' or regexp_matches(table_name, '^program_[0-9]+_'))
group by all order by all`;

/** Returns all tables: `{ schema, table, columns, project }`, and `own` and `problem` where the service tells them. */
export async function readTables(signal) {
  const [entries, rows] = await Promise.all([
    ask("rest/retroshade/tables", { signal }),
    ask("rest/retroshade/query", { signal, body: { query: COLUMNS } }),
  ]);
  const known = new Map(rows.map(({ schema, table, names, types }) => {
    const columns = names.map((name, index) => ({ name, type: types[index] }));
    return [`${schema}.${table}`.toLowerCase(), { schema, table, columns, project: schema }];
  }));
  const others = entries.flatMap(({ table_name: name, project_name_plain: project, own, problem }) => {
    const target = name.replace(/^(program_\d+_|chain\.)/, "");
    const inProject = known.get(`${project}.${target}`.toLowerCase());
    const entry = inProject ?? known.get(`retroshade.${name}`)
      ?? { schema: project || "retroshade", table: project ? target : name, columns: [] };
    Object.assign(entry, { project: inProject?.project ?? (project || "Without a name yet"), own, problem });
    return inProject === undefined ? [entry] : [];
  });
  return [...[...known.values()].filter(({ schema }) => schema !== "retroshade"), ...others];
}

/** A key of the service, which tells rows apart and says nothing to people. */
const KEY = "_service_event_id";

/** Returns a statement for the newest rows of a table. */
export function newest(table) {
  const has = (column) => table.columns.some(({ name }) => name === column);
  const over = ["_event_id", "_ledger", "ledger"].find(has);
  return `select *${has(KEY) ? ` exclude (${KEY})` : ""}\nfrom ${nameOf(table)}${over === undefined ? "" : `\norder by ${over} desc`}\nlimit 100`;
}

/** Creates the entry of a table, which opens to show its columns. */
function item(table, { insert, show }) {
  const named = (name, text) => having(button(name, "link mono", () => insert(text)), { title: `Insert ${name}` });
  const columns = () => make("ul", "sql-columns",
    make("li", "", button("Insert the table's name", "link", () => insert(nameOf(table)))),
    table.columns.map(({ name, type }) => make("li", "", named(name, quoted(name)), make("small", "note", type))));
  const rows = having(button("newest", "link", () => show(newest(table))),
    { "aria-label": `Newest 100 rows of ${table.table}` });
  return make("li", "", make("div", "sql-table", folded("", make("span", "mono", table.table), columns), rows),
    table.problem ? make("p", "warning", table.problem) : null);
}

/** Creates the tree. `insert` gets a name for the text, `show` a statement to run. */
export function tree(tables, acts) {
  if (tables.length === 0) return nothing();
  return [...Map.groupBy(tables, ({ project }) => project)].map(([project, list]) => {
    const isForeign = list.some(({ own }) => own === false);
    const of = project === CHAIN ? ", of all contracts" : isForeign ? ", subscribed" : "";
    const told = `${count(list.length, "table")}${of}`;
    const made = make("details", "", make("summary", "", make("b", "", project), " ", make("small", "note", told)),
      make("ul", "sql-tree", list.map((table) => item(table, acts))));
    made.open = tables.length <= OPEN;
    return made;
  });
}

function nothing() {
  return [
    paragraph("", "There are no tables yet."),
    paragraph("note", "`orrery watch NAME --contract C…` makes tables of the events of a contract, from the first "
      + "stored ledger on. Indexing programs make others, and a subscription lets you read those of a public project."),
    make("p", "", link("programs", "Programs, events to watch and subscriptions")),
  ];
}
