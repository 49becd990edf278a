// Totals of a program's runs for each ledger, as plots and as a list.

import { ledgerInput } from "../actions.js";
import { ask } from "../api.js";
import { ledgerLink } from "../address.js";
import { choice, field, form, having, make, note, put, submit } from "../dom.js";
import { clock, count, number } from "../format.js";
import { LiveRows } from "../live_rows.js";
import { plot } from "../plot.js";

/** How often the totals are read, in milliseconds. */
const EVERY = 10000;
/** Records in one answer: the most that the service gives. */
const MOST = 1000;

const sum = (records, name) => records.reduce((total, record) => total + record[name], 0);

function say(records) {
  const counts = [["executions", "run"], ["rows_written", "row"], ["error_count", "error"]]
    .map(([name, thing]) => count(sum(records, name), thing));
  return `${counts.join(", ")}, ${number(sum(records, "total_execution_ms"))} ms`;
}

/** Draws the plots. A ledger has a record of live runs, and one of a backfill. */
function draw(place, records) {
  const ledgers = Map.groupBy(records.toReversed(), (record) => record.ledger_sequence);
  const shown = [["rows_written", "Rows per ledger"], ["error_count", "Errors per ledger"]]
    .filter(([name], index) => index === 0 || sum(records, name) > 0)
    .map(([name, title]) => ({ name, title, frame: make("div", "") }));
  put(place, note(`${count(ledgers.size, "ledger")} with runs: ${say(records)}.`),
    shown.flatMap(({ title, frame }) => [make("h3", "", title), frame]));
  for (const { name, title, frame } of shown) {
    plot(frame, {
      points: [...ledgers].map(([ledger, all]) => [ledger, sum(all, name)]), kind: "bars", whole: true,
      label: `${title}, of the newest ${number(ledgers.size)} with runs`,
      say: ([ledger]) => `Ledger ${ledger}: ${say(ledgers.get(ledger))}`,
    });
  }
}

const cells = (record) => [ledgerLink(record.ledger_sequence), record.source, number(record.executions),
  make("span", record.error_count > 0 ? "bad" : "", number(record.error_count)), number(record.rows_written),
  `${number(record.total_execution_ms)} ms`, clock(record.created_at)];

/** Creates the form that selects ledgers. What it has is in the address of the page. */
function selection(query, apply) {
  const sources = [["", "live and backfill"], ["live", "live"], ["backfill", "backfill"]];
  const source = having(choice(sources, query.get("source") ?? ""), { name: "source" });
  source.addEventListener("change", apply);
  const ledger = (name, placeholder) => ledgerInput({ name, placeholder, value: query.get(name) ?? "" });
  return form("row", apply, field("Runs", source), field("From ledger", ledger("from", "any")),
    field("To ledger", ledger("to", "the newest")), submit("Show", "quiet"));
}

/** Adds the part of the page. */
export function stats(view, { id }) {
  const [place, said] = [make("div", ""), make("div", "")];
  let shown = "";
  const rows = new LiveRows({
    label: "Totals per ledger", kind: "program-stats", row: cells, empty: "There are no runs.",
    heads: ["Ledger", "Source", "Runs", "Errors", "Rows", "Time", "Last run at"],
  });
  const list = make("details", "", make("summary", "", "As a list"), rows.element);
  const asked = () => Object.fromEntries(new FormData(asking));
  const asking = selection(view.query, () => {
    view.setQuery(asked());
    return part.reload();
  });
  const part = view.part("Totals per ledger", async (body) => {
    if (!body.contains(asking)) put(body, asking, said, place, list);
    await view.fill(said, async () => {
      const query = new URLSearchParams({ limit: MOST, ...asked() });
      for (const name of [...query.keys()]) if (query.get(name) === "") query.delete(name);
      const records = await ask(`rest/retroshade/${id}/stats?${query}`, { signal: view.signal });
      put(said);
      if (JSON.stringify(records) === shown) return;
      shown = JSON.stringify(records);
      if (records.length > 0) draw(place, records);
      else put(place, note("No ledger in this range has runs. Totals are kept for 30 days."));
      rows.replace(records);
    });
  }, { every: EVERY });
}
