// Forms that make programs and projects of events, and that subscribe to those of others.

import { attempt, check, contractsArea, ledgerInput, mark, mistake, outcome, wordsOf } from "../actions.js";
import { link } from "../address.js";
import { field, form, having, input, make, note, paragraph, submit } from "../dom.js";
import { count } from "../format.js";
import { change, fileOf, listed, queryLink } from "./parts.js";
import { selectorFields, selectorsOf } from "./selectors.js";
import { trial } from "./trial.js";

const fileInput = (accept) => input({ type: "file", accept, spellcheck: null, autocomplete: null });

/** Creates the fields that both kinds of programs have. `replaced` names the project that a new version is for. */
function common(replaced, contractsLabel) {
  const placeholder = "letters, digits, _ and -";
  const name = input({ name: "project_name", required: "", maxlength: 200, placeholder, value: replaced });
  return {
    name: field("Name of the project", name, "grow"),
    rest: [
      field(contractsLabel, contractsArea({ name: "contracts" })),
      make("div", "row", check("public", "Every owner may read its tables (public)", false),
        check("replace", "Replace the version that has this name", replaced !== "")),
      note("When it replaces: without contracts, and what selects some, it has those of the deployed version, "
        + "and is as public; both run until the new one has caught up, and then it takes the name."),
    ],
  };
}

/** Returns what such a form says in a request. What a new version leaves out stays as it is. */
function said(of) {
  const given = new FormData(of);
  const contracts = wordsOf(given.get("contracts"));
  const isNew = !given.has("replace");
  return {
    project_name: given.get("project_name").trim(), replace: isNew ? undefined : true,
    contracts: isNew || contracts.length > 0 ? contracts : undefined,
    public: isNew || given.has("public") ? given.has("public") : undefined,
  };
}

/** Tells what was made. */
function made({ id, project_name: name, replaces, tables }, verb) {
  const tail = replaces ? ` is to replace ${replaces} when it has caught up.`
    : ` is ${verb}${tables.length > 0 ? `, with ${count(tables.length, "table")}` : ""}.`;
  return make("p", "good", link(`programs/${id}`, replaces ? `Program ${id}` : `${name} (program ${id})`), tail);
}

async function moduleOf(chosen) {
  const module = await fileOf(chosen);
  if (module === null) throw mistake("choose the module first: the .wasm file as the compiler wrote it");
  return module.base64;
}

/** Creates the form that deploys a program or tries it on stored transactions; `done` is called when it is deployed. */
export function deployForm(replaced, done) {
  const { name, rest } = common(replaced, "Contracts on whose transactions it runs");
  const [file, told, tried] = [fileInput(".wasm,application/wasm"), outcome(), outcome()];
  const last = input({ type: "number", min: 1, max: 100, value: 10 });
  const hashes = input({ placeholder: "their hashes" });
  const deploy = () => attempt(told, "The module is checked and compiled …", async () => {
    const answer = await change("deploy", { code: await moduleOf(file), ...said(whole) });
    await done();
    return made(answer, "deployed");
  });
  const tryOut = () => attempt(tried, "The module is run on stored transactions …", async () => {
    const contracts = wordsOf(new FormData(whole).get("contracts"));
    const transactions = wordsOf(hashes.value);
    const which = transactions.length > 0 ? { transactions } : { last: Number(last.value) };
    return trial(await change("try", { code: await moduleOf(file), contracts, ...which }));
  });
  const whole = form("", deploy,
    paragraph("note", "`make build` in a project that `orrery new` made builds the module."),
    make("div", "row", name, field("Module (.wasm)", file, "grow")), rest, make("div", "row", submit("Deploy")), told);
  // A form of its own, because Enter in its fields must not deploy.
  const trying = form("row", tryOut, field("Newest transactions", last),
    field("Or these transactions", hashes, "grow"), submit("Try", "quiet"));
  return make("div", "", whole, make("h3", "", "Try it before"), trying,
    note("A trial runs the module on stored transactions of these contracts, and stores nothing."), tried);
}

/** Returns an interface of a file as the service takes it: a module in base64, or the parsed JSON. */
async function interfaceOf(file) {
  const chosen = await fileOf(file);
  if (chosen === null || chosen.isModule) return chosen?.base64;
  try {
    return JSON.parse(chosen.text);
  } catch (error) {
    throw mistake(`the file ${chosen.name} is neither a module nor JSON (${error.message})`);
  }
}

/** Creates the form that makes tables of the events of contracts; `done` is called afterwards. */
export function watchForm(replaced, done) {
  const { name, rest } = common(replaced, "Contracts whose events become rows");
  const told = having(outcome(), { id: "watch-refusal" });
  const [file, selectors] = [fileInput(".wasm,.json,application/wasm,application/json"), selectorFields()];
  const from = ledgerInput({ placeholder: "the first stored one" });
  const watch = () => attempt(told, "The project is made …", async () => {
    mark(whole, told, null);
    try {
      const [selected, first] = [selectorsOf(whole), from.value === "" ? undefined : Number(from.value)];
      const { contracts, ...others } = said(whole);
      const isSelected = Object.keys(selected).length > 0;
      const answer = await change("watch", {
        ...others, ...selected, contracts: isSelected && contracts?.length === 0 ? undefined : contracts,
        storage: new FormData(whole).has("storage") ? true : undefined, spec: await interfaceOf(file), from: first,
      });
      await done();
      return [made(answer, "watched"), note("Its page shows the progress over the stored ledgers.")];
    } catch (error) {
      mark(whole, told, error);
      throw error;
    }
  });
  const [contracts, ...behind] = rest;
  const whole = form("", watch, make("div", "row", name, field("First ledger", from)), contracts, selectors, ...behind,
    check("storage", "Changes of what the contracts hold become rows, too; not with events of every contract", false),
    field("Interface that declares the events, only if the contracts' code does not", file),
    paragraph("note", "A module, or JSON as `stellar contract info interface --output json` prints it. "
      + "Those of Soroswap, Blend, Aquarius and Phoenix come with the command line: `orrery watch --spec soroswap`."),
    make("div", "row", submit("Watch")), told);
  return whole;
}

/** Creates the form that subscribes to another owner's project; `done` is called afterwards. */
export function subscribeForm(done) {
  const [project, told] = [input({ required: "", maxlength: 200 }), outcome()];
  const subscribe = () => attempt(told, "Subscribing …", async () => {
    const { project: name, tables } = await change("subscribe", { project: project.value.trim() });
    await done();
    const links = listed(tables.map((table) => queryLink(name, table)));
    return make("p", "good", `You read the tables of ${name}: `, ...links, ".");
  });
  return form("", subscribe, make("div", "row", field("Name of the project", project, "grow"), submit("Subscribe")),
    note("Its owner must have made it public. Its rows count towards your storage limit."), told);
}
