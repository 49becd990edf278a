// What the pages of programs have in common: states, names in SQL, and actions with their outcome.

import { Refused, Stale, Unreachable, ask } from "./api.js";
import { addressLink, ledgerLink, link, sqlLink } from "./address.js";
import { having, make, put } from "./dom.js";
import { number } from "./format.js";
import { problem } from "./problem.js";

/** Returns the state of a program as a word and a class. */
export function stateOf({ running, replaces, stopped_because: because }) {
  if (because) return ["stopped", "bad"];
  if (replaces) return [running ? "replacing" : "replacing, paused", "note"];
  return running ? ["running", "good"] : ["paused", "note"];
}

/** Returns the name of a program: its project's, or that of the project that it is to replace. */
export const titleOf = ({ id, project_name: name, replaces }) => name || (replaces ? `new version of ${replaces}` : `program ${id}`);

/** Returns the part of a table's name that its program chose: `trade` of `program_1_trade`. */
export const targetOf = (table) => /^program_\d+_(.+)$/.exec(table)?.[1] ?? table;

/** Returns the name by which SQL knows a table of a project; of a program without a name, the table's own. */
export const nameInSql = (project, table) => project ? `${project}.${targetOf(table)}` : `retroshade.${table}`;

/** Creates a link to the page for SQL with a query for the newest rows of a table. */
export function queryLink(project, table) {
  const quoted = nameInSql(project, table).split(".").map((part) => `"${part}"`).join(".");
  const query = `select * from ${quoted} order by _ledger desc limit 100`;
  return sqlLink(query, make("span", "mono", nameInSql(project, table)));
}

/** Returns the words of a text that has commas, spaces or line ends between them. */
export const wordsOf = (text) => text.split(/[\s,;]+/).filter(Boolean);

/** Creates text with ranges of ledgers, the first ones of many. */
export function ranges(list, most = 12) {
  const one = ([first, last]) => first === last ? [ledgerLink(first)] : [ledgerLink(first), "–", ledgerLink(last)];
  const shown = list.slice(0, most).flatMap((range, index) => index === 0 ? one(range) : [", ", ...one(range)]);
  return make("span", "programs-ranges", ...shown, list.length > most ? ` and ${number(list.length - most)} more ranges` : "");
}

/** Creates a list of links to contracts. */
export const contractList = (contracts) => make("ul", "programs-contracts", contracts.map((contract) => make("li", "", addressLink(contract, 8))));

/** Creates the place in which the outcome of an action is told. */
export const outcome = () => having(make("div", "programs-outcome"), { role: "status" });

/**
 * Does something that changes the service, and tells the outcome in `place`: what `work` returns, or why it was refused.
 * Returns whether it was done.
 */
export async function attempt(place, doing, work) {
  put(place, make("p", "note", doing));
  try {
    put(place, ...[await work()].flat());
    return true;
  } catch (error) {
    if (error instanceof Stale) return false;
    put(place, error instanceof Unreachable
      ? make("p", "problem", "The service does not answer. Whether this was done is not known: see the state before you repeat it.")
      : problem(error));
    return false;
  }
}

/** Creates the error of a form that cannot be sent as it is. */
export const mistake = (text) => new Refused(0, text);

/** Largest file that is read, in bytes. The service takes modules of up to 2 MiB, and says so for larger ones. */
const LARGEST_FILE = 6 << 20;

/** Reads a chosen file; null if none is chosen. A module begins with a zero byte. */
export async function fileOf(chosen) {
  const [file] = chosen.files;
  if (!file) return null;
  if (file.size > LARGEST_FILE) throw mistake(`the file ${file.name} has ${number(file.size)} bytes; a module may have 2,097,152`);
  const isModule = new Uint8Array(await file.slice(0, 4).arrayBuffer())[0] === 0;
  const base64 = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(mistake(`the file ${file.name} cannot be read: ${reader.error.message}`));
    reader.readAsDataURL(file);
  });
  return { name: file.name, base64: file.size === 0 ? "" : base64, isModule, text: () => file.text() };
}

/** Sends a change. The address of the page does not matter: what was begun is not interrupted by leaving it. */
export const change = (path, body, method) => ask(`rest/retroshade/${path}`, { body, method });
