// The search: looks where a text is found that does not tell by its form what it names.

import { NoToken, Stale, ask, askLeft, mayRead } from "../api.js";
import { encoded, link, pathOf, transactionLink } from "../address.js";
import { make, note } from "../dom.js";
import { count } from "../format.js";
import { sentence } from "../problem.js";
import { credentialOf, hashOf, searchFor } from "../search.js";
import { ORIGIN, accountsWith } from "../signers.js";
import { tableOf } from "../sql/names.js";
import { tokenForm } from "../token.js";

/** Finds that are listed. */
const MOST = 50;
/** Letters of a name that the service searches. */
const LONGEST_NAME = 80;

const sentenceOf = new Intl.ListFormat("en-GB");

/** Returns the places where to look for a text: what each is called, and `look`, which returns what it found. */
function places(text, signal) {
  const hash = hashOf(text);
  const credential = credentialOf(text);
  return [
    hash && { name: "the stored transactions", look: () => transactions(hash, signal) },
    credential && { name: "the credentials of smart accounts", look: () => accounts("smart", credential, signal) },
    credential && { name: "the credentials of passkey wallets", look: () => accounts("passkey", credential, signal) },
    text.length <= LONGEST_NAME && { name: "the names of contracts", look: () => labelled(text, signal) },
    text.length <= 200 && { name: "the projects and tables that you may read", look: () => names(text, signal) },
  ].filter(Boolean);
}

async function transactions(hash, signal) {
  const answer = await askLeft(`rest/txs/by-hash/${hash}`, { signal });
  return answer.map(({ tx }) => ({ path: `tx/${tx}`, shown: ["Transaction ", transactionLink(tx, 16)] }));
}

const found = (kind, path, name, ...more) => ({ path, shown: [kind, link(path, make("span", "mono", name)), ...more] });

async function accounts(index, credential, signal) {
  const kind = index === "smart" ? "Smart account " : "Passkey wallet ";
  const { items } = await accountsWith(index, credential, signal);
  return items.map(({ contract_id: contract }) =>
    ({ ...found(kind, `account/${contract}`, contract), isAccount: true }));
}

/** Who chose a name. */
const CHOSEN = { operator: "so called by the operator", asset: "the code of an asset", token: "the symbol of a token" };

/** Finds contracts and accounts by what they are called. */
async function labelled(text, signal) {
  const labels = await ask(`rest/contracts/named?name=${encoded(text)}`, { signal });
  return labels.filter(({ address }) => pathOf(address) !== null).map(({ address, name, kind }) => ({
    ...found(address.startsWith("C") ? "Contract " : "Account ", pathOf(address), address,
      ` ${name.slice(0, 40)}`, make("small", "note", ` ${CHOSEN[kind] ?? CHOSEN.token}`)),
    isOfStranger: kind !== "operator",
  }));
}

/** Finds programs and tables by the name of the project or table, by both, or by a part of these. */
async function names(text, signal) {
  const lists = ["list", "tables"].map((name) => ask(`rest/retroshade/${name}`, { signal }));
  const [programs, tables] = await Promise.all(lists);
  const all = [
    ...programs.map(({ id, project_name: project }) =>
      ({ ...found("Program ", `programs/${id}`, project), of: [project] })),
    ...tables.map(({ table_name: whole, project_name_plain: project, own }) => {
      const { target, shown, query } = tableOf(whole, project);
      const find = found("Table ", `sql?q=${encoded(query())}`, shown, own === false ? " (subscribed)" : "");
      return { ...find, of: [target, project, whole, `${project}.${target}`, `${project}_${target}`] };
    }),
  ];
  const wanted = text.toLowerCase();
  const fitting = all.filter((it) => it.of.some((name) => name.toLowerCase().includes(wanted)));
  // A name that fits as a whole is meant, even if it is a part of others.
  const exact = fitting.filter((it) => it.of.some((name) => name.toLowerCase() === wanted));
  return exact.length > 0 ? exact : fitting;
}

async function lookIn(place) {
  try {
    return { ...place, finds: await place.look() };
  } catch (error) {
    if (error instanceof Stale) throw error;
    return { ...place, finds: [], error };
  }
}

