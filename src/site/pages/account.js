// The page of an account or a contract that signs: what it is by its events, what it is a signer of, and the events
// that name it.

import { Refused, ask, mayRead } from "../api.js";
import { link, pathOf } from "../address.js";
import { copyable } from "../copy.js";
import { button, form, make, note, put, submit } from "../dom.js";
import { listing } from "../event.js";
import { clear, ledgerField, textField, written } from "../filter.js";
import { nameOf } from "../labels.js";
import { baseOf, isRight } from "../strkey.js";
import { ORIGIN, accountsWith, passkeyWallet, smartAccount } from "../signers.js";
import { setTitle } from "../title.js";
import { needsToken } from "../token.js";

/** Kinds of account: as the service names them, the route of the index, the title, and what creates the description. */
const KINDS = [
  ["smart_account", "rest/smart-account-indexer/api/contract", "Smart account", smartAccount],
  ["passkey_wallet", "rest/passkey-indexer/api/wallet", "Passkey wallet", passkeyWallet],
];

/** Returns the description of a contract as an account of one kind; nothing if the index does not know it. */
async function described(address, [, route, title, create], signal) {
  try {
    return [make("h3", "", title), ...create(await ask(`${route}/${address}`, { signal }))];
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return [];
    throw error;
  }
}

async function contractParts({ signal }, address, body) {
  let kinds = KINDS;
  // The indexes are public; which of them have the contract may need a token.
  if (mayRead()) {
    const { account_kinds: own } = await ask(`rest/contracts/${address}`, { signal });
    kinds = KINDS.filter(([kind]) => own.includes(kind));
  }
  const parts = (await Promise.all(kinds.map((kind) => described(address, kind, signal)))).flat();
  const other = link(`contract/${address}`, "Its page as a contract");
  if (parts.length > 0) put(body, note(ORIGIN), parts, make("p", "", other, "."));
  else {
    put(body, make("p", "", "By its events, this contract is neither a smart account nor a passkey wallet. ",
      other, " has what it runs and emits."));
  }
}

async function accountParts({ signal }, address, body) {
  const [smart, passkey] = await Promise.all(
    ["smart", "passkey"].map((index) => accountsWith(index, `address/${address}`, signal)));
  if (smart.items.length + passkey.items.length === 0) {
    put(body, make("p", "", "By the stored events, it is a signer of no smart account and of no passkey wallet."));
  } else {
    put(body, note(ORIGIN), make("h3", "", "Smart accounts"), smart.element,
      make("h3", "", "Passkey wallets"), passkey.element);
  }
}

/** Creates the form for the events that name the address, and the list. */
function events(view, address, body) {
  const { query } = view;
  const place = make("div");
  const list = listing(view, place);
  const wanted = () => [...query].filter(([name]) => ["contracts", "from", "to"].includes(name));
  const show = () => list({
    label: "Events that name it",
    path: `rest/events/by-address/${address}?${new URLSearchParams([["decoded", "true"], ...wanted()])}`,
    empty: "No stored event has it as a topic. Those before the first stored ledger, and those that retention has "
      + "removed, are not listed.",
  });
  const send = () => {
    const { contracts, ...ledgers } = written(element);
    view.setQuery({ contracts: contracts.split(/[\s,]+/).filter(Boolean).join(","), ...ledgers });
    return show();
  };
  const empty = () => {
    clear(element);
    return send();
  };
  const element = form("contract-filter", send,
    make("div", "row", textField("Of these contracts", "contracts", "C…, C…", query.get("contracts"), "grow"),
      ledgerField("From ledger", "from", query), ledgerField("To ledger", "to", query)),
    make("div", "row", submit("Show"), button("Clear", "quiet", empty)));
  put(body, element, place);
  return show();
}

export function open(view) {
  const { address } = view.params;
  const isContract = pathOf(address)?.startsWith("contract/");
  const kind = isContract ? "Account of a contract" : "Account";
  const heading = view.heading(kind,
    copyable(address, "the address of the account", make("span", "mono note", address)));
  const title = `Account ${address.slice(0, 6)}…${address.slice(-6)}`;
  setTitle(title);
  if (pathOf(address) === null) {
    return view.add(make("p", "problem", "This is not the address of an account: "
      + "G and 55 letters and digits, M and 68 for a muxed one, C and 55 for a contract."));
  }
  if (!isRight(address)) return view.add(make("p", "problem", "This address has a mistake: its checksum is wrong."));
  // The heading begins with the name that all lists show beside the address.
  put(heading, nameOf(address, (told) => setTitle(`${told} · ${title}`)), make("span", "", kind));
  if (address.startsWith("M")) {
    const { base, id } = baseOf(address);
    view.add(make("p", "", "A muxed account: the id ", make("b", "mono", id), " of ",
      link(`account/${base}`, make("span", "mono", base)),
      ". Events have that account as a topic, and the id among their parameters; so few name the muxed one."));
  }
  if (isContract) view.part("What it is", (body) => contractParts(view, address, body));
  if (!mayRead()) view.add(make("section", "", needsToken("The events that name it need a token.")));
  else view.part("Events that name it", (body) => events(view, address, body));
  if (address.startsWith("G")) view.part("What it is a signer of", (body) => accountParts(view, address, body));
  return undefined;
}
