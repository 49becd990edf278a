// One program or project of events: its state, runs, tables and contracts, and what its owner may do with it.

import { attempt, outcome } from "../actions.js";
import { NoToken, Refused, ask, session } from "../api.js";
import { addressLink, encoded, ledgerLink, ledgerRanges, link } from "../address.js";
import { button, field, form, input, make, put, renew, submit } from "../dom.js";
import { bytes, count, number } from "../format.js";
import { problem } from "../problem.js";
import { backfill } from "../program_backfill.js";
import { change, stateOf, titleOf } from "../program_parts.js";
import { runs } from "../program_runs.js";
import { stats } from "../program_stats.js";
import { contracts, tables } from "../program_tables.js";
import { go } from "../router.js";
import { facts } from "../table.js";
import { setTitle } from "../title.js";

/** How often the state is read again, in milliseconds. */
const EVERY = 3000;

/** Reads a program: its entry in the list, its status, and the program that is to replace it. */
async function read(id, signal) {
  const status = await ask(`rest/retroshade/${encoded(id)}/status`, { signal });
  const list = await ask("rest/retroshade/list", { signal });
  const own = list.find((program) => program.id === status.program_id);
  const successor = list.find(({ replaces }) => replaces !== undefined && replaces === status.project_name);
  return { ...own, ...status, id: status.program_id, contracts: own?.contracts ?? [], tables: own?.tables ?? [], successor, list };
}

const ledgerOr = (ledger, text) => ledger === null || ledger === undefined ? text : ledgerLink(ledger);
const warned = (value, text) => value > 0 ? make("span", "bad", text) : text;

function stateFacts(program) {
  const { kind, successor, replaces } = program;
  return facts([
    ["State", make("span", stateOf(program)[1], stateOf(program)[0])],
    ["Replaces", replaces ? nameLink(program, replaces) : null],
    ["Is being replaced by", successor ? link(`programs/${successor.id}`, titleOf(successor)) : null],
    ["Kind", kind === "events" ? "events: a project without code" : "program"],
    ["Its tables may be read by", program.public ? "every owner (public)" : "its owner"],
    ["Newest ledger that it has processed", ledgerOr(program.last_ledger, "none yet")],
    ["Behind", count(program.lag_ledgers ?? 0, "ledger")],
    ["Newest ledger with a successful run", ledgerOr(program.last_success_ledger, "none yet")],
    ["Newest ledger with a failed run", ledgerOr(program.last_error_ledger, "none")],
    ["Newest runs", `${number(program.total_executions)}; ${number(program.avg_execution_ms)} ms on average`],
    ["Errors of these", warned(program.total_errors, number(program.total_errors))],
    ["Size of its rows", bytes(program.row_bytes ?? 0)],
    ["Rows in SQL", program.rows_in_tables === false ? "not yet all that are stored" : "all that are stored"],
    ["Events", program.events === undefined ? null : `${number(program.events)}; ${number(program.rows)} in tables of their own, ${number(program.undeclared)} in the table undeclared`],
    ["Runs that wait for older ledgers", warned(program.runs_waiting, number(program.runs_waiting ?? 0))],
    ["Runs given up, which a backfill repeats", program.runs_given_up > 0 ? warned(1, number(program.runs_given_up)) : null],
    ["Missing ledgers", program.missing_ledgers?.length > 0 ? ledgerRanges(program.missing_ledgers) : "none"],
  ]);
}

function nameLink({ list }, name) {
  const found = list.find((program) => program.project_name === name);
  return found ? link(`programs/${found.id}`, name) : name;
}

/** Sentences on what is wrong with a program, and the mend. */
function troubles(program) {
  const { stopped_because: stopped, replacement_failed: failed, last_error_message: last, missing_ledgers: missing = [], without_interface: without = [] } = program;
  return [
    stopped ? make("p", "problem", `The service stopped it: ${stopped}`) : null,
    failed ? make("p", "problem", `The last program that was to replace it did not: ${failed}`) : null,
    last && last !== stopped ? make("p", "problem", last) : null,
    missing.length > 0 ? make("p", "warning", "It did not process the missing ledgers, or not in full: retention removed them before, or they were stored while the settings left out one of its contracts. A backfill fills in those that are stored in full again.") : null,
    program.runs_waiting > 0 ? make("p", "note", "Waiting runs failed because the store does not determine an entry; they are repeated when older ledgers are stored.") : null,
    program.events === 0 ? make("p", "warning", "No stored event is of these contracts yet: are they contracts of the network that the service follows?") : null,
    ...without.length > 0 ? [
      make("p", "warning", `Events of ${count(without.length, "contract")} have no declared names; their tables follow from the values. A new version with an interface supplies names.`),
      make("ul", "programs-contracts", without.map(({ contract, reason }) => make("li", "", addressLink(contract, 8), `: ${reason}`))),
    ] : [],
  ].filter(Boolean);
}

