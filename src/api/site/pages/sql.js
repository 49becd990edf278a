// SQL over the tables: only reading. The statement is in the address, so that it can be passed on.

import { session } from "../api.js";
import { button, having, make, prose, put } from "../dom.js";
import { bytes } from "../format.js";
import { Editor } from "../sql_editor.js";
import { History } from "../sql_history.js";
import { Result } from "../sql_result.js";
import { readTables, tree } from "../sql_tables.js";
import { fileName } from "../sql_words.js";
import { claims } from "../token.js";

/** Letters that the parameters of an address may have: the service takes 32 KiB with the path. */
const LONGEST = 31_000;

/** The text that was last in the editor, for when its owner comes back to the page. */
let draft = { owner: "", text: "" };

export function open(view) {
  view.heading("SQL", make("span", "note", "DuckDB's SQL over your tables; it only reads"));
  const owner = String(claims().sub ?? "");
  const given = view.query.get("q");
  let tables = [];
  const said = having(make("p", "note"), { role: "status" });

  const result = new Result({
    signal: view.signal,
    done: (query, told) => past.add(query, told),
    mark: ({ start, end }) => { if (editor.text === shown) editor.mark(start, end); },
    nameFile: (query) => fileName(query, tables),
  });
  let shown = "";
  const run = () => {
    const { text } = editor;
    if (text.trim() === "" || session.token === "") {
      said.textContent = session.token === "" ? "Give a token first." : "Write a statement first.";
      return undefined;
    }
    shown = text;
    editor.reflect();
    const length = new URLSearchParams({ q: text }).toString().length;
    const isTooLong = length > LONGEST;
    view.setQuery({ q: isTooLong ? null : text });
    said.textContent = isTooLong
      ? `This statement is too long for an address (${bytes(length)} of at most ${bytes(LONGEST)}): it cannot be passed on as a link.` : "";
    return result.run(text);
  };
  const editor = new Editor({ text: given ?? (draft.owner === owner ? draft.text : ""), tables: () => tables, run });
  const past = new History((query) => {
    editor.set(query);
    editor.area.focus();
    editor.element.scrollIntoView({ block: "nearest" });
  });
  view.signal.addEventListener("abort", () => { draft = { owner, text: editor.text }; });

  const hint = having(make("p", "note keys", prose("`Ctrl+Enter` runs, `Ctrl+Space` completes a word, `Tab` accepts a completion.")), { id: "sql-keys" });
  const runButton = make("button", "", "Run");
  runButton.type = "button";
  runButton.addEventListener("click", run);
  runButton.disabled = session.token === "";
  const query = section("Query", editor.element, make("div", "row", runButton, result.cancel, hint), said);
  const results = section("Result", result.element);
  const side = view.part("Tables", async (body) => {
    tables = await readTables(view.signal);
    put(body, ...tree(tables, {
      insert: (name) => editor.insertName(name),
      show: (statement) => { editor.set(statement); return run(); },
    }));
  }, { kind: "sql-side", beside: [button("Read again", "link", () => side.reload())] });
  view.add(make("div", "sql", side.section, make("div", "sql-main", query, results, make("section", "", past.element))));

  if (session.token === "") {
    put(result.said, given === null ? "Statements run when a token is given." : "The statement of this address runs when a token is given.");
  } else if (given !== null && given.trim() !== "") view.loads.push(run());
  else put(result.said, "Run a statement, or take the newest rows of a table.");
}

let ids = 0;

function section(title, ...children) {
  ids += 1;
  const id = `sql-part-${ids}`;
  return having(make("section", "", having(make("h2", "", title), { id }), make("div", "body", children)), { "aria-labelledby": id });
}
