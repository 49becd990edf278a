// A ledger: its header, its transactions and its events.

import { Refused, ask, session } from "../api.js";
import { link } from "../address.js";
import { command, copyable } from "../copy.js";
import { having, make, paragraph, put } from "../dom.js";
import { eventRows } from "../event.js";
import { number, time, words } from "../format.js";
import { latest } from "../health.js";
import { sentence } from "../problem.js";
import { watchRetention } from "../retention.js";
import { facts } from "../table.js";
import { transactionRows } from "../transactions.js";

/** Milliseconds until a ledger is asked for again: one that is to come, one that is missing, one that is not attested yet. */
const SOON = 1500;
const LATER = 10000;
const ATTESTED_EVERY = 4000;
/** Sequence numbers of ledgers have 32 bits. */
const LAST = 2 ** 32 - 1;

const ATTESTERS = words({ validators: "by the signatures of validators of trusted organisations", core: "by the stellar-core that this service follows" });

function attested({ attested: isAttested, attested_by: by }) {
  if (!isAttested) return ["Not yet. ", link("trust", "Who attests ledgers")];
  return ["Yes, ", ATTESTERS[by] ?? by ?? "", ". ", link("trust", "Who")];
}

/** Says how many transactions of the ledger are stored, of how many it has. */
function ofLedger({ transactions, transactions_in_ledger: all, failed_in_ledger: failed }) {
  const stored = `${number(transactions)} of smart contracts`;
  return all === undefined ? stored : `${stored}; ${number(all)} in the ledger, of which ${number(failed ?? 0)} failed`;
}

function shown(ledger) {
  const { range: [first, last] } = ledger;
  return facts([
    ["Closed", time(ledger.closed_at)],
    ["Protocol", ledger.protocol_version === undefined ? null : String(ledger.protocol_version)],
    ["Attested", make("p", "", ...attested(ledger))],
    ["Transactions", ofLedger(ledger)],
    ["Events", `${number(ledger.events)}${ledger.events_removed ? "; retention has removed them" : ""}`],
    ["Stored in the range", make("p", "", link(`ledger/${first}`, String(first)), " to ", link(`ledger/${last}`, String(last)))],
    ["Hash", copyable(ledger.hash, "the hash of the ledger", make("span", "mono", ledger.hash))],
    ["Previous hash", link(`ledger/${ledger.ledger - 1}`, make("span", "mono", ledger.previous_hash))],
  ]);
}

/** Shows the lists of a stored ledger. Without a token, only one part says so. */
function lists(view, ledger) {
  const range = `from=${ledger.ledger}&to=${ledger.ledger}&order=asc`;
  const list = async (body, rows) => {
    await rows.load();
    put(body, rows.element);
    rows.draw();
  };
  const from = view.loads.length;
  const title = (name, count) => session.token === "" ? name : `${name} (${number(count)})`;
  view.part(session.token === "" ? "Transactions and events" : title("Transactions", ledger.transactions), (body) => list(body, transactionRows({
    label: "Transactions of the ledger", path: `rest/txs/by-ledger?${range}`, without: ["time", "ledger"], signal: view.signal, ask,
    empty: ledger.transactions === 0 ? "No transaction of this ledger calls a contract or changes one." : "Retention has removed these transactions.",
  })));
  if (session.token !== "") {
    view.part(title("Events", ledger.events), (body) => list(body, eventRows({
      label: "Events of the ledger", path: `rest/events/by-ledger?${range}`, without: ["time", "ledger"], signal: view.signal, ask,
      empty: ledger.events_removed ? "Retention has removed the events of this ledger." : "This ledger has no stored events.",
    })));
  }
  return Promise.allSettled(view.loads.slice(from));
}

/** Says why a ledger is not stored; of one that is to come, that the page waits for it. */
function missing(body, error, isMissing, isToCome) {
  const text = sentence(error) ?? "";
  // The sentence has the command that mends it between backticks.
  const mend = text.split("`")[1];
  put(body, paragraph(isMissing ? "" : "problem", text), mend === undefined ? null : command(mend, "the command that adds it"),
    make("p", "note", isToCome ? "This page waits for it, and shows it when it is stored." : "It is asked for again every ten seconds."));
}

/** Reads the ledger until it is stored, then until it is attested, and shows it. */
async function load(view, sequence, body) {
  const { signal } = view;
  let before = "";
  let isShown = false;
  const round = async () => {
    let wait = ATTESTED_EVERY;
    try {
      const ledger = document.hidden && before !== "" ? null : await ask(`rest/ledgers/${sequence}`, { signal });
      const text = JSON.stringify(ledger);
      // What has not changed stays as it is, so that what the reader has selected does, too.
      if (ledger !== null && text !== before) put(body, shown(ledger));
      if (ledger !== null) before = text;
      if (!isShown && ledger !== null) {
        isShown = true;
        watchRetention(view, sequence);
        lists(view, ledger);
      }
      if (ledger?.attested) return;
    } catch (error) {
      if (signal.aborted) return;
      const isMissing = error instanceof Refused && error.code === "no_ledger";
      if (isShown && !isMissing) wait = LATER;
      else {
        const isToCome = isMissing && !(sequence <= latest?.service_latest_ledger);
        wait = isToCome ? SOON : LATER;
        const text = `${isToCome} ${error.message}`;
        if (text !== before) missing(body, error, isMissing, isToCome);
        before = text;
        isShown = false;
      }
    }
    setTimeout(() => { if (!signal.aborted) round(); }, wait);
  };
  await round();
}

function neighbours(sequence) {
  const beside = (to, text, rel) => having(link(`ledger/${to}`, text), { rel });
  return having(make("nav", "neighbours",
    sequence > 1 ? beside(sequence - 1, `← ${sequence - 1}`, "prev") : null,
    sequence < LAST ? beside(sequence + 1, `${sequence + 1} →`, "next") : null), { "aria-label": "Ledgers before and after" });
}

export function open(view) {
  const text = view.params.ledger;
  const sequence = Number(text);
  if (!/^[0-9]{1,10}$/.test(text) || sequence > LAST) {
    view.heading("No such ledger");
    view.add(make("p", "", "The number of a ledger is a whole number of at most 4,294,967,295."));
    return;
  }
  view.heading(`Ledger ${sequence}`, neighbours(sequence));
  view.part("Header", (body) => load(view, sequence, body));
}
