// Comma-separated values (RFC 4180), for spreadsheets: events, and answers to queries.

import { askPatiently, pause } from "./api.js";
import { button, having, make, prose, put } from "./dom.js";
import { number } from "./format.js";
import { problem } from "./problem.js";

/** Rows of a page of the service, and of a file. */
const PAGE = 1000;
const MOST = 100_000;

/** A text that a spreadsheet would run as a formula. */
const FORMULA = /^\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/;
/** The same behind what some spreadsheets take for the end of a cell, within quotes, too. */
const INNER = /([;\t|\r\n][\s"']*)(?=[=+\-@\uFF1D\uFF0B\uFF0D\uFF20])/g;
const NUMBER = /^-?(\d+(\.\d+)?(e[+-]?\d+)?|Infinity)$/;

const textOf = (value) => typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");

/**
 * Returns a cell: a number, or a text in quotes. What a spreadsheet would run gets an apostrophe before it, whatever
 * sign it takes for the end of a cell.
 */
function cell(value) {
  const text = textOf(value);
  if (text === "" || NUMBER.test(text)) return text;
  const harmless = (FORMULA.test(text) ? `'${text}` : text).replace(INNER, "$1'");
  return `"${harmless.replaceAll("\"", "\"\"")}"`;
}

const line = (values) => `${values.map(cell).join(",")}\r\n`;

/** Returns a file with these heads and so many rows; `row` returns the values of one. */
export async function csvFile(heads, rows, row) {
  const pieces = [new Blob([line(heads)])];
  for (let first = 0; first < rows; first += PAGE) {
    const size = Math.min(PAGE, rows - first);
    pieces.push(new Blob(Array.from({ length: size }, (_, index) => line(row(first + index)))));
    // The browser may do other things.
    await pause(0);
  }
  return new Blob(pieces, { type: "text/csv;charset=utf-8" });
}

/** Saves a file under a name, as the browser saves files. */
export function save(file, name) {
  const url = URL.createObjectURL(file);
  having(make("a"), { href: url, download: name }).click();
  // The browser reads the file after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

const FIXED = ["id", "ledger", "time", "transaction", "name"];
const NOT_DECLARED = ["rest", "topics", "data"];

/** Keeps of an event what its row needs. */
function light({ id, ledger, ledger_closed_at: at, tx, decoded: { name, params, rest, topics, data } }) {
  const others = params === null ? { topics: JSON.stringify(topics), data: JSON.stringify(data) } : { rest };
  return { id, fixed: [id, ledger, at, tx, name], params: new Map(Object.entries(params ?? {})), others };
}

/** Returns the file of events: the columns of their parameters, and of what is not declared, are those that occur. */
function fileOf(events) {
  const names = [...new Set(events.flatMap(({ params }) => [...params.keys()]))];
  const others = NOT_DECLARED.filter((name) => events.some((event) => event.others[name] !== undefined));
  const heads = names.map((name) => [...FIXED, ...NOT_DECLARED].includes(name) ? `param_${name}` : name);
  return csvFile([...FIXED, ...heads, ...others], events.length, (index) => {
    const event = events[index];
    return [...event.fixed, ...names.map((it) => event.params.get(it)), ...others.map((it) => event.others[it])];
  });
}

/** Reads the events of a route, the newest first, until the end or `MOST`. `told` gets their number so far. */
async function read(path, signal, told) {
  const events = [];
  for (let isEnd = false; !isEnd && events.length < MOST;) {
    const cursor = events.length === 0 ? "" : `&cursor=${events.at(-1).id}`;
    const answer = await askPatiently(`${path}&limit=${PAGE}${cursor}`, { signal });
    isEnd = answer.length === 0;
    for (const event of answer) events.push(light(event));
    told(events.length);
  }
  return events;
}

/** Creates the button that saves events, and what it says. `path()` returns their route with its parameters. */
export function exporter(name, path, signal) {
  const said = having(make("span", "note"), { role: "status" });
  const run = async () => {
    try {
      const events = await read(path(), signal, (count) => put(said, `${number(count)} events read …`));
      if (events.length === 0) return put(said, "There are no such events.");
      save(await fileOf(events), `${name}.csv`);
      const isWhole = events.length < MOST;
      return put(said, `${number(events.length)} events are saved. `, isWhole ? ""
        : prose("There may be more: `orrery export` writes all, as Parquet files."));
    } catch (error) {
      return put(said, problem(error));
    }
  };
  return make("span", "contract-export", button("Export as CSV", "quiet", run), said);
}
