// The page of an account or a contract that signs: what it is by its events, what it is a signer of, and the events that
// name it.

import { Refused, ask, askOn, session } from "../api.js";
import { link } from "../address.js";
import { copyable } from "../copy.js";
import { button, field, form, having, input, make, put, submit } from "../dom.js";
import { eventRows } from "../event.js";
import { baseOf, isRight } from "../strkey.js";
import { ORIGIN, passkeyWallet, signerOf, smartAccount } from "../signers.js";
import { setTitle } from "../title.js";
import { needsToken } from "../token.js";

/**
 * Returns an account of one of the indexes; null if the index does not know it. `kinds` are the kinds of account that the
 * contract is, or null if that is not known.
 */
async function known(kinds, kind, path, signal) {
  if (kinds !== null && !kinds.includes(kind)) return null;
  try {
    return await ask(path, { signal });
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

async function contractParts(view, address, body) {
  const { signal } = view;
  // The indexes are public; what a contract is in general needs a token.
  const kinds = session.token === "" ? null : (await ask(`rest/contracts/${address}`, { signal })).account_kinds ?? null;
  const [account, wallet] = await Promise.all([
    known(kinds, "smart_account", `rest/smart-account-indexer/api/contract/${address}`, signal),
    known(kinds, "passkey_wallet", `rest/passkey-indexer/api/wallet/${address}`, signal),
  ]);
  if (account === null && wallet === null) {
    return put(body, make("p", "", "By its events, this contract is neither a smart account nor a passkey wallet. What it runs and emits: ",
      link(`contract/${address}`, "its page as a contract"), "."));
  }
  const parts = [];
  if (account !== null) parts.push(make("h3", "", "Smart account"), ...smartAccount(account));
  if (wallet !== null) parts.push(make("h3", "", "Passkey wallet"), ...passkeyWallet(wallet));
  return put(body, make("p", "note", ORIGIN), ...parts, make("p", "", link(`contract/${address}`, "Its page as a contract"), "."));
}

async function accountParts(view, address, body) {
  const lists = await Promise.all([signerOf("smart", address, view.signal), signerOf("passkey", address, view.signal)]);
  if (lists.every(({ items }) => items.length === 0)) {
    return put(body, make("p", "", "By the stored events, it is a signer of no smart account and of no passkey wallet."));
  }
  put(body, make("p", "note", ORIGIN), make("h3", "", "Smart accounts"), lists[0].element, make("h3", "", "Passkey wallets"), lists[1].element);
  for (const rows of lists) rows.draw();
  return undefined;
}

/** Creates the form for the events that name the address, and the list. */
function events(view, address, body) {
  const fields = {
    contracts: input({ placeholder: "C…, C…", value: view.query.get("contracts") ?? "" }),
    from: input({ inputmode: "numeric", pattern: "[0-9]*", title: "a number", size: 10, value: view.query.get("from") ?? "" }),
    to: input({ inputmode: "numeric", pattern: "[0-9]*", title: "a number", size: 10, value: view.query.get("to") ?? "" }),
  };
  const said = having(make("p", "note"), { role: "status" });
  const place = make("div");
  let leaving = new AbortController();
  const list = async (signal) => {
    const query = new URLSearchParams(Object.keys(fields).filter((name) => view.query.get(name)).map((name) => [name, view.query.get(name)]));
    const text = query.toString();
    const searched = () => { said.textContent = "Searching: there is none among the newest ones …"; };
    const rows = eventRows({
      label: "Events that name it", path: `rest/events/by-address/${address}${text && `?${text}`}`, signal,
      ask: (path, options) => askOn(path, { ...options, searched }),
      empty: "No stored event has it as a topic. Those before the first stored ledger, and those that retention has removed, are not listed.",
    });
    await rows.load();
    said.textContent = "";
    put(place, rows.element);
    rows.draw();
  };
  const show = () => {
    leaving.abort();
    leaving = new AbortController();
    said.textContent = "Reading …";
    return view.fill(place, () => list(AbortSignal.any([view.signal, leaving.signal]))).finally(() => {
      if (said.textContent === "Reading …") said.textContent = "";
    });
  };
  const send = () => {
    const listed = (text) => text.replace(/[\s,]+/g, ",").replace(/^,|,$/g, "");
    view.setQuery(Object.fromEntries(Object.entries(fields).map(([name, { value }]) => [name, listed(value)])));
    return show();
  };
  const clear = () => {
    for (const entry of Object.values(fields)) entry.value = "";
    return send();
  };
  put(body, form("row", send,
    field("Of these contracts", fields.contracts, "grow"), field("From ledger", fields.from), field("To ledger", fields.to),
    submit("Show"), button("Clear", "quiet", clear)), said, place);
  return show();
}

export function open(view) {
  const { address } = view.params;
  const isContract = /^C[A-Z2-7]{55}$/.test(address);
  const shown = copyable(address, "the address of the account", make("span", "mono note", address));
  view.heading(isContract ? "Account of a contract" : "Account", shown);
  setTitle(`Account ${address.slice(0, 6)}…${address.slice(-6)}`);
  if (!isContract && !/^(G[A-Z2-7]{55}|M[A-Z2-7]{68})$/.test(address)) {
    return view.add(make("p", "problem", "This is not the address of an account: "
      + "G and 55 letters and digits, M and 68 for a muxed one, C and 55 for a contract."));
  }
  if (!isRight(address)) return view.add(make("p", "problem", "This address has a mistake: its checksum is wrong."));
  if (address.startsWith("M")) {
    const { base, id } = baseOf(address);
    view.add(make("p", "", "A muxed account: the id ", make("b", "mono", id), " of ", link(`account/${base}`, make("span", "mono", base)),
      ". Events have that account as a topic, and the id among their parameters; so few name the muxed one."));
  }
  if (isContract) view.part("What it is", (body) => contractParts(view, address, body));
  else if (address.startsWith("G")) view.part("What it is a signer of", (body) => accountParts(view, address, body));
  if (session.token === "") return view.add(make("section", "", needsToken("The events that name it need a token.")));
  view.part("Events that name it", (body) => events(view, address, body));
  return undefined;
}
