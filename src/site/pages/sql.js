// SQL over the tables: only reading. The statement is in the address, so that it can be passed on.

import { session } from "../api.js";
import { button, having, make, paragraph, put } from "../dom.js";
import { bytes } from "../format.js";
import { Editor } from "../sql/editor.js";
import { History } from "../sql/history.js";
import { nameOf } from "../sql/names.js";
import { Result } from "../sql/result.js";
import { newest, readTables, tree } from "../sql/tables.js";
import { claims } from "../token.js";

/** Letters that the parameters of an address may have: the service takes 32 KiB with the path. */
const LONGEST = 31_000;

/** The text that was last in the editor, for when its owner comes back to the page. */
let draft = { owner: undefined, text: "" };

/** Puts a statement into the address. Returns why not as a sentence. */
function share(view, text) {
  const length = new URLSearchParams({ q: text }).toString().length;
  const isTooLong = length > LONGEST;
  view.setQuery({ q: isTooLong ? null : text });
  // It was run here: after a reload, it runs again.
  history.replaceState({ ...history.state, isOwn: true }, "");
  return isTooLong ? `This statement is too long for a link: ${bytes(length)} of at most ${bytes(LONGEST)}.` : "";
}

/** Creates the parts for writing and running a statement. Returns the editor, and what runs its statement. */
function workbench(view, tables) {
  const said = having(make("p", "note"), { role: "status" });
  const result = new Result(view.signal, (query, told, wrong = null) => {
    past.add(query, told);
    if (editor.text === query) editor.mark(wrong);
  });
  const run = () => {
    const { text } = editor;
    if (text.trim() === "" || session.token === "") {
      said.textContent = session.token === "" ? "Enter a token first." : "Write a statement first.";
      return undefined;
    }
    said.textContent = share(view, text);
    return result.run(text);
  };
  const { sub: owner } = claims();
  const editor = new Editor({ text: view.query.get("q") ?? (draft.owner === owner ? draft.text : ""), tables, run });
  view.signal.addEventListener("abort", () => { draft = { owner, text: editor.text }; });
  const past = new History((query) => {
    editor.set(query);
    editor.area.focus();
  });
  // Not disabled while a statement runs: running another one cancels it.
  const runButton = having(button("Run", "", () => { run(); }), { disabled: session.token === "" ? "" : null });
  const hint = paragraph("note keys", "`Ctrl+Enter` runs, `Ctrl+Space` completes a word, `Tab` accepts a completion.");
  hint.id = "sql-keys";
  const query = section("Query", editor.element, make("div", "row", runButton, result.cancel, hint), said);
  const main = make("div", "sql-main", query, section("Result", result.element), make("section", "", past.element));
  return { editor, result, run, main };
}

function section(title, ...children) {
  return having(make("section", "", make("h2", "", title), make("div", "body", children)), { "aria-label": title });
}

/** Returns the table to begin with. */
const firstOf = (tables) => tables.find((it) => it.table === "events") ?? tables[0];

/** Returns statements about the reader's own tables, to begin with. */
function statements(tables) {
  const table = firstOf(tables);
  if (table === undefined) return [];
  const name = nameOf(table);
  const has = table.columns.some(({ name: column }) => column === "name");
  return [newest(table), has ? `select name, count(*) as events\nfrom ${name}\ngroup by name\norder by events desc`
    : `select count(*) as rows\nfrom ${name}`];
}

const examples = (tables, show) => statements(tables).map((statement) =>
  make("div", "command", make("pre", "", statement), button("Run this", "quiet small", () => show(statement))));

export function open(view) {
  view.heading("SQL", make("span", "note", "DuckDB's SQL over your tables; it only reads"));
  let tables = [];
  const { editor, result, run, main } = workbench(view, () => tables);
  const side = view.part("Tables", async (body) => {
    tables = await readTables(view.signal);
    const show = (statement) => { editor.set(statement); run(); };
    put(body, ...tree(tables, { insert: (name) => editor.insertName(name), show }));
    if (result.place.childNodes.length === 0) put(result.place, ...examples(tables, show));
    const table = firstOf(tables);
    if (table !== undefined) editor.area.placeholder = `from ${nameOf(table)} limit 10`;
  }, { beside: [button("Read again", "link", () => side.reload())] });
  side.section.className = "sql-side";
  view.add(make("div", "sql", side.section, main));

  const isGiven = (view.query.get("q") ?? "").trim() !== "";
  // Who sends a link chooses its statement, which would run with the reader's token.
  const isOwn = history.state?.isOwn === true;
  if (isGiven && isOwn && session.token !== "") view.loads.push(run());
  else result.said.textContent = !isGiven ? "Run a statement, or take the newest rows of a table."
    : isOwn ? "The statement of this address runs when a token is given."
      : "This statement is that of the address: read it, and press Run.";
}
