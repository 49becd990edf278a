// The contracts of a project: its view `members`.

import { addressLink, ledgerLink } from "../address.js";
import { ask } from "../api.js";
import { having, make, note, renew } from "../dom.js";
import { count, short } from "../format.js";
import { tableOf } from "../sql/names.js";
import { table } from "../table.js";
import { queryLink } from "./parts.js";

/** Rows that are shown: the newest. */
const MOST = 20;
/** How often they are read again, in milliseconds. */
const EVERY = 10000;

const HEADS = ["Contract", "Selected by", "Since ledger", "Until ledger", "Code"];

/** Whether the view has rows: all contracts, by the names of their events, are not in it. */
const hasMembers = ({ factories = [], created_by: creators = [], wasm = [] } = {}) =>
  factories.length + creators.length + wasm.length > 0;

/** Shortens addresses and hashes in the text of a selector. */
const selector = (text) => having(make("bdi", "mono", text.replace(/([A-Z2-7]{56}|[0-9a-f]{64})/g,
  (long) => `${long.slice(0, 4)}…${long.slice(-4)}`)), { title: text });

const row = (it) => [addressLink(it.contract_id, 6), [selector(it.selector), "wide"],
  it.since_ledger === null ? make("span", "null", "before the store") : ledgerLink(it.since_ledger),
  it.until_ledger === null ? "" : ledgerLink(it.until_ledger), it.wasm_hash === null ? "" : short(it.wasm_hash, 6)];

async function draw(body, project, signal) {
  const query = `select *, count(*) over () as rows from ${tableOf("members", project).shown}
    order by since_ledger desc nulls last, contract_id, selector limit ${MOST}`;
  const newest = await ask("rest/retroshade/query", { body: { query }, signal });
  if (newest.length === 0) return renew(body, note("Nothing that it selects is stored yet."));
  return renew(body, table(HEADS, newest.map(row), "Members"),
    note(`${count(newest[0].rows, "row")}, the newest first; for a code, one for each stay. In SQL: `,
      queryLink(project, "members"), ", ", queryLink(project, "member_changes"), "."));
}

/** Adds the part of the page, if the project has such a view. */
export function members(view, { selectors, project_name: project }) {
  if (!hasMembers(selectors) || project === "") return;
  view.part("Members", (body) => draw(body, project, view.signal), { every: EVERY });
}
