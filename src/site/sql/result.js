// Running a statement, and what comes of it: a table, a plot, files, or the reason why not.

import { Refused, Unreachable, askFile, askStream } from "../api.js";
import { csvFile, save } from "../csv.js";
import { button, folded, having, make, put } from "../dom.js";
import { count, number } from "../format.js";
import { inPlace } from "../places.js";
import { problem, sentence } from "../problem.js";
import { scrolled } from "../table.js";
import { grid } from "./grid.js";
import { plots, plottable } from "./plot.js";
import { columnsOf } from "./read.js";

const PATH = "rest/retroshade/query";

/** Asks the service; returns the text of its answer. */
function answerTo(query, signal) {
  return inPlace("long", signal, async () => {
    const answer = await askStream(PATH, { signal, body: { query, format: "columns", numbers: "string" } });
    try {
      return await answer.text();
    } catch (error) {
      throw new Unreachable(error.message);
    }
  });
}

/** The service's CSV has texts as they are, which a spreadsheet may run as formulas. */
const csv = (columns) => csvFile(columns.map(({ name }) => name), columns[0].values.length,
  (row) => columns.map(({ values }) => values[row]));

/** Letters before and after a place in a statement that are shown. */
const AROUND = 60;

/** Returns the line, its text and the character of a statement that an error names; undefined if it names none. */
function placeIn(query, message) {
  const [, line, at] = /\(line (\d+), character (\d+)\)/.exec(message) ?? caretIn(message);
  const text = query.split("\n")[line - 1];
  return text === undefined || at > text.length + 1 ? undefined : { line: Number(line), text, at: Number(at) };
}

/** Finds the same where the database shows a line with a mark below it. It cuts long lines, and says so with dots. */
function caretIn(message) {
  const [, before, line, text, blanks] = /(LINE (\d+): )(.*)\n( *)\^/.exec(message) ?? [];
  return before === undefined || text.startsWith("...") ? [] : ["", line, blanks.length - before.length + 1];
}

/** Returns the line of a place, with a mark below it. */
function excerptOf({ text, at }) {
  const first = Math.max(0, at - 1 - AROUND);
  return `${text.slice(first, at + AROUND)}\n${" ".repeat(at - 1 - first)}^`;
}

/** Returns the index of a place in its statement; -1 if it is undefined. */
const indexOf = (query, place) => place === undefined ? -1
  : query.split("\n").slice(0, place.line - 1).reduce((sum, line) => sum + line.length + 1, 0) + place.at - 1;

export class Result {
  /** `signal` ends all requests; `done(query, told, wrong)` is called after each run, with the index of an error. */
  constructor(signal, done) {
    Object.assign(this, { signal, done, running: null });
    this.cancel = button("Cancel", "quiet", () => this.running.abort());
    this.cancel.hidden = true;
    this.said = having(make("p", "note"), { role: "status" });
    this.place = make("div");
    this.element = make("div", "", this.said, this.place);
  }

  /** Runs a statement, and brings what comes of it into sight. One that is still running is cancelled. */
  async run(query) {
    this.running?.abort();
    const running = new AbortController();
    this.running = running;
    this.cancel.hidden = false;
    this.said.textContent = "Running …";
    const began = Date.now();
    try {
      const text = await answerTo(query, AbortSignal.any([this.signal, running.signal]));
      if (this.running === running) this.show(query, text, `${number(Date.now() - began)} ms`);
    } catch (error) {
      if (this.running === running) this.refuse(query, error);
    } finally {
      if (this.running === running) {
        this.cancel.hidden = true;
        this.reveal();
      }
    }
  }

  /** Scrolls to the answer where it begins below the screen, as on a phone. */
  reveal() {
    const isBelow = this.place.getBoundingClientRect().top > innerHeight;
    if (isBelow) (this.element.closest("section") ?? this.element).scrollIntoView();
  }

  refuse(query, error) {
    const isCancelled = this.running.signal.aborted;
    this.said.textContent = isCancelled ? "Cancelled. The service stops a statement whose answer nobody awaits." : "";
    if (isCancelled) put(this.place);
    else if (error instanceof Unreachable) put(this.place, make("p", "problem", "The service does not answer."));
    else if (error instanceof Refused && error.status === 422) {
      const place = placeIn(query, error.message);
      const [told, excerpt = place && excerptOf(place)] = error.message.split(/\n+(?=LINE \d+: )/);
      put(this.place, having(make("p", "problem sql-told", told), { role: "alert" }),
        excerpt === undefined ? null : scrolled("Where", make("pre", "sql-plan", excerpt)));
      this.done(query, "refused", indexOf(query, place));
    } else put(this.place, problem(error));
  }

  show(query, text, took) {
    const columns = columnsOf(text);
    const rows = columns[0].values.length;
    const isPlan = columns[0].name === "explain_key";
    const told = isPlan ? `The plan, ${took}` : `${count(rows, "row")}, ${count(columns.length, "column")}, ${took}`;
    this.said.textContent = `${told}.`;
    this.done(query, told);
    if (isPlan) put(this.place, scrolled("Plan", make("pre", "sql-plan", columns[1].values.join("\n"))));
    else put(this.place, this.files(query, columns), plotOf(columns), grid(columns, `Result: ${number(rows)} rows`));
  }

  files(query, columns) {
    const asked = (format) =>
      inPlace("long", this.signal, () => askFile(PATH, { signal: this.signal, body: { query, format } }));
    const offer = (label, ending, file) => button(label, "quiet", async () => {
      const before = this.said.textContent;
      this.said.textContent = `Making the ${label} file …`;
      try {
        save(await file(), `orrery.${ending}`);
        this.said.textContent = before;
      } catch (error) {
        this.said.textContent = `No file: ${sentence(error) ?? ""}`;
      }
    });
    return make("div", "row",
      offer("CSV", "csv", () => csv(columns)),
      offer("Parquet", "parquet", () => asked("parquet")),
      offer("JSON", "json", () => asked("rows")));
  }
}

/** Creates the place of a plot, open if the first column is what it is drawn over; null if nothing can be drawn. */
function plotOf(columns) {
  const possible = plottable(columns);
  if (possible === null) return null;
  const made = folded("", "Plot", () => plots(possible));
  made.open = possible.isFirst;
  return made;
}
