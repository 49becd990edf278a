// The page of a contract: what it runs, its events, what it holds, who calls it, and what is made of its events.

import { ask, mayRead, pause, session } from "../api.js";
import { link, pathOf } from "../address.js";
import { callers } from "../callers.js";
import { copyable } from "../copy.js";
import { exporter } from "../csv.js";
import { tables, watchCommand, webhooks } from "../derived.js";
import { having, make, note, put } from "../dom.js";
import { listing } from "../event.js";
import { conditions, declarations, filterForm } from "../filter.js";
import { words } from "../format.js";
import { interfaceOf, whatItRuns } from "../interface.js";
import { nameOf } from "../labels.js";
import { live } from "../live.js";
import { isRight } from "../strkey.js";
import { setTitle } from "../title.js";
import { needsToken } from "../token.js";

/**
 * How often the interface is asked for, in milliseconds, and how many times: until it is known, and once more, because
 * the indexes of accounts may be a ledger behind.
 */
const LOOK_EVERY = 4000;
const MOST_LOOKS = 30;
const LEAST_LOOKS = 2;
/** How long the first events wait for the interface, in milliseconds. */
const PATIENCE = 300;
/** The same of the tables, which are not divided into those of this contract and others without it. */
const PATIENT = 3000;

/** What the kinds of account are called. */
const KINDS = words({ smart_account: "a smart account", passkey_wallet: "a passkey wallet" });

/** Says whether the contract is a smart account or a passkey wallet; nothing if it is neither. */
const kindsOf = ({ account_kinds: kinds, contract_id: contract }) => kinds.length === 0 ? []
  : [`By its events, this is ${kinds.map((kind) => KINDS[kind] ?? kind).join(" and ")}: `,
    link(`account/${contract}`, "its rules and signers"), "."];

/** Says how tables are made, to who has no token. */
const withToken = (contract) => make("div", "",
  make("p", "", "With a token, a button here makes SQL tables of its events, as this does:"), watchCommand(contract));

/** Returns what a project with this contract may be called: the symbol of its token, or the beginning of its address. */
function nameFor(contract, info) {
  const symbol = info?.executable?.stellar_asset && info.token?.name === "native" ? "xlm" : info?.token?.symbol ?? "";
  const plain = symbol.toLowerCase().replace(/[^a-z0-9_]/g, "").slice(0, 20);
  return /^[a-z]/.test(plain) ? plain : `c_${contract.slice(1, 7).toLowerCase()}`;
}

/** The interface of the page's contract. It has an event `change` when another answer comes. */
class Interface extends EventTarget {
  /** The last answer; null before the first one. `first` ends with it, or when there is none. */
  info = null;
  looks = 0;

  constructor(contract) {
    super();
    this.contract = contract;
    this.first = new Promise((resolve) => { this.settle = resolve; });
  }

  /** Asks for the interface and shows it, unless it was asked for often enough. */
  async look(signal, body) {
    const isKnown = this.info !== null && this.info.interface_unknown_because === null;
    if (this.looks >= (isKnown ? LEAST_LOOKS : MOST_LOOKS)) return;
    try {
      const info = await ask(`rest/contracts/${this.contract}`, { signal });
      this.looks += 1;
      if (JSON.stringify(info) === JSON.stringify(this.info)) return;
      this.info = info;
      put(body, whatItRuns(info), interfaceOf(info));
      this.dispatchEvent(new Event("change"));
    } catch (error) {
      // What is shown stays.
      if (this.info === null) throw error;
    } finally {
      this.settle();
    }
  }
}

async function events(view, known, body, beside) {
  const { contract } = known;
  const filter = make("div");
  const place = make("div");
  const list = listing(view, place);
  const path = () => {
    const wanted = conditions(view.query, declarations(known.info));
    return `rest/events/by-contract/${contract}?${new URLSearchParams({ decoded: true, ...wanted })}`;
  };
  const save = exporter(`events-${contract}`, path, view.signal);
  let shown = "";
  const show = () => {
    shown = path();
    const { from, to, ...others } = conditions(view.query, declarations(known.info));
    const isLive = from === undefined && to === undefined;
    put(beside, isLive ? "" : "of these ledgers");
    const begun = (rows, signal) => isLive && live(rows, { contract_id: contract, ...others }, beside, signal);
    return list({
      label: "Events of this contract", path: shown, without: ["contract"],
      empty: "There are no such events. Those before the first stored ledger, and those that retention has removed, "
        + "are not listed.",
    }, begun);
  };
  const send = (values) => {
    view.setQuery(values);
    return show();
  };
  const refresh = () => {
    const options = { query: view.query, declared: declarations(known.info), show: send, beside: save };
    if (!filter.contains(document.activeElement)) put(filter, filterForm(options));
    return shown === path() ? undefined : show();
  };
  put(body, filter, place, note("Events of other contracts that name this one: ",
    link(`account/${contract}`, "its page as an account"), "."));
  await Promise.race([known.first, pause(PATIENCE)]);
  known.addEventListener("change", refresh);
  await refresh();
}

export function open(view) {
  const { contract } = view.params;
  const heading = view.heading("Contract",
    copyable(contract, "the address of the contract", make("span", "mono note", contract)));
  const title = `Contract ${contract.slice(0, 6)}…${contract.slice(-6)}`;
  setTitle(title);
  if (pathOf(contract) !== `contract/${contract}`) {
    return view.add(make("p", "problem",
      "This is not the address of a contract, which has 56 letters and digits and begins with C."));
  }
  if (!isRight(contract)) return view.add(make("p", "problem", "This address has a mistake: its checksum is wrong."));
  const kinds = make("p", "");
  view.add(kinds);
  if (!mayRead()) {
    const reason = "What this contract runs and holds, its events and who calls it need a token.";
    return view.add(make("section", "", needsToken(reason)),
      make("section", "", withToken(contract)));
  }
  // The heading begins with the name that all lists show beside the address.
  const name = nameOf(contract, (told) => setTitle(`${told} · ${title}`));
  put(heading, name, make("span", "", "Contract"));
  const known = new Interface(contract);
  known.addEventListener("change", () => put(kinds, ...kindsOf(known.info)));
  const beside = make("span", "note");
  const told = having(make("span", "note"), { role: "status" });
  const tell = (text) => { told.textContent = text; };
  const made = view.part("Tables of its events", async (body) => {
    if (session.token === "") return put(body, withToken(contract));
    await Promise.race([known.first, pause(PATIENT)]);
    const proposed = () => nameFor(contract, known.info);
    return tables(view, contract, { info: () => known.info, name: proposed, reload: () => made.reload(), tell }, body);
  }, { beside: [told] });
  view.part("What it runs", (body) => known.look(view.signal, body), { every: LOOK_EVERY });
  view.part("Events", (body) => events(view, known, body, beside), { beside: [beside] });
  view.part("Storage", async (body) => {
    const { storage } = await import("../storage.js");
    await storage(view, contract, body);
  });
  view.part("Who calls it", (body) => callers(view, contract, body));
  // These are of owners. Who reads without a token is not asked for one here.
  if (session.token === "") return undefined;
  view.part("Webhooks of it", (body) => webhooks(view, contract, body));
  return undefined;
}
