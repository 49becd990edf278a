// Smart accounts and passkey wallets: their rules and signers, and of which of them an address is a signer.

import { addressLink, ledgerLink, link } from "./address.js";
import { ask } from "./api.js";
import { make } from "./dom.js";
import { number, short, time, words } from "./format.js";
import { Rows } from "./rows.js";
import { facts } from "./table.js";
import { typed } from "./value.js";

/** What every list of accounts says of where it comes from. */
export const ORIGIN = "This comes from events, and any contract may emit such events with anybody's credential: a listed account proves nothing. "
  + "Before connecting to it, check on the network that the contract is an account and has the signer.";

/** Creates a credential as a link to the search for its accounts. */
const credential = (id) => link(`search?q=${id}`, short(id, 10));

/** Creates a windowed list of items that are all there. */
function list(label, columns, items, empty) {
  let isRead = false;
  const more = async () => {
    if (isRead) return [];
    isRead = true;
    return items;
  };
  return rowsOf(label, columns, more, empty);
}

function rowsOf(label, columns, more, empty) {
  // On narrow screens, where the heads have no place, each cell has its own.
  const row = (item) => columns.map(([head, , cell]) => {
    const content = cell(item);
    return content === "" ? "" : make("span", "", make("small", "signers-head", `${head.toLowerCase()} `), content);
  });
  const rows = new Rows({ label, kind: "signers", heads: columns.map(([head]) => head), row, more, empty });
  rows.element.style.setProperty("--columns", columns.map(([, width]) => width).join(" "));
  return rows;
}

/** Begins a list that is complete from the start, and returns its element. */
function begun(rows) {
  rows.load().then(() => rows.load());
  return rows.element;
}

const incomplete = ({ complete }) => complete ? null
  : make("p", "warning", "Ledgers since its first event are missing, or it is longer than an answer: this may not be all.");

function entryStatus({ entry_status: status, entry_status_ledger: ledger }) {
  if (status === undefined) return null;
  return make("span", "note", `${status} in ledger `, ledgerLink(ledger));
}

const asOf = (ledger) => ledger === null ? "none" : ledgerLink(ledger);

function rulesOf({ contextRules: rules }) {
  return rules.flatMap(({ context_rule_id: rule, signers, policies }) => [
    ...signers.map((it) => ({ rule, kind: `${it.signer_type.toLowerCase()} signer`, address: it.signer_address, credential: it.credential_id })),
    ...policies.map((it) => ({ rule, kind: "policy", address: it.policy_address, params: it.install_params })),
    ...(signers.length + policies.length === 0 ? [{ rule, kind: "no signers or policies" }] : []),
  ]);
}

/** Creates the description of a smart account: its rules, signers and policies. */
export function smartAccount(account) {
  const { summary } = account;
  const columns = [
    ["Rule", "4rem", ({ rule }) => String(rule)],
    ["Kind", "9rem", ({ kind }) => kind],
    ["Address", "minmax(8rem, 12rem)", ({ address }) => address ? addressLink(address) : ""],
    ["Credential or parameters", "minmax(0, 1fr)", ({ credential: id, params }) => id ? credential(id) : params ? typed(params) : ""],
  ];
  return [
    facts([
      ["Rules", number(summary.context_rule_count)],
      ["External signers", number(summary.external_signer_count)], ["Delegated signers", number(summary.delegated_signer_count)],
      ["Native signers", number(summary.native_signer_count)],
      ["First event in ledger", ledgerLink(summary.first_seen_ledger)], ["Newest event in ledger", ledgerLink(summary.last_seen_ledger)],
      ["Entry of the contract", entryStatus(account)], ["Complete up to ledger", asOf(account.as_of_ledger)],
    ]),
    incomplete(account),
    begun(list("Rules, signers and policies", columns, rulesOf(account), "It has no rules.")),
  ].filter(Boolean);
}

const keyOf = ({ type, value }) => type === "secp256r1" ? credential(value) : addressLink(value);