function list(finds) {
  return make("section", "", make("p", "", count(finds.length, "find"), ":"),
    make("ul", "", finds.slice(0, MOST).map(({ shown }) => make("li", "", shown))),
    finds.some(({ isAccount }) => isAccount) ? note(ORIGIN) : null,
    finds.length > MOST ? note(`The first ${MOST} are shown; more of the name finds fewer.`) : null);
}

/** Says that nothing was found in these places. */
function nothing(text, looked) {
  if (looked.length === 0) {
    return make("p", "", "Nothing that is stored here can be called so: "
      + "this is neither a hash nor a credential, and too long for the name of a table.");
  }
  return make("p", "", "Nothing that is stored here is called ", make("b", "mono", text.slice(0, 200)),
    `: it was looked for in ${sentenceOf.format(looked.map(({ name }) => name))}. `
    + "What was before the first stored ledger, or has been removed by retention, is not found. "
    + "Addresses (56 letters and digits) and hashes (64 hexadecimal digits) have to be whole.");
}

function show(view, text, results) {
  const finds = results.flatMap((it) => it.finds);
  const { looked = [], locked = [], failed = [] } = Object.groupBy(results, ({ error }) =>
    error === undefined ? "looked" : error instanceof NoToken ? "locked" : "failed");
  if (finds.length > 0) view.add(list(finds));
  else if (looked.length > 0 || results.length === 0) view.add(make("section", "", nothing(text, looked)));
  for (const { name, error } of failed) {
    view.add(make("p", "problem", `It could not be looked for in ${name}. ${sentence(error)}`));
  }
  if (finds.length === 0) {
    view.add(make("p", "", link(`docs?q=${encoded(text.slice(0, 200))}`, "Look for it in the documents"), "."));
  }
  if (locked.length === 0) return;
  const where = sentenceOf.format(locked.map(({ name }) => name));
  view.add(make("section", "", make("p", "", `Looking in ${where} needs a token.`), mayRead() ? "" : tokenForm()));
}

/** What secrets are called, and what to do where one was pasted. */
const SECRETS = {
  seed: "a secret seed (S…): with it, anybody can spend what its account has. Search for the account by its public key, "
    + "G…, instead",
  phrase: "the secret phrase of a wallet: with it, anybody can spend what the wallet's accounts have. Search for an "
    + "account by its address, G…, instead",
  token: "a token: with it, anybody can act here as its owner. Give it with the button Token above instead",
  webhook: "the secret of a webhook: with it, anybody can sign events as this service does",
};

function secret(view, kind) {
  view.heading("Search");
  return view.add(make("p", "warning", `What was searched for looks like ${SECRETS[kind]}.`),
    make("p", "", "It is neither shown nor in this address, and the field does not send it. If it was pasted elsewhere, "
      + "or a link to this page had it, replace it."));
}

export async function open(view) {
  const kind = view.query.get("secret");
  if (Object.hasOwn(SECRETS, kind ?? "")) return secret(view, kind);
  const path = searchFor(view.query.get("q") ?? "");
  if (path !== null && !path.startsWith("search?q=")) return view.go(path, { isReplaced: true });
  const text = path === null ? "" : new URLSearchParams(path.slice("search?".length)).get("q");
  view.heading("Search", make("span", "note mono", text.slice(0, 100)));
  if (path === null) {
    return view.add(make("p", "", "The field above finds ledgers by their number, transactions by their hash, "
      + "contracts and accounts by their address, an asset's code, a token's symbol or the operator's name for them, smart "
      + "accounts and passkey wallets by a credential, and programs and their tables by their name."));
  }
  const results = await Promise.all(places(text, view.signal).map(lookIn));
  const finds = results.flatMap((it) => it.finds);
  const isAll = results.every(({ error }) => error === undefined);
  // A name that anybody may choose leads nowhere by itself.
  if (finds.length === 1 && isAll && !finds[0].isOfStranger) return view.go(finds[0].path, { isReplaced: true });
  return show(view, text, results);
}
