// The newest runs of a program, with their errors and their fidelity.

import { ask } from "../api.js";
import { ledgerLink, transactionLink } from "../address.js";
import { input, make, note, put, renew } from "../dom.js";
import { clock, count, number } from "../format.js";
import { LiveRows } from "../live_rows.js";

/** How often newer runs are read, in milliseconds. */
const EVERY = 4000;
/** Runs in one answer: the most that the service gives. It keeps 500 of a program. */
const PAGE = 200;
/** Runs that are kept here. */
const MOST = 2000;
/** Different messages that are shown above the list. */
const MESSAGES = 8;

const keyOf = ({ tx_hash: hash, source, created_at: at }) => `${hash} ${source} ${at}`;
const byAge = (one, other) =>
  other.ledger_sequence - one.ledger_sequence || Date.parse(other.created_at) - Date.parse(one.created_at);
const isBad = ({ status, fidelity }) => status === "error" || fidelity === "diverged";

/** Returns the runs that are not known yet. A page begins with the ledger in which the one before ended. */
async function newer(path, known, signal) {
  const keys = new Set(known.map(keyOf));
  const found = [];
  for (let query = ""; ;) {
    const page = await ask(`${path}?limit=${PAGE}${query}`, { signal });
    const fresh = page.filter((run) => !keys.has(keyOf(run)));
    for (const run of fresh) keys.add(keyOf(run));
    found.push(...fresh);
    if (page.length < PAGE || fresh.length === 0) return found;
    const [first, last] = [page[0].ledger_sequence, page.at(-1).ledger_sequence];
    // A ledger that has more runs than a page cannot be read to its end.
    query = `&from_ledger=${first === last ? Math.max(0, last - 1) : last}`;
  }
}

const took = (micro) => micro < 1000 ? `${micro} µs` : `${number(Math.round(micro / 100) / 10)} ms`;

function cells(run) {
  const { status, error_message: because, fidelity, fidelity_difference: difference } = run;
  return [
    ledgerLink(run.ledger_sequence), transactionLink(run.tx_hash, 4), clock(run.created_at), run.source,
    make("span", status === "error" ? "bad" : "good", status), number(run.rows_written), took(run.execution_us),
    make("span", fidelity === "diverged" ? "bad" : "note", fidelity),
    make("span", because ? "problem" : "note", because ?? difference ?? ""),
  ];
}

/** Whole messages of the runs that failed or differ, each once: the list has room for their beginnings only. */
function messages(runs) {
  const messageOf = ({ error_message: because, fidelity_difference: difference }) =>
    because ?? (difference ? `not as the network recorded it: ${difference}` : null);
  const found = [...Map.groupBy(runs.filter(messageOf), messageOf)];
  const line = ([message, all]) => make("li", "", make("span", "problem", message),
    make("span", "note", ` (${count(all.length, "run")}, the newest on `, ledgerLink(all[0].ledger_sequence), ")"));
  const rest = found.length - MESSAGES;
  return found.length === 0 ? "" : make("ul", "", found.slice(0, MESSAGES).map(line),
    rest > 0 ? make("li", "note", `and ${number(rest)} other messages`) : null);
}

/** Adds the part of the page. */
export function runs(view, { id, kind }) {
  let all = [];
  const only = input({ type: "checkbox", spellcheck: null, autocomplete: null });
  only.checked = view.query.get("errors") === "true";
  const told = make("div", "");
  const rows = new LiveRows({
    label: "Runs", kind: "program-runs", row: cells, empty: "There are no such runs.",
    heads: ["Ledger", "Transaction", "Run at", "Source", "Result", "Rows", "Took", "Fidelity", "Error"],
  });
  const show = () => {
    renew(told, messages(all));
    rows.replace(only.checked ? all.filter(isBad) : all);
  };
  only.addEventListener("change", () => {
    view.setQuery({ errors: only.checked ? "true" : null });
    rows.scroller.scrollTop = 0;
    show();
  });
  view.part("Runs", async (body) => {
    const found = await newer(`rest/retroshade/${id}/executions`, all, view.signal);
    all = [...found, ...all].sort(byAge).slice(0, MOST);
    const isDrawn = body.contains(rows.element);
    if (!isDrawn) {
      put(body, note(`A run ${kind === "events" ? "reads the events of" : "executes the program on"} one `,
        "transaction; the newest 500 are kept. Fidelity: whether return value, events and changes are those that the ",
        "network recorded."), told, rows.element);
    }
    if (!isDrawn || found.length > 0) show();
  }, { every: EVERY, beside: [make("label", "check", only, " Only errors and differences")] });
}
