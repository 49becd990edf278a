// The table of a result. Its columns can be sorted; a value that its cell cuts off is shown as a whole below the table.

import { link, pathOf } from "../address.js";
import { copyButton } from "../copy.js";
import { button, having, make, note, put } from "../dom.js";
import { bounded, number, short } from "../format.js";
import { Rows } from "../rows.js";
import { sorted, textOf } from "./read.js";

/** Number of columns that are shown; width of a column in letters: at least, of shortened names, and at most. */
const MOST_COLUMNS = 100;
const [NARROW, SHORT, WIDE] = [9, 14, 46];
/** Letters of a value in its cell, and below the table. */
const IN_CELL = 120;
const BELOW = 20_000;
/** Space between columns, in pixels, as the style of lists has it. */
const GAP = 12;

/** A hash or a key, which is shown shortened. */
const HASH = /^[0-9a-f]{64}$/;

/** Returns the path of the page that a value names; null if its column does not say so. */
function pathFor(name, value) {
  if (typeof value === "object") return null;
  const text = String(value);
  if (pathOf(text) !== null) return pathOf(text);
  if (/(^|_)(transaction|tx)(_hash|_id)?$/i.test(name) && /^[0-9a-f]{64}$/.test(text)) return `tx/${text}`;
  if (/(^|_)ledger(_sequence|_seq)?$/i.test(name) && /^[1-9]\d{0,9}$/.test(text)) return `ledger/${text}`;
  return name === "_event_id" && /^\d{1,20}$/.test(text) ? `event/${text}` : null;
}

/** Returns the width of a column in letters, at which its shorter values fit. */
function widthOf({ name, values }) {
  const isShort = (value) => pathFor(name, value) !== null || HASH.test(textOf(value));
  const widths = values.map((value) => isShort(value) ? SHORT : textOf(value).length + 1);
  return Math.min(WIDE, widths.reduce((most, width) => Math.max(most, width), Math.max(NARROW, name.length + 3)));
}

/** Returns the cell of a value; `show` is called for the whole of one that is too long. */
function cell({ name, isNumber, width }, value, show) {
  const path = pathFor(name, value);
  const text = textOf(value);
  if (HASH.test(text)) return button(short(text).textContent, "link mono", show);
  const kind = value === null ? "null" : isNumber ? "number" : "";
  if (path !== null) return make("span", kind, link(path, short(text)));
  return text.length < width ? make("span", kind, text) : button(bounded(text, IN_CELL), "link", show);
}

/** Puts the whole of a value into a place. */
function detail(place, { name }, value, row) {
  const text = textOf(value, 2);
  const rest = text.length - BELOW;
  put(place,
    note(make("bdi", "mono", bounded(name, 200)), `, row ${number(row + 1)} `,
      copyButton(() => text, "the value")),
    make("pre", "", text.slice(0, BELOW)),
    rest > 0 ? note(`… and ${number(rest)} further letters, which Copy has.`) : null);
}

/** Creates the head of a column: a button that sorts. */
const headOf = (column, sort) => make("span", column.isNumber ? "number" : "",
  button(bounded(column.name, IN_CELL), "link", () => sort(column)));

/** Keeps the heads above their columns when either of them is scrolled sideways. */
function together(one, other) {
  for (const [from, to] of [[one, other], [other, one]]) {
    from.addEventListener("scroll", () => { to.scrollLeft = from.scrollLeft; });
  }
}

/** Creates the table of columns, with an accessible name. Returns its element. */
export function grid(columns, label) {
  const shown = columns.slice(0, MOST_COLUMNS).map((column) => ({ ...column, width: widthOf(column) }));
  const place = make("div", "sql-detail");
  const sortBy = (column) => {
    const isUp = rows.head.children[shown.indexOf(column)].getAttribute("aria-sort") === "ascending";
    for (const [index, head] of [...rows.head.children].entries()) {
      having(head, { "aria-sort": shown[index] !== column ? null : isUp ? "descending" : "ascending" });
    }
    rows.scroller.scrollTop = 0;
    rows.restart(sorted(column, isUp));
  };
  const rows = new Rows({
    label, kind: "sql-result", heads: shown.map((column) => headOf(column, sortBy)), empty: "",
    row: (row) => shown.map((column) => {
      const value = column.values[row];
      return cell(column, value, () => detail(place, column, value, row));
    }),
    more: (last) => last === null ? columns[0].values.map((_, row) => row) : [],
  });
  rows.spacer.classList.add("sql-body");
  rows.said.remove();
  rows.element.style.setProperty("--columns", shown.map(({ width }) => `${width}ch`).join(" "));
  const letters = shown.reduce((sum, { width }) => sum + width, 0);
  rows.element.style.setProperty("--wide", `calc(${letters}ch + ${GAP * shown.length}px)`);
  together(rows.scroller, rows.head.parentElement);
  // The arrow keys go to links and long values that are out of sight, too.
  const reveal = ({ target }) => target.scrollIntoView({ block: "nearest", inline: "nearest" });
  rows.scroller.addEventListener("focusin", reveal);
  rows.load();
  const rest = columns.length - shown.length;
  const told = rest > 0 ? note(`${number(rest)} further columns are not shown: files have them.`) : null;
  return make("div", "", rows.element, told, place);
}
