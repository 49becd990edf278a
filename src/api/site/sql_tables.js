// The tables that can be read, by project, with their columns.

import { link } from "./address.js";
import { ask } from "./api.js";
import { button, having, make, paragraph, put } from "./dom.js";
import { count } from "./format.js";
import { nameOf, quoted } from "./sql_words.js";

/** Number of tables up to which all projects are open at first, where the window is wide. */
const OPEN = 24;

// One row per table, because a result has at most 10,000. Tables of programs are in a schema of their own, too, which is
// all that a project has whose name cannot be a schema's.
const COLUMNS = `select table_schema as schema, table_name as "table", list(column_name order by ordinal_position) as names,
  list(data_type order by ordinal_position) as types
from information_schema.columns
where table_schema not in ('orrery', 'main') and (table_schema <> 'retroshade' or regexp_matches(table_name, '^program_[0-9]+_'))
group by all order by all`;

/** Returns all tables: `{ schema, table, columns, project, own, problem }`. */
export async function readTables(signal) {
  const [entries, rows] = await Promise.all([
    ask("rest/retroshade/tables", { signal }),
    ask("rest/retroshade/query", { signal, body: { query: COLUMNS } }),
  ]);
  return joined(entries, rows);
}

function joined(entries, rows) {
  const tables = new Map(rows.map(({ schema, table, names, types }) => {
    const columns = names.map((name, index) => ({ name, type: types[index] }));
    return [`${schema}.${table}`.toLowerCase(), { schema, table, columns, project: schema, own: null }];
  }));
  const found = [];
  for (const { table_name: name, project_name_plain: project, own, problem } of entries) {
    const plain = name.replace(/^program_\d+_/, "");
    const inProject = tables.get(`${project}.${plain}`.toLowerCase());
    const entry = inProject ?? tables.get(`retroshade.${name}`)
      ?? { schema: project || "retroshade", table: project ? plain : name, columns: [] };
    const group = project || "Without a name yet";
    if (inProject === undefined) found.push({ ...entry, project: group, own, problem });
    else Object.assign(inProject, { own, problem });
  }
  const views = [...tables.values()].filter(({ schema }) => schema !== "retroshade");
  // A view of all events is of the owner of the project's tables.
  for (const view of views) view.own ??= views.find(({ schema, own }) => schema === view.schema && own !== null)?.own ?? null;
  return [...views, ...found];
}

/** Returns a statement for the newest rows of a table. */
export function newest(table) {
  const over = table.columns.map(({ name }) => name).find((name) => name === "_event_id")
    ?? table.columns.map(({ name }) => name).find((name) => /^_?ledger$/.test(name));
  return `select *\nfrom ${nameOf(table)}${over === undefined ? "" : `\norder by ${quoted(over)} desc`}\nlimit 100`;
}

let ids = 0;

function item(table, { insert, show }) {
  ids += 1;
  const id = `sql-columns-${ids}`;
  const columns = having(make("ul", "sql-columns"), { id, hidden: "" });
  const toggle = having(make("button", "sql-toggle", "▸"), {
    type: "button", "aria-expanded": "false", "aria-controls": id, "aria-label": `Columns of ${table.table}`,
  });
  toggle.addEventListener("click", () => {
    if (columns.childElementCount === 0) {
      put(columns, table.columns.map(({ name, type }) => make("li", "", named(name, () => insert(quoted(name))), make("small", "note", type))));
    }
    columns.hidden = !columns.hidden;
    toggle.setAttribute("aria-expanded", String(!columns.hidden));
  });
  const rows = having(button("newest", "link", () => show(newest(table))), { "aria-label": `Newest 100 rows of ${table.table}` });
  const line = make("div", "sql-table", toggle, named(table.table, () => insert(nameOf(table))), rows);
  return make("li", "", line, table.problem ? make("p", "warning", table.problem) : null, columns);
}

function named(name, act) {
  return having(button(name, "link mono", act), { title: `Insert ${name}` });
}

/** Creates the tree. `insert` gets a name for the text, `show` a statement to run. */
export function tree(tables, acts) {
  if (tables.length === 0) return nothing();
  const groups = grouped(tables);
  const isOpen = tables.length <= OPEN && matchMedia("(min-width: 900px)").matches;
  return [...groups].map(([project, list]) => {
    const isForeign = list.every(({ own }) => own === false);
    const told = `${count(list.length, "table")}${isForeign ? ", subscribed" : ""}`;
    const summary = make("summary", "", make("b", "", project), " ", make("small", "note", told));
    const made = make("details", "", summary, make("ul", "sql-tree", list.map((table) => item(table, acts))));
    made.open = isOpen;
    return made;
  });
}

function grouped(tables) {
  const groups = new Map();
  for (const table of tables) groups.set(table.project, [...(groups.get(table.project) ?? []), table]);
  return groups;
}

function nothing() {
  return [
    paragraph("", "There are no tables yet."),
    paragraph("note", "`orrery watch NAME --contract C…` makes tables of the events of a contract, from the first stored ledger on. "
      + "Indexing programs make others, and those of a public project can be read with a subscription."),
    make("p", "", link("programs", "Programs, events to watch and subscriptions")),
  ];
}
