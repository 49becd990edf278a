// The programs and projects of events of the token's owner, those of others that it reads, and making further ones.

import { attempt, outcome } from "../actions.js";
import { NoToken, ask, session } from "../api.js";
import { link } from "../address.js";
import { button, having, make, note, put, renew } from "../dom.js";
import { bytes, number } from "../format.js";
import { InSight } from "../in_sight.js";
import { problem } from "../problem.js";
import { deployForm, subscribeForm, watchForm } from "../program/forms.js";
import { change, listed, queryLink, stateOf, titleOf } from "../program/parts.js";
import { CHAIN } from "../sql/names.js";
import { table, tag } from "../table.js";

/** How often the lists are read again, in milliseconds. */
const EVERY = 4000;
const OTHERS_EVERY = 12000;

const FIGURES = ["Contracts", "Runs", "Errors", "Average run", "Behind", "Size of rows"];
const HEADS = ["Project", "Kind", "State", ...FIGURES.map((name) => [name, "number"])];

function row(program, state) {
  const figures = state === undefined ? Array(5).fill("…") : [
    number(state.total_executions), number(state.total_errors), `${number(state.avg_execution_ms)} ms`,
    number(state.lag_ledgers ?? 0), bytes(state.row_bytes ?? 0),
  ];
  const cells = figures.map((text, index) => [text, index === 1 && state?.total_errors > 0 ? "number bad" : "number"]);
  return [link(`programs/${program.id}`, titleOf(program)), `${program.kind}${program.public ? ", public" : ""}`,
    tag(stateOf(program)), [number(state?.members ?? program.contracts.length), "number"], ...cells];
}

/** Returns what a person has to know of a program; null if there is nothing. */
function trouble(program, state) {
  const because = program.stopped_because ?? state?.replacement_failed ?? state?.last_error_message;
  return because ? make("p", "problem", link(`programs/${program.id}`, titleOf(program)), `: ${because}`) : null;
}

function own(view) {
  const states = new InSight((id) => ask(`rest/retroshade/${id}/status`, { signal: view.signal }));
  const draw = (body, list) => renew(body, ...list.length === 0
    ? [make("p", "", "You have no programs yet. Below, a program is deployed, or contracts are watched.")]
    : [table(HEADS, list.map((program) => row(program, states.of(program.id))), "Your programs"),
      ...list.map((program) => trouble(program, states.of(program.id))),
      note("Runs, errors and the average are those of the newest 500 runs; behind is in ledgers.")]);
  return view.part("Yours", async (body) => {
    const list = await ask("rest/retroshade/list", { signal: view.signal });
    draw(body, list);
    await states.refresh(body, list.map(({ id }) => id));
    draw(body, list);
  }, { every: EVERY });
}

function subscription(project, entries, said, reload) {
  const leave = button("Unsubscribe", "quiet", () => attempt(said, "Ending the subscription …", async () => {
    await change("unsubscribe", { project });
    await reload();
    return `You no longer read the tables of ${project}.`;
  }));
  const names = listed(entries.map(({ table_name: name }) => queryLink(project, name)));
  const problems = [...new Set(entries.map((entry) => entry.problem).filter(Boolean))];
  return [project, [make("span", "", names, problems.map((text) => make("span", "problem", ` ${text}`))), "wide"],
    [having(leave, { "aria-label": `Unsubscribe from ${project}` }), "number"]];
}

function others(view) {
  const [list, said] = [make("div"), outcome()];
  const part = view.part("Tables of others", async (body) => {
    const tables = await ask("rest/retroshade/tables", { signal: view.signal });
    const projects = [...Map.groupBy(tables.filter(({ own, project_name_plain: project }) => !own && project !== CHAIN),
      (entry) => entry.project_name_plain)];
    const rows = () => projects.map(([project, entries]) => subscription(project, entries, said, part.reload));
    renew(list, projects.length === 0
      ? make("p", "", "You read no tables of other owners. Below, you subscribe to a public project.")
      : table(["Project", "Tables", ["Subscription", "number"]], rows(), "Projects of others whose tables you read"));
    if (!body.contains(list)) put(body, list, said);
  }, { every: OTHERS_EVERY });
  return part;
}

export function open(view) {
  view.heading("Programs");
  if (session.token === "") return view.add(make("section", "", problem(new NoToken())));
  const [{ reload }, subscriptions] = [own(view), others(view)];
  // A link of a program's page asks for a new version of it.
  const replaced = view.query.get("replace") ?? "";
  const kind = replaced && (view.query.get("kind") ?? "program");
  const box = (summary, isOpen, form) =>
    having(make("details", "programs-form", make("summary", "", summary), form), { open: isOpen ? "" : null });
  return view.part("New", (body) => {
    put(body,
      box("Deploy a program", kind === "program", deployForm(kind === "program" ? replaced : "", reload)),
      box("Watch the events of contracts", kind === "events", watchForm(kind === "events" ? replaced : "", reload)),
      box("Subscribe to another owner's project", false, subscribeForm(subscriptions.reload)));
  });
}
