// The newest runs of a program, with their errors and their fidelity.

import { ask } from "./api.js";
import { ledgerLink, transactionLink } from "./address.js";
import { input, make, put, renew } from "./dom.js";
import { clock, count, number } from "./format.js";
import { Rows } from "./rows.js";

/** How often newer runs are read, in milliseconds. */
const EVERY = 4000;
/** Runs in one answer: the most that the service gives. */
const PAGE = 200;
/** Runs that are kept; the service keeps 500 of a program. */
const MOST = 2000;
/** Different messages that are shown above the list. */
const MESSAGES = 8;

const keyOf = ({ ledger_sequence: ledger, tx_hash: hash, source, created_at: at }) => `${ledger}/${hash}/${source}/${at}`;
const newest = (one, other) => other.ledger_sequence - one.ledger_sequence || (other.created_at > one.created_at ? 1 : other.created_at < one.created_at ? -1 : 0);
const isBad = ({ status, fidelity }) => status === "error" || fidelity === "diverged";

/** Runs that were read, the newest first, and reading further ones. */
class Known {
  constructor(path, signal) {
    Object.assign(this, { path, signal, runs: new Map(), isAll: false, before: null });
  }

  async page(query) {
    const page = await ask(`${this.path}?limit=${PAGE}${query}`, { signal: this.signal });
    const fresh = page.filter((run) => !this.runs.has(keyOf(run)));
    return { page, fresh };
  }

  add(fresh) {
    for (const run of fresh) this.runs.set(keyOf(run), run);
  }

  list(matches) {
    return [...this.runs.values()].filter(matches).sort(newest);
  }

  /** Reads the next page of older runs. A page begins with the ledger in which the one before ended. */
  async older() {
    const { page, fresh } = await this.page(this.before === null ? "" : `&from_ledger=${this.before}`);
    this.add(fresh);
    // A ledger that has more runs than a page cannot be read to its end.
    const last = page.at(-1)?.ledger_sequence ?? 0;
    this.before = fresh.length === 0 && page.length === PAGE ? last - 1 : last;
    this.isAll = this.before < 0 || fresh.length === 0 && page.length < PAGE;
    return fresh;
  }

  /** Reads newer runs. Returns whether there are any. */
  async newer() {
    const { fresh } = await this.page("");
    if (fresh.length === PAGE) {
      // Others may lie between these and those that are known.
      this.runs.clear();
      this.before = fresh.at(-1).ledger_sequence;
      this.isAll = false;
    }
    this.add(fresh);
    for (const run of this.list(() => true).slice(MOST)) this.runs.delete(keyOf(run));
    return fresh.length > 0;
  }
}

const took = (micro) => micro < 1000 ? `${micro} µs` : `${(micro / 1000).toLocaleString("en-US", { maximumFractionDigits: 1 })} ms`;

function cells(run) {
  const { status, error_message: because, fidelity, fidelity_difference: difference } = run;
  return [
    ledgerLink(run.ledger_sequence), transactionLink(run.tx_hash, 4), clock(run.created_at), run.source,
    make("span", status === "error" ? "bad" : "good", status), number(run.rows_written), took(run.execution_us),
    make("span", fidelity === "diverged" ? "bad" : "note", fidelity), make("span", because ? "problem" : "note", because ?? difference ?? ""),
  ];
}

/** Whole messages of the runs that failed or differ, each once: the list has room for their beginnings only. */
function messages(runs) {
  const found = new Map();
  for (const { error_message: because, fidelity_difference: difference, ledger_sequence: ledger } of runs) {
    const message = because ?? (difference ? `not as the network recorded it: ${difference}` : null);
    if (message !== null) found.set(message, { number: (found.get(message)?.number ?? 0) + 1, ledger: found.get(message)?.ledger ?? ledger });
  }
  const rest = found.size - MESSAGES;
  const lines = [...found].slice(0, MESSAGES).map(([message, { number: times, ledger }]) =>
    make("li", "", make("span", "problem", message), make("span", "note", ` (${count(times, "run")}, the newest on ledger `, ledgerLink(ledger), ")")));
  return found.size === 0 ? "" : make("ul", "", lines, rest > 0 ? make("li", "note", `and ${number(rest)} other messages`) : null);
}

/** Adds the part of the page. */
export function runs(view, { id, kind }) {
  const known = new Known(`rest/retroshade/${id}/executions`, view.signal);
  const only = input({ type: "checkbox", spellcheck: null, autocomplete: null });
  only.checked = view.query.get("errors") === "true";
  const matches = (run) => !only.checked || isBad(run);
  const told = make("div", "");
  const rows = new Rows({
    label: "Runs", kind: "program-runs", heads: ["Ledger", "Transaction", "Run at", "Source", "Result", "Rows", "Took", "Fidelity", "Error"], row: cells,
    empty: "There are no such runs.",
    more: async (last) => {
      if (last === null && known.runs.size > 0 && known.list(matches).length > 0) return known.list(matches);
      // Runs without errors may fill whole pages.
      while (!known.isAll) {
        const found = (await known.older()).filter(matches).sort(newest);
        if (found.length > 0) return found;
      }
      return [];
    },
  });
  const show = () => renew(told, messages(known.list(isBad)));
  const refill = () => {
    const { length } = rows.items;
    rows.items = known.list(matches);
    rows.shown.clear();
    const { scrollTop } = rows.scroller;
    rows.draw();
    // The rows in sight stay where they are, unless the first one is in sight.
    if (scrollTop > 0) rows.scroller.scrollTop = scrollTop + Math.max(0, rows.items.length - length) * rows.height;
    show();
  };
  only.addEventListener("change", async () => {
    view.setQuery({ errors: only.checked ? "true" : null });
    rows.isEnd = known.isAll;
    rows.scroller.scrollTop = 0;
    refill();
    if (rows.items.length === 0) await rows.load().catch(() => {});
  });
  view.part("Runs", async (body) => {
    if (!body.contains(rows.element)) {
      put(body, make("p", "note", kind === "events" ? "A run reads the events of one transaction. " : "A run executes the program on one transaction. ",
        "The service keeps the newest 500 of a program. Fidelity: whether return value, events and changes are those that the network recorded."),
      told, rows.element);
      await rows.load();
      rows.draw();
      show();
      return;
    }
    const isNew = await known.newer();
    if (isNew && rows.loading === null) {
      rows.isEnd = known.isAll;
      refill();
    }
  }, { every: EVERY, beside: [make("label", "check", only, " Only errors and differences")] });
}
