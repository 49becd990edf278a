// Sending again: all events of a range of ledgers, or all deliveries that were given up.

import { attempt, ledgerInput, mistake, outcome } from "../actions.js";
import { Refused, askPatiently } from "../api.js";
import { ledgerRanges } from "../address.js";
import { button, field, form, make, note, put, submit } from "../dom.js";
import { count, number } from "../format.js";

/** Number of requests for one ledger. */
const MOST_REPEATED = 30;

/** Sends the events of a range with as many requests as it takes. `progress` is told how far that is. */
async function replay(id, from, to, signal, progress) {
  const missing = [];
  let [sent, unjudged, repeated] = [0, 0, 0];
  for (let next = from; next !== null;) {
    const begun = next;
    const answer = await askPatiently(`rest/webhooks/${id}/replay`, { body: { from: next, to }, signal });
    sent += answer.deliveries;
    unjudged += answer.unjudged ?? 0;
    missing.push(...answer.missing_ledgers);
    ({ next } = answer);
    // A request goes on within a ledger where the one before has stopped.
    repeated = next === begun ? repeated + 1 : 0;
    if (repeated >= MOST_REPEATED) throw mistake(`there is too much of ledger ${number(next)}: begin with it again, to go on`);
    progress(`Before ledger ${number(next ?? to)}: ${count(sent, "event")}. Leaving this page stops it.`);
  }
  const told = sent === 0 ? "No stored event of these ledgers matches." : `${count(sent, "event")} will be sent.`;
  return make("p", "", told,
    unjudged > 0 ? ` ${count(unjudged, "event")} could not be judged: it is not known what their contracts declare.` : null,
    missing.length > 0 ? [" The events of these ledgers are not stored: ", ledgerRanges(missing), "."] : null);
}

/** Sends the dead deliveries again, the newest first. `progress` is told how many so far. */
async function revive(id, signal, progress) {
  let sent = 0;
  for (let cursor = ""; ;) {
    const page = await askPatiently(`rest/webhooks/${id}/deliveries?status=dead&limit=200${cursor}`, { signal });
    // A test has no event that could be sent again.
    for (const { delivery_id: dead } of page.filter(({ test }) => !test)) {
      try {
        await askPatiently(`rest/webhooks/${id}/replay`, { body: { delivery_id: dead }, signal });
        sent += 1;
      } catch (error) {
        // Retention may have removed it since the page was read.
        if (!(error instanceof Refused && error.status === 404)) throw error;
      }
      progress(`${count(sent, "event")} so far. Leaving this page stops it.`);
    }
    if (page.length === 0) return `${count(sent, "event")} will be sent again.`;
    cursor = `&cursor=${page.at(-1).delivery_id}`;
  }
}

/** Creates the form. `done` is called when it ends. */
export function replayForm(view, id, done) {
  const [from, to, said] = [ledgerInput(), ledgerInput(), outcome()];
  let reached = "";
  const progress = (text) => {
    reached = text;
    put(said, note(text));
  };
  /** Does something, and tells how far it came if it does not come to its end. */
  const told = async (doing, work) => {
    reached = "";
    const isDone = await attempt(said, doing, work);
    if (!isDone && reached !== "") said.append(note(reached));
    done();
  };
  const send = () => told("Sending …", () => {
    if (from.value === "" || to.value === "") throw mistake("give the numbers of the first and the last ledger");
    return replay(id, Number(from.value), Number(to.value), view.signal, progress);
  });
  const again = () => told("Looking for dead deliveries …", () => revive(id, view.signal, progress));
  return make("div", "",
    note("Sends all matching events of these ledgers, also those that have arrived: receivers know them ",
      "by their id. The ledgers may be older than the subscription."),
    form("row", send, field("From ledger", from), field("To ledger", to), submit("Send the events")),
    note("Deliveries are dead when their attempts are used up."),
    make("div", "row", button("Send all dead ones again", "quiet", again)), said);
}
