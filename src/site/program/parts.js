// What the pages of programs have in common: states, names, links to tables, files of modules, and changes.

import { mistake } from "../actions.js";
import { sqlLink } from "../address.js";
import { ask } from "../api.js";
import { make } from "../dom.js";
import { bytes } from "../format.js";
import { tableOf } from "../sql/names.js";

/** Returns the state of a program as a word and a class. */
export function stateOf({ running, replaces, stopped_because: because }) {
  if (because) return ["stopped", "bad"];
  if (replaces) return [running ? "replacing" : "replacing, paused", "note"];
  return running ? ["running", "good"] : ["paused", "note"];
}

/** Returns the name of a program: its project's, or that of the project that it is to replace. */
export const titleOf = ({ id, project_name: name, replaces }) =>
  name || (replaces ? `new version of ${replaces}` : `program ${id}`);

/** Returns elements with commas between them. */
export const listed = (elements) => elements.flatMap((element, index) => index === 0 ? [element] : [", ", element]);

/** Creates a link to the page for SQL with a query for the newest rows of a table. */
export function queryLink(project, table) {
  const { shown, query } = tableOf(table, project);
  return sqlLink(query(), make("span", "mono", shown));
}

/** Largest file that is read, in bytes. Of smaller ones that are too large, too, the service says so. */
const LARGEST_FILE = 6 << 20;

/** Reads a chosen file; null if none is chosen. A module begins with a zero byte. */
export async function fileOf({ files: [file] }) {
  if (!file) return null;
  if (file.size > LARGEST_FILE) throw mistake(`the file ${file.name} is too large (${bytes(file.size)})`);
  const address = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(mistake(`the file ${file.name} cannot be read: ${reader.error.message}`));
    reader.readAsDataURL(file);
  });
  const text = await file.text();
  return { name: file.name, base64: address.split(",")[1] ?? "", isModule: text.startsWith("\0"), text };
}

/** Sends a change. The address of the page does not matter: what was begun is not interrupted by leaving it. */
export const change = (path, body, method) => ask(`rest/retroshade/${path}`, { body, method });
