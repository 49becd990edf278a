// The backfill of a program: asking for one, its progress, and cancelling it.

import { attempt, ledgerInput, outcome } from "../actions.js";
import { ask } from "../api.js";
import { ledgerLink, ledgerRanges } from "../address.js";
import { button, field, form, having, make, note, put, renew, submit } from "../dom.js";
import { number, words } from "../format.js";
import { facts } from "../table.js";
import { change } from "./parts.js";

/** What each state means, and its class. */
const STATES = words({
  running: ["The program runs on stored ledgers, in addition to new ones.", ""],
  done: ["Done: it was run on all requested ledgers.", ""],
  incomplete: ["Ended: it was run on all requested ledgers except the missing ones.", "warning"],
  cancelled: ["Cancelled; the rows that were written stay.", ""],
  stopped: ["Stopped: it cannot continue.", "problem"],
});

function draw(place, { state, ledgers, ledgers_done: done, message, ...told }) {
  const progress = `${number(done)} of ${number(ledgers)}`;
  const [text, kind] = STATES[state] ?? [state, ""];
  const bar = make("progress", "");
  renew(place, make("p", kind, text),
    having(bar, { max: Math.max(ledgers, 1), value: done, "aria-label": `${progress} ledgers` }),
    message && make("p", "problem", message),
    facts([
      ["Ledgers", progress],
      ["Range", ledgerRanges([[told.from, told.to]])],
      ["Next ledger", state === "done" ? null : ledgerLink(told.next)],
      ["Runs", number(told.executions)],
      ["Errors", make("span", told.errors > 0 ? "bad" : "", number(told.errors))],
      ["Rows written", number(told.rows_written)],
      ["Missing ledgers", told.ledgers_missing === 0 ? "none" : ledgerRanges(told.missing_ledgers)],
    ]));
}

/** Adds the part of the page. `reload` reads the state of the program; what is returned shows each newer one. */
export function backfill(view, id, reload) {
  const path = `${id}/backfill`;
  const place = make("div", "", note("No backfill was asked for yet."));
  const said = outcome();
  const [from, to] = [ledgerInput({ required: "" }), ledgerInput({ placeholder: "the newest one" })];
  let shown;
  const take = (told) => {
    shown = told.state;
    cancel.hidden = shown !== "running";
    draw(place, told);
  };
  const cancel = button("Cancel the backfill", "quiet", () => attempt(said, "Cancelling …", async () => {
    take(await change(path, undefined, "DELETE"));
    return "It is cancelled.";
  }));
  cancel.hidden = true;
  const begin = () => attempt(said, "Asking for the backfill …", async () => {
    take(await change(path, { from: Number(from.value), to: to.value === "" ? undefined : Number(to.value) }));
    await reload();
    return "The backfill has begun. It goes on when this page is left, and after a restart of the service.";
  });
  view.part("Backfill", (body) => {
    put(body, note("Runs it on stored ledgers that it has not processed yet, or again where runs failed."),
      form("row", begin, field("From ledger", from), field("To ledger", to), submit("Run it on these ledgers"), cancel),
      said, place);
  });
  return async ({ backfill: state }) => {
    if (state === undefined || (state === shown && state !== "running")) return;
    await view.fill(place, async () => take(await ask(`rest/retroshade/${path}`, { signal: view.signal })), true);
  };
}
