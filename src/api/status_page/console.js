// The SQL console: sends a statement to the service, and shows the result as a table, and as a plot if a column has
// times or ledger sequences.

import { ask, at, complain, count, make, moment, number, session } from "./common.js";
import { plot } from "./plot.js";

/** Maximum number of table rows and of points in the plot: more would make the page slow. */
const MAX_ROWS = 500;
const MAX_POINTS = 2000;

/** Lists the tables that the token may read, as buttons that write a query for the newest rows into the editor. */
export async function tables() {
  const place = at("tables");
  if (session.token === "") {
    place.textContent = "Needs a token.";
    return;
  }
  try {
    const list = await ask("rest/retroshade/tables", { withToken: true });
    const button = ({ table_name, project_name_plain }) => {
      const name = `${project_name_plain}: ${table_name}`;
      const made = make("button", "link", name);
      made.type = "button";
      made.addEventListener("click", () => {
        at("sql").value = `select _ledger, * exclude (_ledger, transaction, _service_event_id) from retroshade.${table_name} order by _ledger desc limit 200`;
        at("sql").focus();
      });
      return made;
    };
    const buttons = list.flatMap((entry, index) => index === 0 ? [button(entry)] : [" · ", button(entry)]);
    place.replaceChildren(list.length === 0 ? "There are no tables yet: programs create them." : "Tables: ", ...buttons);
  } catch (error) {
    complain(place, error);
  }
}

async function run() {
  const query = at("sql").value.trim();
  if (session.token === "") {
    at("sql-said").textContent = "Needs a token.";
    return;
  }
  if (query === "") return;
  at("sql-run").disabled = true;
  at("sql-said").textContent = "Running …";
  const began = performance.now();
  try {
    const columns = Object.entries(await ask("rest/retroshade/query", { withToken: true, body: { query, format: "columns" } }));
    const rows = columns.length === 0 ? 0 : columns[0][1].length;
    const shown = rows > MAX_ROWS ? `, of which the first ${MAX_ROWS} are shown` : "";
    at("sql-said").textContent = `${count(rows, "row")}${shown}, ${Math.round(performance.now() - began)} ms`;
    result(columns, Math.min(rows, MAX_ROWS));
    choices(columns);
  } catch (error) {
    complain(at("sql-said"), error);
    for (const id of ["sql-plot", "sql-rows"]) at(id).replaceChildren();
  } finally {
    at("sql-run").disabled = false;
  }
}

function result(columns, rows) {
  const numeric = columns.map(([, values]) => values.some((value) => typeof value === "number"));
  const kind = (index) => numeric[index] ? "number" : "";
  const head = make("tr", "", ...columns.map(([name], index) => make("th", kind(index), name)));
  const cell = (value, index) => value === null ? make("td", `null ${kind(index)}`, "null")
    : make("td", kind(index) || "mono", typeof value === "object" ? JSON.stringify(value) : value);
  const line = (_, row) => make("tr", "", ...columns.map(([, values], index) => cell(values[row], index)));
  const body = make("tbody", "", ...Array.from({ length: rows }, line));
  at("sql-rows").className = "scrolled tall";
  at("sql-rows").replaceChildren(make("table", "", make("thead", "", head), body));
}

const TIME = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)?$/;

/** Parses a time into UNIX milliseconds. A time without a zone is UTC. */
function milliseconds(text) {
  const [whole] = text.replace(" ", "T").split(/(?<=\d\d\.\d{3})\d+/);
  const zoned = /(Z|[+-]\d\d(:?\d\d)?)$/.test(text.slice(10)) || text.length === 10 ? whole : `${whole}Z`;
  return Date.parse(text.endsWith("Z") && !zoned.endsWith("Z") ? `${zoned}Z` : zoned);
}

/**
 * Parses the values of a column as numbers, including large integers, which are strings in JSON. Returns null if a
 * value is not a number, or if all are null.
 */
function numbers(values) {
  const read = values.map((value) => typeof value === "number" ? value
    : typeof value === "string" && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value === null ? null : NaN);
  return read.some(Number.isNaN) || read.every((value) => value === null) ? null : read;
}

/** Returns a column as an x axis of the plot, or null if its values are neither times nor ledger sequences. */
function axis([name, values]) {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return null;
  if (known.every((value) => typeof value === "string" && TIME.test(value))) {
    const read = values.map((value) => value === null ? null : milliseconds(value));
    return read.some(Number.isNaN) ? null : { name, values: read, overTime: true };
  }
  const read = /(^|_)ledger(_sequence|_seq)?$/i.test(name) ? numbers(values) : null;
  return read && { name, values: read, overTime: false };
}

function choices(columns) {
  const place = at("sql-plot");
  const axes = columns.map(axis).filter((found) => found !== null);
  // Columns that can be the x axis are not offered as series.
  const series = columns.filter(([name]) => !axes.some((found) => found.name === name))
    .map(([name, values]) => ({ name, values: numbers(values) })).filter(({ values }) => values !== null);
  if (axes.length === 0 || series.length === 0 || columns[0][1].length < 2) {
    place.replaceChildren();
    return;
  }
  const below = select("Over", axes);
  const above = select("Plot", series);
  const drawn = make("div", "");
  const redraw = () => show(drawn, axes[below.lastChild.selectedIndex], series[above.lastChild.selectedIndex]);
  for (const chooser of [below, above]) chooser.addEventListener("change", redraw);
  place.replaceChildren(make("div", "row", above, below), drawn);
  redraw();
}

function select(title, list) {
  const chooser = make("select", "", ...list.map(({ name }) => make("option", "", name)));
  chooser.setAttribute("aria-label", title);
  return make("label", "", `${title} `, chooser);
}

function show(place, over, series) {
  const points = over.values.map((x, row) => [x, series.values[row]]).filter(([x]) => x !== null);
  points.sort(([a], [b]) => a - b);
  // A line through several rows of one ledger would go up and down in one place.
  const repeats = points.some(([x], index) => index > 0 && points[index - 1][0] === x);
  const step = Math.ceil(points.length / MAX_POINTS);
  plot(place, {
    points: points.filter((_, index) => index % step === 0), kind: repeats ? "dots" : "line", overTime: over.overTime,
    label: `${series.name} over ${over.name}`,
    say: ([x, y]) => `${over.overTime ? moment(x) : `${over.name} ${x}`}: ${series.name} ${number(y)}`,
  });
}

export function begin() {
  at("sql-run").addEventListener("click", run);
  at("sql").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
  });
}

/** Removes the results that were requested with the previous token. */
export function clear() {
  for (const id of ["sql-plot", "sql-rows", "sql-said"]) at(id).replaceChildren();
}
