// What is made of a contract's events: programs and their tables, and webhooks.

import { link, sqlLink } from "./address.js";
import { ask } from "./api.js";
import { folded, joined, make, put } from "./dom.js";
import { declarations } from "./filter.js";
import { tableOf } from "./sql/names.js";
import { table, tag } from "./table.js";
import { filtersOf, stateOf, whyOf } from "./webhook/parts.js";

/** Tables of a program, and webhooks, that are shown. */
const MOST = 100;

/** Creates the links to queries for the rows of this contract. */
const links = (tables, contract) => make("span", "",
  joined(tables.slice(0, MOST).map((it) => sqlLink(it.query(contract), make("span", "mono", it.shown)))),
  tables.length > MOST ? ` and ${tables.length - MOST} more` : "");

/**
 * Creates the cell of a program's tables. Those that are named after no event that the contract declares may have rows
 * of its other contracts only, and are folded, unless none is named so.
 */
function tablesOf({ tables, project_name: project, kind }, contract, declared) {
  const all = tables.map((name) => tableOf(name, project));
  const isOwn = ({ target }) => declared.some(({ name }) => target === name || target.startsWith(`${name}_v`));
  const own = kind === "events" ? all.filter(isOwn) : [];
  if (own.length === 0) return all.length === 0 ? "none yet" : links(all, contract);
  const others = all.filter((it) => !own.includes(it));
  return make("div", "", links(own, contract), others.length === 0 ? null
    : folded("", `${others.length} others of the project`, () => links(others, contract)));
}

function state({ running, stopped_because: reason }) {
  if (running) return make("span", "good", "running");
  return make("span", "bad", reason === undefined ? "paused" : `stopped: ${reason}`);
}

/** Fills the part of programs and tables. `info` is the contract's interface. */
export async function tables(view, contract, info, body) {
  const all = await ask("rest/retroshade/list", { signal: view.signal });
  const programs = all.filter(({ contracts }) => contracts.includes(contract));
  if (programs.length === 0) {
    return put(body, make("p", "", "None of your programs has this contract. ",
      make("code", "", `orrery watch NAME --contract ${contract}`),
      " makes tables of its events; ", link("programs", "programs"), "."));
  }
  const declared = declarations(info);
  const rows = programs.map((it) => [
    link(`programs/${it.id}`, it.project_name || (it.replaces ? `the next ${it.replaces}` : `program ${it.id}`)),
    it.kind === "events" ? "tables of events" : "program", state(it), [tablesOf(it, contract, declared), "wide"],
  ]);
  const heads = ["Program", "Kind", "State", ["Tables", "wide"]];
  return put(body, table(heads, rows, "Programs that have this contract"),
    make("p", "note", "A table is opened with a query for the rows of this contract."));
}

/** Fills the part of webhooks. */
export async function webhooks(view, contract, body) {
  const all = await ask("rest/webhooks/list", { signal: view.signal });
  const own = all.filter(({ contract_id: of }) => of === contract || of === "");
  if (own.length === 0) {
    return put(body, make("p", "", "None of your webhooks is sent its events; ", link("webhooks", "webhooks"), "."));
  }
  const rows = own.slice(0, MOST).map((it) => [
    link(`webhooks/${it.id}`, String(it.id)), [it.webhook_endpoint.slice(0, 200), "wide"], [filtersOf(it), "wide"],
    it.contract_id === "" ? "of all contracts" : "of this contract",
    [make("div", "", tag(stateOf(it)), " ", whyOf(it)), "wide"],
  ]);
  const heads = ["Webhook", ["Endpoint", "wide"], ["Events", "wide"], "Contracts", "State"];
  return put(body, table(heads, rows, "Webhooks that are sent its events"),
    own.length > MOST ? make("p", "note", `These are ${MOST} of ${own.length}; `, link("webhooks", "all")) : null);
}
