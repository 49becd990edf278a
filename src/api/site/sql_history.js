// Statements that were run in this browser.

import { BASE } from "./address.js";
import { button, having, make, put } from "./dom.js";
import { clock, count } from "./format.js";
import { claims } from "./token.js";

const MOST = 100;
/** Letters of a statement from which on it is not kept: the browser's room is shared with all pages of this origin. */
const LONGEST = 20_000;

/** Owners, and services behind one proxy, have histories of their own. */
const key = () => `orrery-sql ${new URL(BASE).pathname} ${claims().sub ?? ""}`;

/** Returns whether a value from the browser's storage is an entry: other pages of this origin may write there. */
const isEntry = (entry) => typeof entry?.query === "string" && Number.isFinite(entry.at) && typeof entry.told === "string";

function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(key()) ?? "[]");
    return Array.isArray(kept) ? kept.filter(isEntry).slice(0, MOST) : [];
  } catch {
    return null;
  }
}

/** Writes the entries; without the oldest ones if the browser has no more room. Returns whether it permits that. */
function write(entries) {
  for (let kept = entries.slice(0, MOST); ; kept = kept.slice(0, Math.floor(kept.length / 2))) {
    try {
      if (kept.length === 0) localStorage.removeItem(key());
      else localStorage.setItem(key(), JSON.stringify(kept));
      return true;
    } catch {
      if (kept.length === 0) return false;
    }
  }
}

export class History {
  /** `take` gets a statement that is chosen. */
  constructor(take) {
    this.take = take;
    /** Entries while the browser forbids storage. */
    this.memory = [];
    this.list = make("ol", "sql-history");
    this.said = make("p", "note");
    this.clear = button("Clear the history", "quiet", () => {
      this.memory = [];
      write([]);
      this.show();
    });
    this.summary = make("summary");
    this.element = make("details", "", this.summary, this.said, this.list, make("p", "", this.clear));
    this.element.addEventListener("toggle", () => this.show());
    this.show();
  }

  /** Adds a statement that was run, with what came of it. One that is repeated has one entry. */
  add(query, told) {
    if (query.length > LONGEST) return;
    const entries = [{ query, told, at: Date.now() }, ...(read() ?? this.memory).filter((entry) => entry.query !== query)].slice(0, MOST);
    if (!write(entries)) this.memory = entries;
    this.show();
  }

  show() {
    const kept = read();
    const isKept = kept !== null && (kept.length > 0 || this.memory.length === 0);
    const entries = isKept ? kept : this.memory;
    put(this.summary, make("b", "", "History"), " ", make("small", "note", count(entries.length, "statement")));
    const { sub } = claims();
    const whose = typeof sub === "string" ? ` of ${sub}` : "";
    this.said.textContent = isKept ? `The newest ${MOST} statements${whose}, kept in this browser only (its local storage).`
      : "The browser forbids storage: these statements are forgotten when the page is left.";
    this.clear.hidden = entries.length === 0;
    if (!this.element.open) return;
    put(this.list, entries.map(({ query, told, at }) => make("li", "",
      having(button(query.slice(0, 300).replaceAll(/\s+/g, " "), "link mono", () => this.take(query)), { title: query.slice(0, 2000) }),
      make("small", "note", clock(at), ` · ${told}`))));
  }
}