/** Pausing and resuming, and replacing. Returns the element, and what shows it for a program. */
function controls(id, reload) {
  const said = outcome();
  const acting = (word, doing, done) => button(word, "quiet", () => attempt(said, doing, async () => {
    await change(`${id}/${word.toLowerCase()}`, {});
    await reload();
    return make("p", "good", done);
  }));
  const pause = acting("Pause", "Pausing …", "It is paused: new ledgers wait until it is resumed.");
  const resume = acting("Resume", "Resuming …", "It goes on where it stopped.");
  const replace = make("span", "programs-next");
  const element = make("div", "", make("div", "row", pause, resume, replace), said);
  const show = (program) => {
    pause.hidden = !program.running;
    resume.hidden = program.running;
    const isPossible = program.project_name !== "" && program.successor === undefined;
    renew(replace, isPossible ? link(`programs?kind=${program.kind ?? "program"}&replace=${encoded(program.project_name)}`, "Replace it by a new version") : "");
  };
  return { element, show };
}

/** Adds the part that deletes a program. Its name has to be typed; a new version gets its name when it takes it over. */
function deletion(view, program, listeners) {
  const said = outcome();
  const typed = input({});
  const [text, label] = [make("p", ""), field("", typed, "grow")];
  let name = "";
  const show = ({ id, project_name: project, replaces }) => {
    name = project || String(id);
    label.firstChild.textContent = `Type ${name}`;
    text.textContent = replaces ? `This cancels the replacement of ${replaces}, which stays as it is.`
      : "This deletes it with its tables, rows and records of runs, for good. A program that is to replace it goes, too, and others no longer read its tables.";
  };
  const remove = async () => {
    if (typed.value.trim() !== name) return put(said, make("p", "problem", `Nothing was deleted: the text is not ${name}.`));
    const isDone = await attempt(said, "Deleting …", async () => {
      await change(String(program.id), undefined, "DELETE");
      return "";
    });
    return isDone ? go("programs") : undefined;
  };
  show(program);
  listeners.push(show);
  view.part("Delete", (body) => { put(body, text, form("row", remove, label, submit("Delete", "danger")), said); });
}

/** Says of a program that is gone what took its place. */
async function successorOf(known, error, signal) {
  if (known === null || !(error instanceof Refused) || error.status !== 404) return null;
  const list = await ask("rest/retroshade/list", { signal });
  const name = known.project_name || known.replaces;
  const found = list.find((program) => program.project_name === name);
  return found ? make("p", "", `${name} is now `, link(`programs/${found.id}`, `program ${found.id}`), ".") : null;
}

/** Opens the page of a project that the address names, as the command line does. */
async function byName(view, name) {
  view.heading(`Program ${name}`);
  const list = await ask("rest/retroshade/list", { signal: view.signal });
  const found = list.find((program) => program.project_name.toLowerCase() === name.toLowerCase());
  if (found) return go(`programs/${found.id}`, { isReplaced: true });
  return view.add(make("p", "problem", `You have no program ${name.slice(0, 64)}: its name may be another, or it was deleted, or it is another owner's. `, link("programs", "Your programs"), "."));
}

export function open(view) {
  const { id } = view.params;
  if (session.token !== "" && !/^\d+$/.test(id)) return byName(view, id);
  const heading = view.heading(`Program ${id}`);
  if (session.token === "") return view.add(problem(new NoToken()));
  let known = null;
  const told = make("div", "");
  const listeners = [];
  const control = controls(id, () => state.reload());
  const state = view.part("State", async (body) => {
    let program;
    try {
      program = await read(id, view.signal);
    } catch (error) {
      const next = await successorOf(known, error, view.signal);
      if (next === null) throw error;
      put(body, problem(error), next);
      return;
    }
    if (body.firstChild !== control.element) put(body, control.element, told);
    control.show(program);
    renew(told, ...troubles(program), stateFacts(program));
    const isFirst = known === null;
    known = program;
    if (heading.textContent !== titleOf(program)) renameTo(heading, titleOf(program));
    if (isFirst) rest(view, program, listeners, () => state.reload());
    for (const listener of listeners) listener(program);
  }, { every: EVERY });
  return undefined;
}

function renameTo(heading, title) {
  heading.textContent = title;
  setTitle(title);
}

/** Adds the other parts of the page. `listeners` are called with each newer state. */
function rest(view, program, listeners, reload) {
  runs(view, program);
  stats(view, program);
  tables(view, program, listeners);
  contracts(view, program, listeners, reload);
  backfill(view, program, listeners, reload);
  deletion(view, program, listeners);
}
