// The page of a contract: what it runs, its events, who calls it, and what is made of its events.

import { ask, askOn, session, pause } from "../api.js";
import { link } from "../address.js";
import { callers } from "../callers.js";
import { copyable } from "../copy.js";
import { MOST, exported } from "../csv.js";
import { tables, webhooks } from "../derived.js";
import { button, having, make, put } from "../dom.js";
import { eventRows } from "../event.js";
import { conditions, declarations, filterForm } from "../filter.js";
import { number, words } from "../format.js";
import { interfaceOf, unknownInterface, whatItRuns } from "../interface.js";
import { problem } from "../problem.js";
import { follow } from "../stream.js";
import { isRight } from "../strkey.js";
import { setTitle } from "../title.js";
import { needsToken } from "../token.js";

/** How often an interface that is not known is asked for, in milliseconds, and how many times. */
const LOOK_EVERY = 4000;
const LOOKS = 30;
/** How long the first events wait for the interface, in milliseconds. */
const PATIENCE = 300;
/** How long the first transactions wait for the events. */
const PATIENT = 1500;

/** The interface of the page's contract, and who wants to know when it changes. */
class Known {
  constructor() {
    this.info = null;
    this.listeners = new Set();
    this.first = new Promise((resolve) => { this.settle = resolve; });
  }

  set(info) {
    this.info = info;
    this.settle();
    for (const listener of this.listeners) listener();
  }
}

async function showInterface(view, contract, known, body) {
  let looks = 0;
  const look = async () => {
    const info = await ask(`rest/contracts/${contract}`, { signal: view.signal });
    const reason = info.interface_unknown_because;
    looks += 1;
    put(body, whatItRuns(info), reason === null ? interfaceOf(info) : unknownInterface(reason, looks < LOOKS),
      info.truncated ? make("p", "note", "It is longer than what is shown here.") : "");
    known.set(info);
    if (reason !== null && looks < LOOKS) again();
  };
  const again = async () => {
    await pause(LOOK_EVERY);
    if (view.signal.aborted) return;
    if (document.hidden) again();
    else await look().catch(() => again());
  };
  try {
    await look();
  } finally {
    known.settle();
  }
}

/** Returns the token of a contract as the unit of its amounts. The native asset, whose symbol is `native`, is called XLM. */
function unit(info) {
  const token = info?.token ?? null;
  return info?.executable?.stellar_asset && token?.symbol === "native" ? { ...token, symbol: "XLM" } : token;
}

/** Creates the button that saves what the filter selects, and what it says. */
function exporter(view, contract, pathOf) {
  const said = having(make("span", "note"), { role: "status" });
  let reading = null;
  const cancel = button("Cancel", "quiet", () => reading?.abort());
  cancel.hidden = true;
  const save = async () => {
    reading = new AbortController();
    const signal = AbortSignal.any([view.signal, reading.signal]);
    cancel.hidden = false;
    put(said, "Reading …");
    try {
      const { file, rows, hasMore } = await exported(pathOf(), { signal, read: (count) => put(said, `${number(count)} events read …`) });
      if (rows === 0) return put(said, "There are no such events.");
      const anchor = having(make("a"), { href: URL.createObjectURL(file), download: `events-${contract}.csv` });
      anchor.click();
      setTimeout(() => URL.revokeObjectURL(anchor.href), 60000);
      return put(said, `${number(rows)} events are saved. `, ...(hasMore
        ? [`There are more than ${number(MOST)}: `, make("code", "", "orrery export"), " writes all, as Parquet files."] : []));
    } catch (error) {
      return put(said, reading.signal.aborted ? "Cancelled; nothing is saved." : problem(error) ?? "");
    } finally {
      cancel.hidden = true;
    }
  };
  return make("span", "contract-export", button("Export as CSV", "quiet", save), cancel, said);
}

