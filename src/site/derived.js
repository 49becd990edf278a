// What is made of a contract's events: programs and their tables, and webhooks.

import { attempt, outcome } from "./actions.js";
import { link, sqlLink } from "./address.js";
import { ask, pause } from "./api.js";
import { command } from "./copy.js";
import { field, folded, form, input, joined, make, note, put, renew, submit } from "./dom.js";
import { declarations } from "./filter.js";
import { forgetProjects } from "./labels.js";
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
    : folded("", `${others.length === 1 ? "1 other" : `${others.length} others`} of the project`, () => links(others, contract)));
}

function state({ running, stopped_because: reason }) {
  if (running) return make("span", "good", "running");
  return make("span", "bad", reason === undefined ? "paused" : `stopped: ${reason}`);
}

/** How often it is looked what a new project has, in milliseconds, how often until it has tables, and until all rows. */
const LOOK_EVERY = 1000;
const MOST_LOOKS = 20;
const MOST_LOOKS_AT_ROWS = 600;

/** Returns the programs that have a contract. */
export const programsOf = async (contract, signal) =>
  (await ask("rest/retroshade/list", { signal })).filter(({ contracts }) => contracts.includes(contract));

/** The command that makes tables of a contract's events. */
export const watchCommand = (contract, name = "NAME") =>
  command(`orrery watch ${name} --contract ${contract}`, "the command that makes tables of its events");

/** Waits until `is` says so, so many times; returns whether it did. */
async function becomes(is, times, signal) {
  for (let look = 0; look < times && !signal.aborted; look += 1) {
    if (await is()) return true;
    await pause(LOOK_EVERY);
  }
  return false;
}

/** Whether a project has a table beside that of events without a name. */
async function hasTables(id, contract, signal) {
  const { tables: all = [], project_name: project } = (await programsOf(contract, signal)).find((it) => it.id === id) ?? {};
  return all.some((name) => tableOf(name, project).target !== "undeclared");
}

/** Whether the stored events are in the tables of a project. */
async function isFilled(id, signal) {
  const [backfill, status] = await Promise.all([
    // Without a stored ledger there is none.
    ask(`rest/retroshade/${id}/backfill`, { signal }).catch(() => null),
    ask(`rest/retroshade/${id}/status`, { signal }),
  ]);
  return backfill?.state !== "running" && status.rows_in_tables !== false;
}

/**
 * Creates the form that makes tables of a contract's events; `reload` shows them, and `tell` gets what was done. `name`
 * is proposed.
 */
function making(view, contract, name, { reload, tell }) {
  const { signal } = view;
  const told = outcome();
  const text = input({ required: "", maxlength: 200, value: name });
  const follow = async (id, project) => {
    if (!await becomes(() => isFilled(id, signal), MOST_LOOKS_AT_ROWS, signal)) return;
    await reload();
    tell(`${project} is made, and has the stored events.`);
  };
  const watch = () => attempt(told, "The project is made …", async () => {
    const body = { project_name: text.value.trim(), contracts: [contract], public: false };
    const { id, project_name: project } = await ask("rest/retroshade/watch", { body });
    forgetProjects();
    await becomes(() => hasTables(id, contract, signal), MOST_LOOKS, signal);
    await reload();
    tell(`${project} is made, and reads the stored events …`);
    // The page goes on meanwhile; what the project has is on its own page, too.
    follow(id, project).catch(() => {});
    return "";
  });
  return make("div", "",
    form("row", watch, field("Name of the project", text), submit("Make tables of its events")), told,
    note("Each event that it declares becomes a table for ", link("sql", "SQL"),
      ", from the first stored ledger on and as new ones come. On the command line:"),
    watchCommand(contract, name));
}

/**
 * Fills the part of programs and tables. `info()` is the contract's interface, `name()` what a project is called;
 * `reload` and `tell` are those of the form that makes one.
 */
export async function tables(view, contract, { info, name, ...shown }, body) {
  const programs = await programsOf(contract, view.signal);
  if (programs.length === 0) return put(body, making(view, contract, name(), shown));
  const declared = declarations(info());
  const rows = programs.map((it) => [
    link(`programs/${it.id}`, it.project_name || (it.replaces ? `the next ${it.replaces}` : `program ${it.id}`)),
    it.kind === "events" ? "tables of events" : "program", state(it), [tablesOf(it, contract, declared), "wide"],
  ]);
  const heads = ["Program", "Kind", "State", ["Tables", "wide"]];
  // The form goes as a whole; a link that has the focus keeps it.
  const draw = body.querySelector("table") ? renew : put;
  return draw(body, table(heads, rows, "Programs that have this contract"),
    note("A table is opened with a query for the rows of this contract."));
}

/** Fills the part of webhooks. */
export async function webhooks(view, contract, body) {
  const all = await ask("rest/webhooks/list", { signal: view.signal });
  const own = all.filter(({ contract_id: of, project }) => of === contract || of === "" && !project);
  if (own.length === 0) {
    return put(body, make("p", "", "None of your webhooks is sent its events; ",
      link(`webhooks?contract=${contract}`, "subscribe an endpoint to them"), "."));
  }
  const rows = own.slice(0, MOST).map((it) => [
    link(`webhooks/${it.id}`, String(it.id)), [it.webhook_endpoint.slice(0, 200), "wide"], [filtersOf(it), "wide"],
    it.contract_id === "" ? "of all contracts" : "of this contract",
    [make("div", "", tag(stateOf(it)), " ", whyOf(it)), "wide"],
  ]);
  const heads = ["Webhook", ["Endpoint", "wide"], ["Told of", "wide"], "Contracts", "State"];
  return put(body, table(heads, rows, "Webhooks that are sent its events"),
    own.length > MOST ? note(`These are ${MOST} of ${own.length}; `, link("webhooks", "all")) : null);
}
