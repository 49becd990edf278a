// The statement once more, behind its text area, whose own letters are not seen: its words, texts and comments in
// colours, and the place of an error. Screen readers and the clipboard have those of the text area.

import { having, make, put } from "../dom.js";
import { isWord } from "./words.js";

/** Letters of a statement up to which it is painted: all of it is read at each key. */
const LONGEST = 20_000;

/** Comments, texts, quoted names, numbers, words and signs. */
const PARTS = /(--[^\n]*|\/\*[^]*?(?:\*\/|$))|('(?:[^']|'')*'?)|("[^"]*"?)|(\b\d[\w.]*)|([\p{L}_][\p{L}\p{N}_]*)|(\S)/gu;
const KINDS = ["comment", "string", "", "number"];

function kindOf(groups) {
  const index = groups.findIndex((group) => group !== undefined);
  return KINDS[index] ?? (isWord(groups[index]) ? "word" : "");
}

/** Creates the painting of a text area; `draw(wrong)` draws it anew, with a mark at a place of its text. */
export function painting(area) {
  const made = having(make("pre", "sql-paint"), { "aria-hidden": "true" });
  const scroll = () => { made.scrollTop = area.scrollTop; };
  const draw = (wrong = -1) => {
    const text = area.value;
    const isPainted = text.length <= LONGEST;
    area.classList.toggle("painted", isPainted);
    const nodes = [];
    let last = 0;
    const until = (end) => { if (end > last) nodes.push(text.slice(last, end)); };
    for (const found of isPainted ? text.matchAll(PARTS) : []) {
      const { 0: part, index } = found;
      const kind = kindOf(found.slice(1));
      const isWrong = index <= wrong && wrong < index + part.length;
      if (kind === "" && !isWrong) continue;
      until(index);
      nodes.push(make("span", `${kind && `sql-${kind}`}${isWrong ? " sql-wrong" : ""}`, part));
      last = index + part.length;
    }
    // The last line end would make no line.
    until(isPainted ? text.length : 0);
    put(made, nodes, "\n");
    scroll();
  };
  area.addEventListener("input", () => draw());
  area.addEventListener("scroll", scroll);
  return { element: made, draw };
}
