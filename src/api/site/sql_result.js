// Running a statement, and what comes of it: a table, a plot, files, or the reason why not.

import { NoToken, Refused, Stale, Unreachable, askFile, askStream } from "./api.js";
import { csvFile } from "./csv.js";
import { button, having, make, put } from "./dom.js";
import { bytes, count, number } from "./format.js";
import { problem } from "./problem.js";
import { Grid } from "./sql_grid.js";
import { plots, plottable } from "./sql_plot.js";
import { described, placeOf, readColumns, refusalOf, slices } from "./sql_read.js";
import { firstWord } from "./sql_words.js";

const PATH = "rest/retroshade/query";
/** Formats of files: the button, the service's name, and the end of the file's name. */
const FILES = [["CSV", "csv", "csv"], ["Parquet", "parquet", "parquet"], ["JSON", "rows", "json"]];

/** First words of statements that can be described. */
const DESCRIBED = new Set(["select", "from", "with", "values"]);

const span = (milliseconds) => milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;

export class Result {
  /**
   * `signal` ends all requests, `done(query, told)` is called after each run, `mark` gets the place of an error,
   * `nameFile` returns the name for a file with the result of a statement.
   */
  constructor({ signal, done, mark, nameFile }) {
    Object.assign(this, { signal, done, mark, nameFile, running: null });
    this.cancel = button("Cancel", "quiet", () => this.running?.abort());
    this.cancel.hidden = true;
    this.said = having(make("p", "note"), { role: "status" });
    this.bar = make("div", "row sql-bar");
    this.place = make("div");
    this.element = make("div", "", this.said, this.bar, this.place);
  }

  /** Runs a statement. One that is still running is cancelled. */
  async run(query) {
    this.running?.abort();
    const running = new AbortController();
    this.running = running;
    this.cancel.hidden = false;
    const began = performance.now();
    let size = 0;
    const tick = () => {
      const waited = performance.now() - began;
      this.said.textContent = `Running …${waited > 1500 ? ` ${Math.round(waited / 1000)} s` : ""}${size > 0 ? `, ${bytes(size)} read` : ""}`;
    };
    tick();
    const timer = setInterval(tick, 1000);
    const signal = AbortSignal.any([this.signal, running.signal]);
    const isCurrent = () => this.running === running && !this.signal.aborted;
    try {
      const answer = await askStream(PATH, { signal, body: { query, format: "columns", numbers: "string" } });
      const pause = slices(signal);
      const columns = await described(await readColumns(answer, pause, (read) => { size = read; }), pause);
      if (isCurrent()) this.show(query, columns, size, performance.now() - began, signal);
    } catch (error) {
      if (isCurrent()) this.refuse(query, error, running.signal.aborted, performance.now() - began);
    } finally {
      clearInterval(timer);
      if (this.running === running) {
        this.running = null;
        this.cancel.hidden = true;
      }
    }
  }

  refuse(query, error, isCancelled, took) {
    put(this.bar);
    if (isCancelled) {
      this.said.textContent = `Cancelled after ${span(took)}. The service stops a statement whose answer nobody awaits.`;
      put(this.place);
      return;
    }
    this.said.textContent = "";
    if (error instanceof Refused && error.status === 422) {
      const { told, excerpt } = refusalOf(error);
      const shown = excerpt === "" ? null : having(make("pre", "scrolled sql-excerpt", excerpt), { tabindex: 0, role: "group", "aria-label": "Where" });
      put(this.place, having(make("p", "problem sql-told", told), { role: "alert" }), shown);
      const found = placeOf(error.message, query);
      if (found !== null) this.mark(found);
      this.done(query, "refused");
      return;
    }
    const told = error instanceof Unreachable ? make("p", "problem", "The service does not answer.") : problem(error);
    put(this.place, told === null || error instanceof NoToken ? told : having(told, { role: "alert" }));
    if (error instanceof Refused && [429, 503].includes(error.status)) this.place.append(make("p", "note", "Run it again in a moment."));
  }

  show(query, columns, size, took, signal) {
    const rows = columns[0]?.values.length ?? 0;
    const isPlan = columns.length === 2 && columns[0].name === "explain_key";
    const told = isPlan ? `the plan, ${span(took)}` : `${count(rows, "row")}, ${count(columns.length, "column")}, ${span(took)}`;
    this.said.textContent = `${told.charAt(0).toUpperCase()}${told.slice(1)}, ${bytes(size)}.`;
    this.done(query, told);
    if (isPlan) {
      put(this.bar);
      const plan = having(make("pre", "scrolled sql-plan", columns[1].values.join("\n")), { tabindex: 0, role: "group", "aria-label": "Plan" });
      put(this.place, plan);
      return;
    }
    const grid = new Grid(columns, `Result: ${number(rows)} rows`);
    put(this.bar, FILES.map((file) => this.fileButton(query, file, columns)));
    put(this.place, grid.element);
    grid.draw();
    this.offerPlot(columns);
    this.readTypes(query, grid, signal);
  }

  /** Offers a plot, and shows it at once if the first column is what it would be drawn over. */
  offerPlot(columns) {
    const possible = plottable(columns);
    if (possible.axes.length === 0) return;
    const { element, redraw } = plots(possible);
    const toggle = make("button", "quiet", "Plot");
    toggle.type = "button";
    const show = (isShown) => {
      toggle.setAttribute("aria-pressed", String(isShown));
      element.hidden = !isShown;
      if (isShown) redraw();
    };
    toggle.addEventListener("click", () => show(element.hidden));
    this.bar.prepend(toggle);
    this.place.prepend(element);
    show(possible.isFirst);
  }

  /** Asks for the types of the columns. The result is complete without them. */
  async readTypes(query, grid, signal) {
    if (!DESCRIBED.has(firstWord(query))) return;
    try {
      const answer = await askStream(PATH, { signal, body: { query: `describe ${query}`, format: "columns" } });
      const { column_type: types } = await answer.json();
      if (!signal.aborted) grid.setTypes(types);
    } catch {
      // A statement may be one that cannot be described, and the service may be busy.
    }
  }

  fileButton(query, [label, format, ending], columns) {
    return button(label, "quiet", async () => {
      const before = this.said.textContent;
      const said = (text) => { this.said.textContent = text; };
      try {
        // The service's CSV has texts as they are, which a spreadsheet may run as formulas.
        const isHere = format === "csv";
        if (!isHere) said("Running it for the file …");
        const file = isHere ? await csvFile(columns.map(({ name }) => name), columns[0].values.length, (row) => columns.map(({ values }) => values[row]))
          : await askFile(PATH, { signal: this.signal, body: { query, format } });
        const url = URL.createObjectURL(file);
        const anchor = having(make("a"), { href: url, download: `${this.nameFile(query)}.${ending}` });
        anchor.click();
        // The browser reads the file after the click.
        setTimeout(() => URL.revokeObjectURL(url), 60_000);
        said(before);
      } catch (error) {
        if (error instanceof Stale) return;
        said(`No file: ${error instanceof Refused ? refusalOf(error).told : "the service does not answer."}`);
      }
    });
  }
}
