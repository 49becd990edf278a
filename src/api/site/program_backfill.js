// The backfill of a program: asking for one, its progress, and cancelling it.

import { attempt, outcome } from "./actions.js";
import { ask } from "./api.js";
import { ledgerLink, ledgerRanges } from "./address.js";
import { button, field, form, having, input, make, paragraph, put, renew, submit } from "./dom.js";
import { count, number, words } from "./format.js";
import { change } from "./program_parts.js";
import { facts } from "./table.js";

/** How often the progress is read, in milliseconds. */
const EVERY = 2000;

/** What each state means. */
const STATES = words({
  running: "The program runs on stored ledgers, in addition to new ones.",
  done: "Done: it was run on all requested ledgers.",
  incomplete: "Ended: it was run on all requested ledgers except the missing ones.",
  cancelled: "Cancelled; the rows that were written stay.",
  stopped: "Stopped: it cannot continue.",
});

function draw(place, told) {
  const { state, from, to, next, ledgers, ledgers_done: done, missing_ledgers: missing, message } = told;
  const bar = having(make("progress", "program-progress"), { max: Math.max(ledgers, 1), value: done, "aria-label": `${number(done)} of ${number(ledgers)} ledgers` });
  renew(place,
    make("p", state === "stopped" ? "problem" : state === "incomplete" ? "warning" : "", STATES[state] ?? state), bar,
    message ? make("p", "problem", message) : "",
    facts([
      ["Ledgers", `${number(done)} of ${number(ledgers)}`],
      ["Range", ledgerRanges([[from, to]])],
      ["Next ledger", state === "done" ? null : ledgerLink(next)],
      ["Runs", number(told.executions)],
      ["Errors", told.errors > 0 ? make("span", "bad", number(told.errors)) : "0"],
      ["Rows written", number(told.rows_written)],
      ["Missing", missing.length === 0 ? "none" : make("span", "", `${count(told.ledgers_missing, "ledger")}: `, ledgerRanges(missing))],
    ]),
    missing.length > 0 ? paragraph("note", "Missing ledgers are not stored in full: a gap, retention, or settings that left out a contract. `orrery backfill` without a program stores older ledgers.") : "");
}

/**
 * Adds the part of the page. `listeners` are called with each newer state of the program, which `reload` reads. That says
 * whether there is a backfill.
 */
export function backfill(view, { id, backfill: first }, listeners, reload) {
  const [place, said] = [make("div", ""), outcome()];
  const from = input({ type: "number", min: 0, required: "" });
  const to = input({ type: "number", min: 0, placeholder: "the newest one" });
  let state = first;
  let shown = null;
  listeners.push((program) => { state = program.backfill; });
  const take = (told) => {
    shown = told;
    state = told.state;
    cancel.hidden = told.state !== "running";
    draw(place, told);
  };
  const cancel = button("Cancel the backfill", "quiet", () => attempt(said, "Cancelling …", async () => {
    take(await change(`${id}/backfill`, undefined, "DELETE"));
    return make("p", "good", "It is cancelled.");
  }));
  cancel.hidden = true;
  const begin = () => attempt(said, "Asking for the backfill …", async () => {
    take(await change(`${id}/backfill`, { from: Number(from.value), ...(to.value === "" ? {} : { to: Number(to.value) }) }));
    await reload();
    return make("p", "good", "The backfill has begun. It goes on when this page is left, and after a restart of the service.");
  });
  const asking = form("row", begin, field("From ledger", from), field("To ledger", to), submit("Run it on these ledgers"), cancel);
  view.part("Backfill", async (body) => {
    if (!body.contains(place)) {
      put(body, make("p", "note", "Runs it on stored ledgers that it has not processed yet, or again where runs failed. Rows that exist are not written twice."), asking, said, place);
    }
    if (state === undefined && shown === null) renew(place, make("p", "note", "No backfill was asked for yet."));
    else if (shown === null || shown.state === "running" || shown.state !== state) {
      take(await ask(`rest/retroshade/${id}/backfill`, { signal: view.signal }));
    }
  }, { every: EVERY });
}
