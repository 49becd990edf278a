// Rows that programs have made of a transaction.

import { Refused, ask } from "./api.js";
import { link, sqlLink } from "./address.js";
import { make } from "./dom.js";
import { count } from "./format.js";
import { problem } from "./problem.js";
import { table } from "./table.js";
import { plain } from "./value.js";

/** Tables that are asked. */
const MOST_TABLES = 20;
/** Rows of a table that are shown. */
const MOST_ROWS = 100;

const queryOf = (name, hash) => `select * from retroshade.${name} where transaction = '${hash}'`;

/** Columns that the service adds: the page shows their values already, or they only tell rows apart. */
const KNOWN = ["transaction", "_ledger", "_ledger_closed_at", "_service_event_id"];

function cell(value) {
  if (value === null) return make("span", "null", "null");
  return plain(value);
}

function rowsOf({ table_name: name, project_name_plain: project }, rows, hash) {
  const columns = Object.keys(rows[0]).filter((column) => !KNOWN.includes(column));
  // The names of a program's tables begin with its number.
  const [, id, own] = /^program_(\d+)_(.*)$/.exec(name) ?? [];
  const shown = rows.slice(0, MOST_ROWS).map((row) => columns.map((column) => cell(row[column])));
  return make("div", "", make("h3", "", project ? `${project} · ${own ?? name}` : name),
    make("p", "note", count(rows.length, "row"), rows.length > MOST_ROWS ? `, of which the first ${MOST_ROWS} are shown` : "", " of ",
      id === undefined ? name : link(`programs/${id}`, `program ${id}`), " · ",
      sqlLink(queryOf(name, hash), "Open this query")),
    table(columns, shown, `Rows of ${name}`));
}

/** Asks the tables one after the other, and adds the rows of each to `body` when they are there. */
export async function writtenRows(hash, body, signal) {
  const tables = (await ask("rest/retroshade/tables", { signal }))
    .filter(({ table_name: name }) => /^[a-z0-9_]+$/.test(name));
  const said = make("p", "note");
  said.setAttribute("role", "status");
  body.replaceChildren(said);
  if (tables.length === 0) {
    said.append("This token may read no tables: it has no programs and subscriptions. ", link("programs", "Programs"));
    return;
  }
  const asked = tables.slice(0, MOST_TABLES);
  let found = 0;
  for (const [index, it] of asked.entries()) {
    said.textContent = `Asking table ${index + 1} of ${asked.length} …`;
    try {
      const rows = await ask("rest/retroshade/query", { body: { query: queryOf(it.table_name, hash) }, signal });
      if (signal.aborted) return;
      if (rows.length > 0) said.before(rowsOf(it, rows, hash));
      found += rows.length > 0 ? 1 : 0;
    } catch (error) {
      if (signal.aborted) return;
      // One table that cannot be read says nothing of the others; a service that is busy does.
      const isOfTable = error instanceof Refused && ![401, 403, 429, 503].includes(error.status);
      if (!isOfTable) {
        said.textContent = `${index} of ${count(tables.length, "table")} were asked. `;
        const shown = problem(error);
        if (shown) said.after(shown);
        return;
      }
      said.before(make("p", "problem", `The table ${it.table_name} cannot be read: ${error.message}.`));
    }
  }
  const left = tables.length - asked.length;
  const of = count(asked.length, "table");
  const told = found === 0 ? `None of ${of} has a row of this transaction` : `${found} of ${of} have rows of it`;
  const further = left > 0 ? `; ${left} further ${left === 1 ? "one was" : "ones were"} not asked` : "";
  said.textContent = `${told}${further}. A program that is behind may still write some.`;
}
