// Rows that programs have made of a transaction.

import { Refused, ask } from "./api.js";
import { link, sqlLink } from "./address.js";
import { having, make, note, put } from "./dom.js";
import { count } from "./format.js";
import { table } from "./table.js";
import { plain } from "./value.js";

/** Tables that are asked. */
const MOST_TABLES = 20;
/** Rows of a table that are shown. */
const MOST_ROWS = 100;

/** Columns that the service adds: the page shows their values already, or they only tell rows apart. */
const KNOWN = ["transaction", "_ledger", "_ledger_closed_at", "_service_event_id"];

function rowsOf({ table_name: name, project_name_plain: project }, rows, query) {
  const columns = Object.keys(rows[0]).filter((column) => !KNOWN.includes(column));
  const cell = (value) => value === null ? make("span", "null", "null") : plain(value);
  const shown = rows.slice(0, MOST_ROWS).map((row) => columns.map((column) => cell(row[column])));
  // The names of a program's tables begin with its number.
  const [, id, own] = /^program_(\d+)_(.*)$/.exec(name) ?? [];
  return make("div", "", make("h3", "", project ? `${project} · ${own ?? name}` : name),
    note(count(rows.length, "row"),
      rows.length > MOST_ROWS ? `, the first ${MOST_ROWS} of which are shown` : "",
      id === undefined ? "" : [" of ", link(`programs/${id}`, `program ${id}`)],
      " · ", sqlLink(query, "Open this query")),
    table(columns, shown, `Rows of ${name}`));
}

/** Refusals that do not concern one table. */
const OF_ALL = [401, 403, 429, 503];

/** Returns the rows of a table; null if it cannot be read, which is told in `place`. */
async function read(place, { table_name: name }, query, signal) {
  try {
    return await ask("rest/retroshade/query", { body: { query }, signal });
  } catch (error) {
    if (!(error instanceof Refused) || OF_ALL.includes(error.status)) throw error;
    place.append(make("p", "problem", `The table ${name} cannot be read: ${error.message}.`));
    return null;
  }
}

/** Asks the tables one after the other, and adds the rows of each to `place`. */
async function fill(place, said, hash, signal) {
  const tables = (await ask("rest/retroshade/tables", { signal }))
    .filter(({ table_name: name }) => /^[a-z0-9_]+$/.test(name));
  const asked = tables.slice(0, MOST_TABLES);
  put(place);
  let found = 0;
  for (const [index, entry] of asked.entries()) {
    said.textContent = `Asking table ${index + 1} of ${asked.length} …`;
    const query = `select * from retroshade.${entry.table_name} where transaction = '${hash}'`;
    const rows = await read(place, entry, query, signal);
    if (rows === null || rows.length === 0) continue;
    found += 1;
    place.append(rowsOf(entry, rows, query));
  }
  if (asked.length === 0) {
    said.textContent = "You have no tables yet.";
    return;
  }
  said.textContent = `Rows of it are in ${found} of ${count(asked.length, "table")}.`
    + (tables.length > MOST_TABLES ? ` ${tables.length - MOST_TABLES} more were not asked.` : "")
    + " A program that is behind may still write some.";
}

/** Creates the rows of a transaction, which are read table by table. */
export function writtenRows(view, hash) {
  const place = make("div");
  const failure = make("div");
  const said = having(make("p", "note"), { role: "status" });
  view.fill(failure, async () => {
    put(failure);
    try {
      await fill(place, said, hash, view.signal);
    } catch (error) {
      said.textContent = "";
      throw error;
    }
  });
  return make("div", "", place, said, failure);
}
