// Totals of a program's runs for each ledger, as plots and as a list.

import { ask } from "./api.js";
import { encoded, ledgerLink } from "./address.js";
import { choice, field, form, input, make, put, submit } from "./dom.js";
import { clock, count, number } from "./format.js";
import { plot } from "./plot.js";
import { Rows } from "./rows.js";

/** How often the totals are read, in milliseconds. */
const EVERY = 10000;
/** Records in one answer: the most that the service gives. */
const MOST = 1000;

/** Adds the records of live runs and of a backfill on the same ledger, in ascending order of ledgers. */
function byLedger(records) {
  const sums = new Map();
  for (const record of records) {
    const sum = sums.get(record.ledger_sequence) ?? { rows: 0, errors: 0, runs: 0, time: 0 };
    sum.rows += record.rows_written;
    sum.errors += record.error_count;
    sum.runs += record.executions;
    sum.time += record.total_execution_ms;
    sums.set(record.ledger_sequence, sum);
  }
  return [...sums].sort(([one], [other]) => one - other);
}

function plots(place, records) {
  const sums = byLedger(records);
  const told = new Map(sums);
  const say = ([ledger]) => {
    const { rows, errors, runs, time } = told.get(ledger);
    return `Ledger ${ledger}: ${count(rows, "row")}, ${count(runs, "run")}, ${count(errors, "error")}, ${number(time)} ms`;
  };
  const over = `of the newest ${number(sums.length)} ledgers with runs`;
  const total = (name) => sums.reduce((sum, [, one]) => sum + one[name], 0);
  const drawn = (name, title) => {
    const frame = make("div", "");
    return { frame, title, draw: () => plot(frame, { points: sums.map(([ledger, one]) => [ledger, one[name]]), kind: "bars", whole: true, label: `${title} ${over}`, say }) };
  };
  const shown = [drawn("rows", "Rows"), ...(total("errors") > 0 ? [drawn("errors", "Errors")] : [])];
  put(place,
    make("p", "note", `${count(sums.length, "ledger")} with runs: ${count(total("runs"), "run")}, ${count(total("rows"), "row")}, ${count(total("errors"), "error")}, ${number(total("time"))} ms.`),
    ...shown.flatMap(({ frame, title }) => [make("h3", "", `${title} per ledger`), frame]));
  for (const { draw } of shown) draw();
}

const cells = (record) => [ledgerLink(record.ledger_sequence), record.source, number(record.executions),
  make("span", record.error_count > 0 ? "bad" : "", number(record.error_count)), number(record.rows_written),
  `${number(record.total_execution_ms)} ms`, clock(record.created_at)];

/** Adds the part of the page. */
export function stats(view, { id }) {
  const source = choice([["", "live and backfill"], ["live", "live"], ["backfill", "backfill"]], view.query.get("source") ?? "");
  const [from, to] = ["from", "to"].map((name) => {
    const made = input({ type: "number", min: 0, placeholder: name === "from" ? "any" : "the newest" });
    made.value = view.query.get(name) ?? "";
    return made;
  });
  const place = make("div", "");
  const list = make("details", "", make("summary", "", "As a list"));
  const listed = make("div", "");
  list.append(listed);
  let records = [];
  let shown = null;
  const fillList = () => {
    if (!list.open) return;
    const rows = new Rows({ label: "Totals per ledger", kind: "program-stats", heads: ["Ledger", "Source", "Runs", "Errors", "Rows", "Time", "Last run at"],
      row: cells, more: (last) => Promise.resolve(last === null ? records : []), empty: "There are no runs." });
    put(listed, rows.element);
    rows.load();
  };
  list.addEventListener("toggle", fillList);
  const apply = () => {
    view.setQuery({ source: source.value, from: from.value, to: to.value });
    return part.reload();
  };
  source.addEventListener("change", apply);
  const asking = form("row", apply, field("Runs", source), field("From ledger", from), field("To ledger", to), submit("Show", "quiet"));
  const said = make("div", "");
  const part = view.part("Totals per ledger", async (body) => {
    if (!body.contains(place)) put(body, asking, said, place, list);
    const query = Object.entries({ source: source.value, from: from.value, to: to.value }).filter(([, value]) => value !== "")
      .map(([name, value]) => `&${name}=${encoded(value)}`).join("");
    await view.fill(said, async () => {
      records = await ask(`rest/retroshade/${id}/stats?limit=${MOST}${query}`, { signal: view.signal });
      put(said);
    });
    const text = JSON.stringify(records);
    if (text === shown) return;
    shown = text;
    list.hidden = records.length === 0;
    if (records.length === 0) put(place, make("p", "note", "No ledger in this range has runs. Totals are kept for 30 days."));
    else plots(place, records);
    // The list that is being read is not drawn anew under the reader.
    if (listed.querySelector(".scroller")?.scrollTop !== 0 && listed.firstChild) return;
    fillList();
  }, { every: EVERY });
}
