// Comma-separated values (RFC 4180), for spreadsheets: events, and answers to queries.

import { Refused, Unreachable, askOn, pause } from "./api.js";

/** Rows of a page of the service, and of a file. */
const PAGE = 1000;
export const MOST = 100000;
/** Attempts at a page, and milliseconds between them, when the service is busy. */
const ATTEMPTS = 6;
const PAUSE = 2000;

/** A text that a spreadsheet would run as a formula. */
const FORMULA = /^\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/;
const NUMBER = /^-?(\d+(\.\d+)?(e[+-]?\d+)?|Infinity)$/;

const textOf = (value) => value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);

/** Returns a cell. A text that a spreadsheet would run begins with an apostrophe; a number stays one. */
function cell(value) {
  let text = textOf(value);
  if (FORMULA.test(text) && !NUMBER.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll("\"", "\"\"")}"` : text;
}

const line = (values) => `${values.map(cell).join(",")}\r\n`;

async function page(path, signal) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await askOn(path, { signal });
    } catch (error) {
      const mayPass = error instanceof Unreachable || error instanceof Refused && [429, 503].includes(error.status);
      if (!mayPass || attempt === ATTEMPTS || signal.aborted) throw error;
      await pause(PAUSE);
    }
  }
}

/** Keeps of an event what its row needs. */
function light({ id, ledger, ledger_closed_at: at, tx, decoded: { name, params, rest: more, topics, data } }) {
  return params === null ? { fixed: [id, ledger, at, tx, name], params: {}, topics: JSON.stringify(topics), data: JSON.stringify(data) }
    : { fixed: [id, ledger, at, tx, name], params, more };
}

const FIXED = ["id", "ledger", "time", "transaction", "name"];

/** The columns behind the fixed ones: the head of each, and what it takes from an event. They are found while reading. */
class Columns {
  constructor() {
    this.names = new Set();
    this.hasMore = false;
    this.hasUndeclared = false;
  }

  note({ params, more, topics }) {
    for (const name of Object.keys(params)) this.names.add(name);
    this.hasMore ||= more !== undefined;
    this.hasUndeclared ||= topics !== undefined;
  }

  list() {
    const taken = new Set(FIXED);
    const head = (name) => {
      let made = name;
      while (taken.has(made)) made = `param_${made}`;
      taken.add(made);
      return made;
    };
    const columns = [...this.names].map((name) => [head(name), ({ params }) => Object.hasOwn(params, name) ? params[name] : ""]);
    if (this.hasMore) columns.push([head("rest"), ({ more }) => more]);
    if (this.hasUndeclared) columns.push([head("topics"), ({ topics }) => topics], [head("data"), ({ data }) => data]);
    return columns;
  }
}

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

/**
 * Reads the events of a route with its parameters, the newest first, until the end or `MOST`. `read` gets their number
 * so far. Returns the file, the number of its rows, and whether there are more.
 */
export async function exported(path, { signal, read }) {
  const joint = path.includes("?") ? "&" : "?";
  const events = [];
  const columns = new Columns();
  let isEnd = false;
  while (!isEnd && events.length < MOST) {
    const cursor = events.length === 0 ? "" : `&cursor=${events.at(-1).fixed[0]}`;
    const answer = await page(`${path}${joint}decoded=true&limit=${Math.min(PAGE, MOST - events.length)}${cursor}`, signal);
    for (const event of answer) {
      const kept = light(event);
      columns.note(kept);
      events.push(kept);
    }
    isEnd = answer.length === 0;
    read(events.length);
  }
  const hasMore = !isEnd && (await page(`${path}${joint}limit=1&cursor=${events.at(-1).fixed[0]}`, signal)).length > 0;
  const list = columns.list();
  const file = await csvFile([...FIXED, ...list.map(([head]) => head)], events.length,
    (index) => [...events[index].fixed, ...list.map(([, take]) => take(events[index]))]);
  return { file, rows: events.length, hasMore };
}
