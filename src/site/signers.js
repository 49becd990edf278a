// Smart accounts and passkey wallets: their rules and signers, and of which of them an address is a signer.

import { addressLink, ledgerLink, link } from "./address.js";
import { ask } from "./api.js";
import { joined, make } from "./dom.js";
import { number, short, time, words } from "./format.js";
import { Rows } from "./rows.js";
import { facts } from "./table.js";
import { typed } from "./value.js";

/** What every list of accounts says of where it comes from. */
export const ORIGIN = "This comes from events, and any contract may emit such events with anybody's credential: a "
  + "listed account proves nothing. Before connecting to it, check on the network that the contract is an account and "
  + "has the signer.";

/** Limits of a signer that are shown, and signers of a limit. */
const MOST = 8;

/** Creates a credential as a link to the search for its accounts. */
const credentialLink = (id) => link(`search?q=${id}`, short(id, 10));

/** Creates a list. `columns` are the head, the width, and what makes the cell; `more` reads a page. */
function list(label, columns, empty, more) {
  const row = (item) => columns.map(([, , cell]) => cell(item));
  const rows = new Rows({ label, kind: "signers", heads: columns.map(([head]) => head), row, more, empty });
  rows.element.style.setProperty("--columns", columns.map(([, width]) => width).join(" "));
  return rows;
}

/** Creates the element of a list of items that are all known. */
function whole(label, columns, empty, items) {
  const rows = Object.assign(list(label, columns, empty), { items, isEnd: true });
  rows.draw();
  return rows.element;
}

function entryStatus({ entry_status: status, entry_status_ledger: ledger }) {
  return status === undefined ? "" : make("span", "note", `${status} in ledger `, ledgerLink(ledger));
}

/** Creates the facts of an account, and a warning if they may not be whole. */
const described = (account, seen, pairs) => [
  facts([...pairs,
    ["First event in ledger", ledgerLink(seen.first_seen_ledger)],
    ["Newest event in ledger", ledgerLink(seen.last_seen_ledger)],
    ["Entry of the contract", entryStatus(account) || null],
    ["Complete up to ledger", account.as_of_ledger === null ? "none" : ledgerLink(account.as_of_ledger)]], "facts short"),
  account.complete ? "" : make("p", "warning",
    "Ledgers since its first event are missing, or it is longer than an answer: this may not be all."),
];

const rulesOf = ({ contextRules: rules }) => rules.flatMap(({ context_rule_id: rule, signers, policies }) => [
  ...signers.map(({ signer_type: type, signer_address: address, credential_id: credential }) =>
    ({ rule, kind: `${type.toLowerCase()} signer`, address, credential })),
  ...policies.map(({ policy_address: address, install_params: params }) => ({ rule, kind: "policy", address, params })),
  ...signers.length + policies.length === 0 ? [{ rule, kind: "no signers or policies" }] : [],
]);

const RULES = [
  ["Rule", "4rem", ({ rule }) => String(rule)],
  ["Kind", "9rem", ({ kind }) => kind],
  ["Address", "minmax(8rem, 12rem)", ({ address }) => address ? addressLink(address) : ""],
  ["Credential or parameters", "minmax(0, 1fr)",
    ({ credential, params }) => credential ? credentialLink(credential) : params ? typed(params) : ""],
];

/** Creates the description of a smart account: its rules, signers and policies. */
export function smartAccount(account) {
  const { summary } = account;
  return [
    ...described(account, summary, [
      ["Rules", number(summary.context_rule_count)],
      ["External signers", number(summary.external_signer_count)],
      ["Delegated signers", number(summary.delegated_signer_count)],
      ["Native signers", number(summary.native_signer_count)],
    ]),
    whole("Rules, signers and policies", RULES, "It has no rules.", rulesOf(account)),
  ];
}

const keyOf = ({ type, value }) => type === "secp256r1" ? credentialLink(value) : addressLink(value);

function limitsOf({ limits }) {
  if (limits === undefined) return "none";
  const pairs = Object.entries(limits);
  if (pairs.length === 0) return "may sign for nothing";
  const one = ([contract, keys]) => [addressLink(contract, 4),
    keys?.length > 0 ? " with " : "", ...joined((keys ?? []).slice(0, MOST).map(keyOf), " and ")];
  return make("span", "", "only ", joined(pairs.slice(0, MOST).map(one)),
    pairs.length > MOST ? ` and ${pairs.length - MOST} more` : "");
}

function expirationOf({ expiration, expiration_unit: unit }) {
  if (expiration === undefined) return "never";
  return unit === "ledger" ? make("span", "note", "ledger ", ledgerLink(expiration)) : time(expiration * 1000);
}

const WALLET = [
  ["Status", "5rem", ({ status }) => make("span", status === "live" ? "good" : "null", status)],
  ["Key", "6rem", ({ key }) => key.type],
  ["Credential or address", "minmax(8rem, 14rem)", ({ key }) => keyOf(key)],
  ["Limits", "minmax(6rem, 1fr)", limitsOf],
  ["Valid until", "14.5rem", expirationOf],
  ["Storage", "6rem", ({ storage }) => storage],
  ["Entry", "11.5rem", entryStatus],
];

const ORDER = words({ live: 0, expired: 1, removed: 2 });

/** Creates the description of a passkey wallet: its signers, those in use first. */
export function passkeyWallet(wallet) {
  const signers = wallet.signers.toSorted((one, other) => (ORDER[one.status] ?? 3) - (ORDER[other.status] ?? 3));
  const live = signers.filter(({ status }) => status === "live").length;
  return [
    ...described(wallet, wallet, [
      ["Generation", wallet.generation], ["Signers in use", `${number(live)} of ${number(signers.length)}`],
    ]),
    whole("Signers", WALLET, "It has no signers.", signers),
  ];
}

const accountLink = ({ contract_id: contract }) => link(`account/${contract}`, short(contract, 8));
const SEEN = [
  ["First event", "6rem", ({ first_seen_ledger: ledger }) => ledgerLink(ledger)],
  ["Newest event", "6rem", ({ last_seen_ledger: ledger }) => ledgerLink(ledger)],
];
const INDEXES = {
  smart: {
    route: "rest/smart-account-indexer/api/lookup/", member: "contracts", label: "Smart accounts",
    columns: [
      ["Account", "minmax(9rem, 1fr)", accountLink], ["Rules", "5rem", (it) => number(it.context_rule_count)],
      ["Signers", "5rem",
        (it) => number(it.external_signer_count + it.delegated_signer_count + it.native_signer_count)], ...SEEN,
    ],
  },
  passkey: {
    route: "rest/passkey-indexer/api/lookup/", member: "wallets", label: "Passkey wallets",
    columns: [
      ["Wallet", "minmax(9rem, 1fr)", accountLink], ["Generation", "6rem", (it) => it.generation],
      ["Signers", "5rem", (it) => number(it.signer_count)], ...SEEN,
    ],
  },
};

/**
 * Reads the accounts of an index (`smart` or `passkey`) that have this signer: `address/ADDRESS`, or a credential in
 * hexadecimal. Returns the list, whose first items are read.
 */
export async function accountsWith(index, signer, signal) {
  const { route, member, label, columns } = INDEXES[index];
  let cursor = "";
  const rows = list(label, columns, "None, by the stored events.", async () => {
    if (cursor === null) return [];
    const answer = await ask(`${route}${signer}${cursor && `?cursor=${cursor}`}`, { signal });
    cursor = answer.cursor ?? null;
    return answer[member];
  });
  await rows.load();
  if (cursor === null) rows.isEnd = true;
  return rows;
}
