// Forms that make programs and projects of events, and that subscribe to those of others.

import { attempt, mistake, outcome, wordsOf } from "./actions.js";
import { link } from "./address.js";
import { button, field, form, having, input, make, paragraph, submit } from "./dom.js";
import { count } from "./format.js";
import { change, fileOf, queryLink } from "./program_parts.js";
import { trial } from "./program_trial.js";

const check = (box, text) => make("label", "check", box, ` ${text}`);
const box = (isChecked) => {
  const made = input({ type: "checkbox", spellcheck: null, autocomplete: null });
  made.checked = isChecked;
  return made;
};
const contractsField = () => having(make("textarea"), { rows: 2, spellcheck: "false", autocomplete: "off", placeholder: "C…, C…" });
const nameField = (name) => having(input({ required: "", maxlength: 200, placeholder: "letters, digits, _ and -" }), { value: name });
const fileField = (accept) => input({ type: "file", accept, spellcheck: null, autocomplete: null });

/** The fields that both kinds of programs have, with what they say in a request. */
function common(replaced) {
  const [name, contracts, isPublic, isReplacing] = [nameField(replaced), contractsField(), box(false), box(replaced !== "")];
  return {
    name, contracts,
    boxes: make("div", "row", check(isPublic, "Every owner may read its tables (public)"),
      check(isReplacing, "Replace the version that has this name")),
    note: paragraph("note", "When it replaces: without contracts it has those of the deployed version, and is as public; both run until the new one has caught up, and then it takes the name."),
    // As the contracts, whether it is public stays as it is when a new version says nothing.
    said: () => ({
      project_name: name.value.trim(),
      ...(wordsOf(contracts.value).length > 0 || !isReplacing.checked ? { contracts: wordsOf(contracts.value) } : {}),
      ...(isPublic.checked || !isReplacing.checked ? { public: isPublic.checked } : {}),
      ...(isReplacing.checked ? { replace: true } : {}),
    }),
  };
}

/** Tells what was made. */
function made({ id, project_name: name, replaces, tables }, verb) {
  const tail = replaces ? ` is to replace ${replaces} when it has caught up.`
    : ` is ${verb}${tables.length > 0 ? `, with ${count(tables.length, "table")}` : ""}.`;
  return make("p", "good", link(`programs/${id}`, replaces ? `Program ${id}` : `${name} (program ${id})`), tail);
}

/** Creates the form that deploys a program; `done` is called afterwards. It can try the module on stored transactions before. */
export function deployForm(replaced, done) {
  const shared = common(replaced);
  const [file, said, tried] = [fileField(".wasm,application/wasm"), outcome(), outcome()];
  const last = input({ type: "number", min: 1, max: 100, value: 10 });
  const hashes = input({ placeholder: "hashes; without them, the newest ones" });
  const code = async () => {
    const chosen = await fileOf(file);
    if (chosen === null) throw mistake("choose the module first: the .wasm file as the compiler wrote it");
    return chosen.base64;
  };
  const deploy = () => attempt(said, "The module is checked and compiled …", async () => {
    const answer = await change("deploy", { code: await code(), ...shared.said() });
    await done();
    return made(answer, "deployed");
  });
  const tryOut = () => attempt(tried, "The module is run on stored transactions …", async () => {
    const wanted = wordsOf(hashes.value);
    return trial(await change("try", { code: await code(), contracts: wordsOf(shared.contracts.value),
      ...(wanted.length > 0 ? { transactions: wanted } : { last: Number(last.value) }) }));
  });
  return form("", deploy,
    paragraph("note", "`make build` in a project that `orrery new` made builds the module."),
    make("div", "row", field("Name of the project", shared.name, "grow"), field("Module (.wasm)", file, "grow")),
    field("Contracts on whose transactions it runs", shared.contracts), shared.boxes, shared.note,
    make("div", "row", submit("Deploy")), said,
    make("h3", "", "Try it before"),
    make("div", "row", field("Newest transactions", last), field("Or these transactions", hashes, "grow"), button("Try", "quiet", tryOut)),
    paragraph("note", "A trial runs the module on stored transactions of the contracts above, and stores nothing."), tried);
}

/** Returns an interface of a file as the service takes it: a module in base64, or the parsed JSON. */
async function interfaceOf(file) {
  const chosen = await fileOf(file);
  if (chosen === null) return {};
  if (chosen.isModule) return { spec: chosen.base64 };
  try {
    return { spec: JSON.parse(await chosen.text()) };
  } catch (error) {
    throw mistake(`the file ${chosen.name} is neither a module nor JSON (${error.message})`);
  }
}

/** Creates the form that makes tables of the events of contracts; `done` is called afterwards. */
export function watchForm(replaced, done) {
  const shared = common(replaced);
  const [file, said] = [fileField(".wasm,.json,application/wasm,application/json"), outcome()];
  const from = input({ type: "number", min: 0, placeholder: "the first stored one" });
  const watch = () => attempt(said, "The project is made …", async () => {
    const answer = await change("watch", { ...shared.said(), ...await interfaceOf(file), ...(from.value === "" ? {} : { from: Number(from.value) }) });
    await done();
    return [made(answer, "watched"), make("p", "note", "Its page shows the progress over the stored ledgers.")];
  });
  return form("", watch,
    make("div", "row", field("Name of the project", shared.name, "grow"), field("First ledger", from)),
    field("Contracts whose events become rows", shared.contracts), shared.boxes, shared.note,
    field("Interface that declares the events, only if the contracts' code does not", file),
    paragraph("note", "A module, or JSON as `stellar contract info interface --output json` prints it. Those of Soroswap, Blend, Aquarius and Phoenix come with the command line: `orrery watch --spec soroswap`."),
    make("div", "row", submit("Watch")), said);
}

/** Creates the form that subscribes to another owner's project; `done` is called afterwards. */
export function subscribeForm(done) {
  const [project, said] = [input({ required: "", maxlength: 200 }), outcome()];
  const subscribe = () => attempt(said, "Subscribing …", async () => {
    const { project: name, tables } = await change("subscribe", { project: project.value.trim() });
    await done();
    const names = tables.flatMap((table, index) => [index === 0 ? ": " : ", ", queryLink(name, table)]);
    return make("p", "good", `You read the tables of ${name}`, ...names, ".");
  });
  return form("", subscribe,
    make("div", "row", field("Name of the project", project, "grow"), submit("Subscribe")),
    make("p", "note", "Its owner must have made it public. Its rows count towards your storage limit."), said);
}
