// Statements that were run in this browser.

import { BASE } from "../address.js";
import { button, having, make, put } from "../dom.js";
import { bounded, clock, count } from "../format.js";
import { claims } from "../token.js";

const MOST = 100;
/** Letters of the longest statement that is kept: all pages of this origin share the browser's room. */
const LONGEST = 10_000;

/** Owners, and services behind one proxy, have histories of their own. */
const key = () => `orrery-sql ${new URL(BASE).pathname} ${claims().sub ?? ""}`;

/** Returns whether a value from the browser's storage is an entry: other pages of this origin may write there. */
const isEntry = (entry) =>
  typeof entry?.query === "string" && Number.isFinite(entry.at) && typeof entry.told === "string";

function read() {
  try {
    return JSON.parse(localStorage.getItem(key()) ?? "[]").filter(isEntry);
  } catch {
    return [];
  }
}

export class History {
  /** `take` gets a statement that is chosen. */
  constructor(take) {
    this.take = take;
    this.list = make("ol", "sql-history");
    this.said = make("p", "note");
    this.clear = button("Clear the history", "quiet", () => this.keep([]));
    this.summary = make("summary");
    this.element = make("details", "", this.summary, this.said, this.list, this.clear);
    this.show(read());
  }

  /** Adds a statement that was run, with what came of it. One that is repeated has one entry. */
  add(query, told) {
    if (query.length > LONGEST) return;
    const others = read().filter((entry) => entry.query !== query);
    this.keep([{ query, told, at: Date.now() }, ...others].slice(0, MOST));
  }

  keep(entries) {
    try {
      localStorage.setItem(key(), JSON.stringify(entries));
      this.show(entries);
    } catch {
      this.said.textContent = "Statements are not kept: the browser forbids storage, or has no more room.";
    }
  }

  show(entries) {
    put(this.summary, make("b", "", "History"), " ", make("small", "note", count(entries.length, "statement")));
    const { sub } = claims();
    this.said.textContent = `The newest ${MOST} statements${sub ? ` of ${sub}` : ""}, kept in this browser only.`;
    this.clear.hidden = entries.length === 0;
    put(this.list, entries.map(({ query, told, at }) => make("li", "",
      having(button(bounded(query, 300), "link mono", () => this.take(query)), { title: bounded(query, 2000) }),
      make("small", "note", clock(at), ` · ${told}`))));
  }
}
