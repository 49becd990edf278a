// What is made of a contract's events: programs and their tables, and webhooks.

import { link, sqlLink } from "./address.js";
import { ask } from "./api.js";
import { make, put } from "./dom.js";
import { declarations } from "./filter.js";
import { tableOf } from "./sql_names.js";
import { table } from "./table.js";
import { topicText } from "./topics.js";

/** Tables of a program that are shown at once. */
const MOST = 100;

/**
 * Returns the tables of a program: those that are named after events that the contract declares, and the others, which
 * may have rows of its other contracts only. If none is named so, all may be meant.
 */
function split(program, declared) {
  const tables = program.tables.map((name) => tableOf(name, program.project_name));
  const isOwn = ({ target }) => declared.some(({ name }) => target === name || target.startsWith(`${name}_v`));
  const own = program.kind === "events" ? tables.filter(isOwn) : [];
  return own.length === 0 ? [tables, []] : [own, tables.filter((it) => !own.includes(it))];
}

const links = (tables, contract) => tables.slice(0, MOST).flatMap((it, index) => [
  index === 0 ? "" : ", ", sqlLink(it.query(contract), make("span", "mono", it.shown)),
]);

function state({ running, stopped_because: reason }) {
  return running ? make("span", "good", "running") : make("span", "bad", reason === undefined ? "paused" : `stopped: ${reason}`);
}

function row(contract, declared, program) {
  const name = program.project_name || (program.replaces ? `the next ${program.replaces}` : `program ${program.id}`);
  const [own, others] = split(program, declared);
  const tables = make("span", "", own.length === 0 ? "none yet" : "", ...links(own, contract));
  if (own.length > MOST) tables.append(` and ${own.length - MOST} more`);
  const rest = make("summary", "", `${others.length} others of the project`);
  if (others.length > 0) tables.append(make("details", "", rest, ...links(others, contract)));
  const kind = program.kind === "events" ? "tables of events" : "program";
  return [link(`programs/${program.id}`, name), kind, state(program), [tables, "wide"]];
}

/** Fills the part of programs and tables. */
export async function tables(view, contract, known, body) {
  await known.first;
  const declared = declarations(known.info);
  const programs = (await ask("rest/retroshade/list", { signal: view.signal })).filter(({ contracts }) => contracts.includes(contract));
  if (programs.length === 0) {
    return put(body, make("p", "", "None of your programs has this contract. ", make("code", "", `orrery watch NAME --contract ${contract}`),
      " makes tables of its events; ", link("programs", "programs"), "."));
  }
  const rows = programs.map((it) => row(contract, declared, it));
  return put(body, table(["Program", "Kind", "State", ["Tables", "wide"]], rows, "Programs that have this contract"),
    make("p", "note", "A table is opened with a query for the rows of this contract."));
}

function filters({ topic1, topic2, topic3, topic4, address }) {
  const topics = [topic1, topic2, topic3, topic4].flatMap((topic, index) => topic === null ? [] : [`topic ${index + 1}: ${topicText(topic)}`]);
  return [...topics, ...(address === null ? [] : [`address: ${address}`])].join(", ") || "all events";
}

/** Fills the part of webhooks. */
export async function webhooks(view, contract, body) {
  const all = await ask("rest/webhooks/list", { signal: view.signal });
  const own = all.filter(({ contract_id: of }) => of === contract || of === "");
  if (own.length === 0) {
    return put(body, make("p", "", "None of your webhooks is sent its events; ", link("webhooks", "webhooks"), "."));
  }
  const shown = own.slice(0, MOST).map((it) => [
    link(`webhooks/${it.id}`, String(it.id)), [it.webhook_endpoint.slice(0, 200), "wide"],
    [make("span", "mono", filters(it).slice(0, 400)), "wide"],
    it.contract_id === "" ? "of all contracts" : "of this contract",
    it.enabled ? make("span", "good", "enabled") : make("span", "bad", `disabled: ${it.disabled_reason ?? "no reason is given"}`),
  ]);
  return put(body, table(["Webhook", ["Endpoint", "wide"], ["Events", "wide"], "Contracts", "State"], shown, "Webhooks that are sent its events"),
    own.length > MOST ? make("p", "note", `These are ${MOST} of ${own.length}; `, link("webhooks", "all webhooks"), ".") : "");
}
