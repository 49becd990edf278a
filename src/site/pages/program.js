// One program or project of events: its tables, runs, state and contracts, and what its owner may do with it.

import { attempt, mistake, outcome } from "../actions.js";
import { NoToken, ask, session } from "../api.js";
import { addressLink, encoded, ledgerLink, ledgerRanges, link } from "../address.js";
import { button, field, form, input, make, put, renew, submit } from "../dom.js";
import { bytes, count, number } from "../format.js";
import { problem } from "../problem.js";
import { backfill } from "../program/backfill.js";
import { members } from "../program/members.js";
import { change, stateOf, titleOf } from "../program/parts.js";
import { runs } from "../program/runs.js";
import { memberFacts, memberTroubles } from "../program/selectors.js";
import { stats } from "../program/stats.js";
import { contracts, tables } from "../program/tables.js";
import { facts, tag } from "../table.js";
import { setTitle } from "../title.js";

/** How often the state is read again, in milliseconds. */
const EVERY = 3000;

/** Returns a program of the list with its status, and the programs that replace it or are replaced by it. */
function joined(own, status, list) {
  return {
    ...own, ...status,
    successor: list.find(({ replaces }) => replaces !== undefined && replaces === own.project_name),
    predecessor: list.find(({ project_name: name }) => name === own.replaces),
  };
}

const ledgerOr = (ledger, text) => ledger === null || ledger === undefined ? text : ledgerLink(ledger);
const warned = (value = 0) => make("span", value > 0 ? "bad" : "", number(value));
const titleLink = (program) => program && link(`programs/${program.id}`, titleOf(program));

const stateFacts = (program) => facts([
  ["Replaces", titleLink(program.predecessor)],
  ["Is being replaced by", titleLink(program.successor)],
  ["Kind", program.kind === "events" ? "events: a project without code" : "program"],
  ["Tables may be read by", program.public ? "every owner (public)" : "its owner"],
  ["Newest ledger that it has processed", ledgerOr(program.last_ledger, "none yet")],
  ["Behind", count(program.lag_ledgers ?? 0, "ledger")],
  ["Newest ledger with a failed run", ledgerOr(program.last_error_ledger, "none")],
  ["Newest runs", `${number(program.total_executions)}; ${number(program.avg_execution_ms)} ms on average`],
  ["Errors of these", warned(program.total_errors)],
  ["Size of its rows", bytes(program.row_bytes ?? 0)],
  ["Rows in SQL", program.rows_in_tables === false ? "not yet all that are stored" : "all that are stored"],
  ["Events", program.events === undefined ? null
    : `${number(program.events)}, of which ${number(program.undeclared)} are undeclared`],
  ...memberFacts(program),
  ["Runs that wait for older ledgers", warned(program.runs_waiting)],
  ["Runs given up, which a backfill repeats", program.runs_given_up > 0 ? warned(program.runs_given_up) : null],
  ["Missing ledgers", program.missing_ledgers?.length > 0 ? ledgerRanges(program.missing_ledgers) : "none"],
]);

/** Sentences on what is wrong with a program, and the mend. */
function troubles(program) {
  const { stopped_because: stopped, replacement_failed: failed, last_error_message: last } = program;
  const { without_interface: without = [], missing_ledgers: missing = [] } = program;
  const said = [
    stopped && ["problem", /^stopped /.test(stopped) ? `The service stopped it ${stopped.slice("stopped ".length)}`
      : `The service stopped it: ${stopped}`],
    failed && ["problem", `The last program that was to replace it did not: ${failed}`],
    last && last !== stopped && ["problem", last],
    missing.length > 0 && ["warning", "It did not process the missing ledgers, or not in full, because they were "
      + "removed or left out. A backfill fills in those that are stored again."],
    program.runs_waiting > 0 && ["note", "Waiting runs are repeated when older ledgers are stored."],
    program.events === 0 && (without.length === 0 ? ["note", "None of the stored events is of these contracts yet."]
      : ["warning", "No stored event is of these contracts yet: are they of this network?"]),
    without.length > 0 && ["warning", `Events of ${count(without.length, "contract")} have no declared names; their `
      + "tables follow from the values. A new version with an interface supplies names."],
    ...memberTroubles(program),
  ];
  return said.filter(Boolean).map(([kind, text]) => make("p", kind, text));
}

/** Lists the contracts whose events have no declared names, with the reason. */
const undeclared = (contracts = []) => make("ul", "programs-contracts",
  contracts.map(({ contract, reason }) => make("li", "", addressLink(contract, 8), `: ${reason}`)));

