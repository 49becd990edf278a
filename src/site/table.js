// Tables, and lists of facts.

import { having, make } from "./dom.js";

/** Number of columns from which on a table has its rows stacked in windows of middle width, too. */
const MANY = 7;

/**
 * Creates a table. A cell or column head is an element or text, or an array of that and a class. In narrow windows, the
 * cells of a row stand below each other with the heads before them, unless `isStacked` is false. Where the table is
 * wider than its place, the keyboard can scroll it.
 */
export function table(heads, rows, label, isStacked = true) {
  const cell = (tag) => (value, index) => {
    const [content, kind] = Array.isArray(value) ? value : [value, ""];
    const made = make(tag, kind, content);
    return having(made, tag === "th" ? { scope: "col" } : { "data-head": index === 0 ? null : names[index] });
  };
  const names = heads.map((value) => Array.isArray(value) ? value[0] : value);
  const head = make("thead", "", make("tr", "", heads.map(cell("th"))));
  const body = make("tbody", "", rows.map((row) => make("tr", "", row.map(cell("td")))));
  const made = scrolled(label ?? `Table: ${names.join(", ")}`, make("table", "", head, body));
  if (isStacked) made.classList.add("stacked", ...heads.length >= MANY ? ["many"] : []);
  return made;
}

/** Creates a place that scrolls sideways where its content is wider. */
export function scrolled(label, ...children) {
  return having(make("div", "scrolled", ...children), { tabindex: 0, role: "group", "aria-label": label });
}

/** Creates a state, a word and a class, as a tag. */
export const tag = ([word, kind]) => make("span", `tag ${kind}`, word);

/** Creates a list of facts: pairs of a name and a value. Pairs whose value is null are left out. */
export function facts(pairs, kind = "facts") {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined);
  return make("dl", kind, known.map(([name, value]) => make("div", "", make("dt", "", name), make("dd", "", value))));
}
