// The search: looks where a text is found that does not tell by its form what it names.

import { NoToken, Stale, ask } from "../api.js";
import { encoded, link, transactionLink } from "../address.js";
import { make } from "../dom.js";
import { count } from "../format.js";
import { sentence } from "../problem.js";
import { go } from "../router.js";
import { credentialOf, hashOf, searchFor } from "../search.js";
import { ORIGIN, accountsWith } from "../signers.js";
import { tableOf } from "../sql_names.js";
import { tokenForm } from "../token.js";

/** Finds of one kind that are listed. */
const MOST = 50;

/** Returns the places where to look for a text: what each is called, and `look`, which returns what it found. */
function places(text, signal) {
  const found = [];
  const hash = hashOf(text);
  const credential = credentialOf(text);
  if (hash !== null) found.push({ name: "the stored transactions", look: () => transactions(hash, signal) });
  if (credential !== null) {
    found.push({ name: "the credentials of smart accounts", look: () => accounts("smart", credential, signal) });
    found.push({ name: "the credentials of passkey wallets", look: () => accounts("passkey", credential, signal) });
  }
  if (text.length <= 200) found.push({ name: "the tables and projects that you may read", look: () => tables(text, signal) });
  return found;
}

async function transactions(hash, signal) {
  const answer = await ask(`rest/txs/by-hash/${hash}`, { signal });
  return answer.map(({ tx }) => ({ path: `tx/${tx}`, shown: ["Transaction ", transactionLink(tx, 16)] }));
}

async function accounts(index, credential, signal) {
  const rows = await accountsWith(index, credential, signal);
  const kind = index === "smart" ? "Smart account " : "Passkey wallet ";
  return rows.items.map(({ contract_id: contract }) => {
    const path = `account/${contract}`;
    return { path, shown: [kind, link(path, make("span", "mono", contract))], isAccount: true };
  });
}

/** Finds tables by `project.table`, `project_table`, the name of a table or project, or a part of these. */
async function tables(text, signal) {
  const wanted = text.toLowerCase();
  const entries = (await ask("rest/retroshade/tables", { signal })).map((entry) => {
    const project = entry.project_name_plain;
    const table = tableOf(entry.table_name, project);
    const whole = [`${project}.${table.target}`, `${project}_${table.target}`, entry.table_name].map((name) => name.toLowerCase());
    const names = [table.target, project].map((name) => name.toLowerCase());
    const rank = whole.includes(wanted) ? 0 : names.includes(wanted) ? 1 : whole.some((name) => name.includes(wanted)) ? 2 : 3;
    return { ...table, rank, own: entry.own };
  }).filter(({ rank }) => rank < 3).sort((one, other) => one.rank - other.rank);
  // A name that fits as a whole is meant, even if it is a part of others.
  const best = entries.filter(({ rank }) => rank === 0);
  return (best.length > 0 ? best : entries).map(({ shown, query, own }) => {
    const path = `sql?q=${encoded(query())}`;
    return { path, shown: ["Table ", link(path, make("span", "mono", shown)), own === false ? " (subscribed)" : ""] };
  });
}

async function lookIn(place) {
  try {
    return { ...place, finds: await place.look() };
  } catch (error) {
    if (error instanceof Stale) throw error;
    return { ...place, finds: [], error };
  }
}

const listed = (names) => names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;

function show(view, text, results) {
  const finds = results.flatMap((it) => it.finds);
  const locked = results.filter(({ error }) => error instanceof NoToken);
  const failed = results.filter(({ error }) => error !== undefined && !(error instanceof NoToken));
  const looked = results.filter(({ error }) => error === undefined).map(({ name }) => name);
  if (finds.length > 0) {
    view.add(make("section", "", make("p", "", count(finds.length, "find"), ":"),
      make("ul", "", finds.slice(0, MOST).map(({ shown }) => make("li", "", ...shown))),
      finds.some(({ isAccount }) => isAccount) ? make("p", "note", ORIGIN) : null,
      finds.length > MOST ? make("p", "note", `The first ${MOST} are shown; more of the name, or all of it, finds fewer.`) : null));
  } else if (looked.length > 0) {
    const name = make("b", "mono", text.slice(0, 200));
    view.add(make("p", "", "Nothing that is stored here is called ", name, `: it was looked for in ${listed(looked)}. `,
      "What was before the first stored ledger, or has been removed by retention, is not found. "
      + "Addresses (56 letters and digits) and hashes (64 hexadecimal digits) have to be whole."));
  }
  if (results.length === 0) {
    view.add(make("p", "", "Nothing that is stored here can be called so: "
      + "this is neither a hash nor a credential, and too long for the name of a table."));
  }
  for (const { name, error } of failed) view.add(make("p", "problem", `It could not be looked for in ${name}. ${sentence(error)}`));
  if (locked.length > 0) {
    view.add(make("section", "", make("p", "", `Looking in ${listed(locked.map(({ name }) => name))} needs a token.`), tokenForm()));
  }
}

export async function open(view) {
  const text = (view.query.get("q") ?? "").trim();
  const path = searchFor(text);
  if (path !== null && !path.startsWith("search?")) return go(path, { isReplaced: true });
  view.heading("Search", make("span", "note mono", text.slice(0, 100)));
  if (path === null) {
    return view.add(make("p", "", "The field above finds ledgers by their number, transactions by their hash, "
      + "contracts and accounts by their address, smart accounts and passkey wallets by a credential, and tables by their name."));
  }
  const results = await Promise.all(places(text, view.signal).map(lookIn));
  if (view.signal.aborted) return undefined;
  const finds = results.flatMap((it) => it.finds);
  if (finds.length === 1 && results.every(({ error }) => error === undefined)) return go(finds[0].path, { isReplaced: true });
  return show(view, text, results);
}