/** Pausing and resuming, and replacing. Returns the element, and what shows it for a program. */
function controls(id, reload) {
  const said = outcome();
  const acting = (word, doing, done) => button(word, "quiet", () => attempt(said, doing, async () => {
    await change(`${id}/${word.toLowerCase()}`, {});
    await reload();
    return done;
  }));
  const pause = acting("Pause", "Pausing …", "It is paused: new ledgers wait until it is resumed.");
  const resume = acting("Resume", "Resuming …", "It goes on where it stopped.");
  const replace = make("span", "programs-next");
  const show = ({ running, project_name: name, kind, successor }) => {
    const isFocused = [pause, resume].includes(document.activeElement);
    pause.hidden = !running;
    resume.hidden = running;
    if (isFocused) (running ? pause : resume).focus({ preventScroll: true });
    renew(replace, name === "" || successor ? ""
      : [link(`programs?kind=${kind}&replace=${encoded(name)}`, "Replace it by a new version"), " · ",
        link(`webhooks?project=${encoded(name)}`, "Subscribe an endpoint to its contracts")]);
  };
  return { element: make("div", "", make("div", "row", pause, resume, replace), said), show };
}

/** Adds the part that deletes a program, whose name has to be typed. */
function deletion(view, id) {
  const [said, text, typed] = [outcome(), make("p", ""), input({})];
  const label = field("", typed, "grow");
  let name = "";
  const remove = async () => {
    const isDone = await attempt(said, "Deleting …", async () => {
      if (typed.value.trim() !== name) throw mistake(`Nothing was deleted: the text is not ${name}`);
      await change(id, undefined, "DELETE");
      return "It is deleted.";
    });
    // Who has opened another page meanwhile stays there.
    return isDone && !view.signal.aborted && view.go("programs");
  };
  view.part("Delete", (body) => { put(body, text, form("row", remove, label, submit("Delete", "danger")), said); });
  return ({ project_name: project, replaces }) => {
    name = project || id;
    label.firstChild.textContent = `Type ${name}`;
    text.textContent = replaces ? `This cancels the replacement of ${replaces}, which stays as it is.`
      : "This deletes it with its tables, rows and records of runs, and a program that is to replace it, for good.";
  };
}

/** Says that there is no such program, and what took the place of one that was `seen`. */
function absence(id, list, seen) {
  const successor = seen && list.find(({ project_name: name }) => name === (seen.project_name || seen.replaces));
  return make("p", "problem", `There is no program ${id.slice(0, 64)} of yours: `,
    ...successor ? [successor.project_name, " is now ", link(`programs/${successor.id}`, `program ${successor.id}`)]
      : ["it was deleted, or has another name, or is another owner's. See ", link("programs", "your programs")], ".");
}

export function open(view) {
  const { params: { id }, signal } = view;
  const [badge, told] = [make("span", ""), make("div", "")];
  const heading = view.heading(`Program ${id}`, badge);
  if (session.token === "") return view.add(problem(new NoToken()));
  view.add(told);
  const control = controls(id, () => state.reload());
  let seen = null;
  let shows = [];
  const state = view.part("State", async (body) => {
    const list = await ask("rest/retroshade/list", { signal });
    const own = list.find((program) => program.id === Number(id));
    if (own === undefined) {
      for (const place of [badge, told]) put(place);
      return put(body, absence(id, list, seen));
    }
    const program = joined(own, await ask(`rest/retroshade/${id}/status`, { signal }), list);
    if (body.firstChild !== control.element) put(body, control.element, make("div", ""));
    renew(body.lastChild, stateFacts(program), undeclared(program.without_interface));
    renew(badge, tag(stateOf(program)));
    renew(told, ...troubles(program));
    heading.textContent = titleOf(program);
    setTitle(heading.textContent);
    if (seen === null) shows = [control.show, ...rest(view, program, state)];
    seen = program;
    for (const show of shows) show(program);
    return body;
  }, { every: EVERY });
  return undefined;
}

/** Adds the other parts of the page, those that are wanted most before the state. Returns what shows newer states. */
function rest(view, program, { section, reload }) {
  const shown = tables(view, program);
  members(view, program);
  runs(view, program);
  stats(view, program);
  view.add(section);
  const { id } = program;
  return [shown, contracts(view, program, reload), backfill(view, id, reload), deletion(view, String(id))];
}