function limitsOf(limits) {
  if (limits === undefined) return "none";
  const pairs = Object.entries(limits);
  if (pairs.length === 0) return "may sign for nothing";
  return make("span", "", "only ", ...pairs.slice(0, 8).flatMap(([contract, keys], index) => [
    index === 0 ? "" : ", ", addressLink(contract, 4),
    ...(keys === null || keys.length === 0 ? [] : [" with ", ...keys.slice(0, 8).flatMap((key, at) => [at === 0 ? "" : " and ", keyOf(key)])]),
  ]), pairs.length > 8 ? ` and ${pairs.length - 8} more` : "");
}

function expirationOf({ expiration, expiration_unit: unit }) {
  if (expiration === undefined) return "never";
  if (unit === "ledger") return make("span", "note", "ledger ", ledgerLink(expiration));
  const made = time(expiration * 1000);
  if (!(made instanceof Node)) return made;
  made.title = made.textContent;
  made.querySelector("small")?.remove();
  return made;
}

const ORDER = words({ live: 0, expired: 1, removed: 2 });

/** Creates the description of a passkey wallet: its signers, those in use first. */
export function passkeyWallet(wallet) {
  const signers = [...wallet.signers].sort((one, other) => (ORDER[one.status] ?? 3) - (ORDER[other.status] ?? 3));
  const live = signers.filter(({ status }) => status === "live").length;
  const columns = [
    ["Status", "5rem", ({ status }) => make("span", status === "live" ? "good" : "null", status)],
    ["Key", "6rem", ({ key }) => key.type],
    ["Credential or address", "minmax(8rem, 14rem)", ({ key }) => keyOf(key)],
    ["Limits", "minmax(6rem, 1fr)", ({ limits }) => limitsOf(limits)],
    ["Valid until", "14.5rem", expirationOf],
    ["Storage", "6rem", ({ storage }) => storage],
    ["Entry", "11.5rem", (signer) => entryStatus(signer) ?? ""],
  ];
  return [
    facts([
      ["Generation", wallet.generation], ["Signers in use", `${number(live)} of ${number(signers.length)}`],
      ["First event in ledger", ledgerLink(wallet.first_seen_ledger)], ["Newest event in ledger", ledgerLink(wallet.last_seen_ledger)],
      ["Entry of the contract", entryStatus(wallet)], ["Complete up to ledger", asOf(wallet.as_of_ledger)],
    ]),
    incomplete(wallet),
    begun(list("Signers", columns, signers, "It has no signers.")),
  ].filter(Boolean);
}

const account = ({ contract_id: contract }) => link(`account/${contract}`, short(contract, 8));
const SEEN = [
  ["First event", "6rem", ({ first_seen_ledger: ledger }) => ledgerLink(ledger)],
  ["Newest event", "6rem", ({ last_seen_ledger: ledger }) => ledgerLink(ledger)],
];
const INDEXES = {
  smart: {
    path: "rest/smart-account-indexer/api/lookup/", member: "contracts", label: "Smart accounts",
    columns: [
      ["Account", "minmax(9rem, 1fr)", account], ["Rules", "5rem", (it) => number(it.context_rule_count)],
      ["Signers", "5rem", (it) => number(it.external_signer_count + it.delegated_signer_count + it.native_signer_count)], ...SEEN,
    ],
  },
  passkey: {
    path: "rest/passkey-indexer/api/lookup/", member: "wallets", label: "Passkey wallets",
    columns: [
      ["Wallet", "minmax(9rem, 1fr)", account], ["Generation", "6rem", (it) => it.generation],
      ["Signers", "5rem", (it) => number(it.signer_count)], ...SEEN,
    ],
  },
};

/**
 * Reads the accounts of an index (`smart` or `passkey`) that have this signer: `address/ADDRESS`, or a credential in
 * hexadecimal. Returns the list, whose first items are read.
 */
export async function accountsWith(index, signer, signal) {
  const { path, member, label, columns } = INDEXES[index];
  let cursor = "";
  const more = async () => {
    if (cursor === null) return [];
    const answer = await ask(`${path}${signer}${cursor && `?cursor=${cursor}`}`, { signal });
    cursor = answer.cursor ?? null;
    return answer[member];
  };
  const rows = rowsOf(label, columns, more, "None, by the stored events.");
  await rows.load();
  if (cursor === null) rows.isEnd = true;
  return rows;
}

/** Reads the accounts of an index of which an address is a signer. */
export const signerOf = (index, address, signal) => accountsWith(index, `address/${address}`, signal);