function events(view, contract, known, body, live) {
  let leaving = new AbortController();
  let shownFor = "";
  const declared = () => declarations(known.info);
  const token = () => unit(known.info);
  const wanted = () => conditions(view.query, declared());
  const path = () => {
    const query = new URLSearchParams(wanted()).toString();
    return `rest/events/by-contract/${contract}${query && `?${query}`}`;
  };
  const said = having(make("p", "note"), { role: "status" });
  const place = make("div");

  const list = async (signal) => {
    const asked = path();
    shownFor = JSON.stringify([asked, token()]);
    const searched = () => { said.textContent = "Searching: there is none among the newest ones …"; };
    const rows = eventRows({
      label: "Events of this contract", path: asked, without: ["contract"], token: token(), signal,
      ask: (address, options) => askOn(address, { ...options, searched }),
      empty: "There are no such events. Those before the first stored ledger, and those that retention has removed, are not listed.",
    });
    await rows.load();
    said.textContent = "";
    const { from, to, ...others } = wanted();
    const isLive = from === undefined && to === undefined;
    put(live, isLive ? "as they are stored" : "of these ledgers");
    let last = rows.items[0]?.id;
    if (isLive && last === undefined) {
      // An event that is stored in between is in the second answer, or after this id.
      last = (await ask("rest/events/by-ledger?limit=1", { signal }))[0]?.id ?? 0;
      rows.prepend(await rows.more(null));
      last = rows.items[0]?.id ?? last;
    }
    put(place, rows.element);
    rows.draw();
    if (!isLive) return;
    follow({ contract_id: contract, ...others }, { last, signal, take: (newest, left) => left > 0 ? rows.restart(newest) : rows.prepend(newest) })
      .catch((error) => { if (!signal.aborted) put(said, problem(error) ?? ""); });
  };
  const show = () => {
    leaving.abort();
    leaving = new AbortController();
    const signal = AbortSignal.any([view.signal, leaving.signal]);
    said.textContent = "Reading …";
    return list(signal).catch((error) => {
      if (signal.aborted) return;
      said.textContent = "";
      put(place, problem(error) ?? "");
    });
  };
  const filter = filterForm({
    query: view.query, declared: declared(), beside: [exporter(view, contract, path)],
    show: (values) => { view.setQuery(values); return show(); },
  });
  known.listeners.add(() => {
    filter.update(declared());
    if (shownFor !== "" && shownFor !== JSON.stringify([path(), token()])) show();
  });
  put(body, filter.element, said, place,
    make("p", "note", "Events of other contracts that name this one: ", link(`account/${contract}`, "its page as an account"), "."));
  return Promise.race([known.first, pause(PATIENCE)]).then(() => { if (shownFor === "") return show(); return undefined; });
}

/** What the kinds of account are called. */
const KINDS = words({ smart_account: "a smart account", passkey_wallet: "a passkey wallet" });

/** Tells whether the contract is a smart account or a passkey wallet; nothing if it is neither. */
function account({ account_kinds: kinds = [] }, contract, place) {
  if (kinds.length === 0) return;
  put(place, `By its events, this is ${kinds.map((kind) => KINDS[kind] ?? kind).join(" and ")}: `,
    link(`account/${contract}`, "its rules and signers"), ".");
}

export function open(view) {
  const { contract } = view.params;
  view.heading("Contract", copyable(contract, "the address of the contract", make("span", "mono note", contract)));
  setTitle(`Contract ${contract.slice(0, 6)}…${contract.slice(-6)}`);
  if (!/^C[A-Z2-7]{55}$/.test(contract)) {
    return view.add(make("p", "problem", "This is not the address of a contract, which has 56 letters and digits and begins with C."));
  }
  if (!isRight(contract)) return view.add(make("p", "problem", "This address has a mistake: its checksum is wrong."));
  const kind = make("p", "");
  view.add(kind);
  if (session.token === "") {
    return view.add(make("section", "", needsToken("What this contract runs, its events and who calls it need a token.")));
  }
  const known = new Known();
  known.listeners.add(() => account(known.info, contract, kind));
  const live = make("span", "note");
  view.part("What it runs", (body) => showInterface(view, contract, known, body));
  // Transactions are long. The events come first.
  let areShown = null;
  view.part("Events", (body) => (areShown = events(view, contract, known, body, live)), { beside: [live] });
  view.part("Who calls it", async (body) => {
    await Promise.race([Promise.all([areShown, known.first]), pause(PATIENT)]);
    await callers(view, contract, body, () => unit(known.info));
  });
  view.part("Tables of it", (body) => tables(view, contract, known, body));
  view.part("Webhooks of it", (body) => webhooks(view, contract, body));
  return undefined;
}
