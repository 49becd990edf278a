// The programs and projects of events of the token's owner, those of others that it reads, and making further ones.

import { attempt, outcome } from "../actions.js";
import { NoToken, Refused, ask, session } from "../api.js";
import { link } from "../address.js";
import { button, make, put, renew } from "../dom.js";
import { bytes, count, number } from "../format.js";
import { problem } from "../problem.js";
import { deployForm, subscribeForm, watchForm } from "../program_forms.js";
import { change, queryLink, stateOf, titleOf } from "../program_parts.js";
import { table } from "../table.js";

/** How often the list is read again, in milliseconds. */
const EVERY = 4000;
/** Largest number of programs whose states are read: each takes one request. */
const MOST = 40;

/** Reads the state of each program, one after the other. Null of one that has been deleted meanwhile. */
async function statesOf(list, signal) {
  const states = new Map();
  for (const { id } of list.slice(0, MOST)) {
    try {
      states.set(id, await ask(`rest/retroshade/${id}/status`, { signal }));
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404) throw error;
    }
  }
  return states;
}

const HEADS = ["Project", "Kind", "State", ["Contracts", "number"], ["Runs", "number"], ["Errors", "number"], ["Average run", "number"],
  ["Behind", "number"], ["Size of rows", "number"]];

function row(program, state) {
  const numbers = state === undefined ? ["–", "–", "–", "–", "–"] : [
    number(state.total_executions), number(state.total_errors), `${number(state.avg_execution_ms)} ms`,
    number(state.lag_ledgers ?? 0), bytes(state.row_bytes ?? 0),
  ];
  const cells = numbers.map((text, index) => [text, index === 1 && state?.total_errors > 0 ? "number bad" : "number"]);
  return [link(`programs/${program.id}`, titleOf(program)), `${program.kind}${program.public ? ", public" : ""}`, stateOf(program),
    [number(program.contracts.length), "number"], ...cells];
}

/** Returns what a person has to know of a program; null if there is nothing. */
function trouble(program, state) {
  const because = program.stopped_because ?? state?.replacement_failed ?? state?.last_error_message;
  return because ? make("p", "problem", link(`programs/${program.id}`, titleOf(program)), `: ${because}`) : null;
}

function drawList(body, list, states) {
  if (list.length === 0) {
    return put(body, make("p", "", "You have no programs yet. Below, a program is deployed, or contracts are watched."));
  }
  const left = list.length - MOST;
  return renew(body,
    table(HEADS, list.map((program) => row(program, states.get(program.id))), "Your programs"),
    ...list.map((program) => trouble(program, states.get(program.id))),
    make("p", "note", "Runs, errors and the average are those of each program's newest 500 runs; behind is in ledgers.",
      left > 0 ? ` The states of ${count(left, "further program")} are on their pages.` : ""));
}

async function programs(view, body) {
  const list = await ask("rest/retroshade/list", { signal: view.signal });
  if (!view.filled.has(body)) drawList(body, list, new Map());
  drawList(body, list, await statesOf(list, view.signal));
}

/** Tables of others, by the project that has them. */
function subscriptions(tables) {
  const projects = new Map();
  for (const entry of tables.filter(({ own }) => own === false)) {
    projects.set(entry.project_name_plain, [...projects.get(entry.project_name_plain) ?? [], entry]);
  }
  return projects;
}

function subscription(project, entries, said, reload) {
  const leave = button("Unsubscribe", "quiet", () => attempt(said, `Ending the subscription to ${project} …`, async () => {
    await change("unsubscribe", { project });
    await reload();
    return make("p", "good", `You no longer read the tables of ${project}.`);
  }));
  leave.setAttribute("aria-label", `Unsubscribe from ${project}`);
  const names = entries.flatMap(({ table_name: name }, index) => [index === 0 ? "" : ", ", queryLink(project, name)]);
  const problems = [...new Set(entries.map((entry) => entry.problem).filter(Boolean))];
  return [project, [make("span", "", ...names, ...problems.map((text) => make("span", "problem", ` ${text}`))), "wide"], [leave, "number"]];
}

function reading(view, said) {
  let shown = "";
  const part = view.part("Tables of others", async (body) => {
    const projects = subscriptions(await ask("rest/retroshade/tables", { signal: view.signal }));
    const told = JSON.stringify([...projects]);
    // The buttons stay the same while nothing has changed.
    if (told === shown && view.filled.has(body)) return;
    shown = told;
    const rows = [...projects].map(([project, entries]) => subscription(project, entries, said, () => part.reload()));
    put(body, rows.length === 0 ? make("p", "", "You read no tables of other owners. Below, you subscribe to a public project.")
      : table(["Project", "Tables", ["Subscription", "number"]], rows, "Projects of others whose tables you read"), said);
  }, { every: 3 * EVERY });
  return part;
}

export function open(view) {
  view.heading("Programs");
  if (session.token === "") return view.add(problem(new NoToken()));
  const own = view.part("Yours", (body) => programs(view, body), { every: EVERY });
  const others = reading(view, outcome());
  const replaced = view.query.get("replace") ?? "";
  const kind = replaced ? view.query.get("kind") ?? "program" : "";
  const box = (summary, isOpen, ...children) => {
    const made = make("details", "programs-form", make("summary", "", summary), ...children);
    made.open = isOpen;
    return made;
  };
  view.part("New", (body) => {
    put(body,
      box("Deploy a program", kind === "program", deployForm(kind === "program" ? replaced : "", () => own.reload())),
      box("Watch the events of contracts", kind === "events", watchForm(kind === "events" ? replaced : "", () => own.reload())),
      box("Subscribe to another owner's project", false, subscribeForm(() => others.reload())));
  });
  return undefined;
}
