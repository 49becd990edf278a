// What the pages of programs have in common: states, names, links to tables, files of modules, and changes.

import { mistake } from "./actions.js";
import { addressLink, sqlLink } from "./address.js";
import { ask } from "./api.js";
import { make } from "./dom.js";
import { number } from "./format.js";
import { tableOf } from "./sql_names.js";

/** Returns the state of a program as a word and a class. */
export function stateOf({ running, replaces, stopped_because: because }) {
  if (because) return ["stopped", "bad"];
  if (replaces) return [running ? "replacing" : "replacing, paused", "note"];
  return running ? ["running", "good"] : ["paused", "note"];
}

/** Returns the name of a program: its project's, or that of the project that it is to replace. */
export const titleOf = ({ id, project_name: name, replaces }) => name || (replaces ? `new version of ${replaces}` : `program ${id}`);

/** Creates a link to the page for SQL with a query for the newest rows of a table. */
export function queryLink(project, table) {
  const { shown, query } = tableOf(table, project);
  return sqlLink(query(), make("span", "mono", shown));
}

/** Creates a list of links to contracts. */
export const contractList = (contracts) => make("ul", "programs-contracts", contracts.map((contract) => make("li", "", addressLink(contract, 8))));

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
