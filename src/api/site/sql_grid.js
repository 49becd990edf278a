// The table of a result: only the cells in sight are elements. It is one stop of the Tab key; arrows move in it.

import { link, pathOf } from "./address.js";
import { copyButton } from "./copy.js";
import { having, make, put } from "./dom.js";
import { number } from "./format.js";
import { slices, sorted, textOf } from "./sql_read.js";

/** Height of a row in pixels, and of the head, as the style has them. */
const ROW = 28;
const HEAD = 44;
/** Rows beyond those in sight that are elements, too. */
const MARGIN = 10;
/** Rows from which the widths of columns follow, and the widest and the narrowest column, in letters. */
const SAMPLE = 200;
const [NARROW, WIDE] = [9, 46];
/** Letters of a value that are shown in its cell, and below the table. */
const IN_CELL = 120;
const BELOW = 20_000;

const STRKEY = /\b(C[A-Z2-7]{55}|G[A-Z2-7]{55}|M[A-Z2-7]{68})\b/;

/** Returns the path of the page that a value names; null if its column does not say so. */
function pathFor(name, value) {
  if (typeof value !== "string" && typeof value !== "number") return null;
  const text = String(value);
  if (pathOf(text) !== null) return pathOf(text);
  if (/(^|_)(transaction|tx)(_hash|_id)?$/i.test(name) && /^[0-9a-f]{64}$/.test(text)) return `tx/${text}`;
  if (/(^|_)ledger(_sequence|_seq)?$/i.test(name) && /^[1-9]\d{0,9}$/.test(text)) return `ledger/${text}`;
  return name === "_event_id" && /^\d{1,20}$/.test(text) ? `event/${text}` : null;
}

/** Returns the text of a value in its cell: names of 56 letters and more are shortened, others are cut. */
function inCell(name, value) {
  const text = textOf(value);
  if (value !== null && text.length > 50 && pathFor(name, value) !== null) return `${text.slice(0, 6)}…${text.slice(-6)}`;
  return text.length > IN_CELL ? `${text.slice(0, IN_CELL)}…` : text;
}

/** Returns text in which addresses are links. */
const linked = (text) => text.split(STRKEY).map((part, index) => index % 2 === 1 ? link(pathOf(part), part) : part);

export class Grid {
  constructor(columns, label) {
    // `order` has the rows as they are sorted, `at` is the cell that the keyboard is at.
    Object.assign(this, { columns, order: null, sort: null, at: null, drawn: "" });
    this.rows = columns[0]?.values.length ?? 0;
    this.lefts = [0];
    for (const column of columns) this.lefts.push(this.lefts.at(-1) + widthOf(column) + 2);
    this.head = having(make("div", "sql-head"), { role: "row", "aria-rowindex": 1 });
    this.body = having(make("div", "sql-body"), { role: "rowgroup" });
    this.element = make("div", "sql-result");
    this.scroller = having(make("div", "sql-grid", having(make("div", "", this.head), { role: "rowgroup" }), this.body), {
      role: "grid", tabindex: 0, "aria-label": label, "aria-rowcount": this.rows + 1, "aria-colcount": columns.length, "aria-readonly": "true",
    });
    const width = `${this.lefts.at(-1)}ch`;
    for (const part of [this.head, this.body]) part.style.width = width;
    this.body.style.height = `${this.rows * ROW}px`;
    this.detail = having(make("div", "sql-detail"), { "aria-live": "off" });
    this.element.append(this.scroller, this.detail);
    this.say();
    this.scroller.addEventListener("scroll", () => this.later());
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("click", (event) => this.click(event));
    this.scroller.addEventListener("focus", () => {
      if (this.at === null && this.scroller.matches(":focus-visible")) this.go(this.rows > 0 ? 0 : -1, 0);
    });
    new ResizeObserver(() => this.later()).observe(this.scroller);
  }

  /** Sets the types of the columns, when they are known. */
  setTypes(types) {
    if (types.length !== this.columns.length) return;
    for (const [index, type] of types.entries()) {
      this.columns[index].type = type;
      if (type === "VARCHAR") this.columns[index].isNumber = false;
    }
    this.draw(true);
    this.say();
  }

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  /** Width of a letter in pixels. */
  get letter() {
    return this.body.getBoundingClientRect().width / this.lefts.at(-1) || 8;
  }

  draw(isChanged = false) {
    const { scroller, lefts, letter } = this;
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW / MARGIN) * MARGIN - MARGIN);
    const last = Math.min(this.rows, Math.ceil((scroller.scrollTop + scroller.clientHeight) / ROW / MARGIN) * MARGIN + MARGIN);
    const [left, right] = [scroller.scrollLeft / letter, (scroller.scrollLeft + scroller.clientWidth) / letter];
    const shown = this.columns.map((_, index) => index).filter((index) => lefts[index + 1] >= left && lefts[index] <= right);
    const drawn = [first, last, shown[0], shown.at(-1)].join();
    if (drawn === this.drawn && !isChanged) return;
    this.drawn = drawn;
    put(this.head, shown.map((index) => this.title(index)));
    const rows = [];
    for (let row = first; row < last; row += 1) {
      const made = having(make("div", "sql-row", shown.map((index) => this.cell(row, index))), { role: "row", "aria-rowindex": row + 2 });
      made.style.top = `${row * ROW}px`;
      rows.push(made);
    }
    put(this.body, rows);
    const isIn = this.element.querySelector("#sql-cell") !== null;
    having(scroller, { "aria-activedescendant": isIn ? "sql-cell" : null });
  }

  placed(made, row, index, role) {
    having(made, { role, "aria-colindex": index + 1, "data-row": row, "data-column": index });
    made.style.left = `${this.lefts[index]}ch`;
    made.style.width = `${this.lefts[index + 1] - this.lefts[index]}ch`;
    if (this.at?.row === row && this.at.column === index) {
      made.id = "sql-cell";
      made.classList.add("on");
    }
    return made;
  }

  title(index) {
    const { name, type, isNumber } = this.columns[index];
    const isSorted = this.sort?.index === index;
    const mark = isSorted ? (this.sort.isDown ? " ▼" : " ▲") : "";
    const made = make("span", isNumber ? "number" : "", make("b", "", name.slice(0, IN_CELL), mark), make("small", "note", type.slice(0, IN_CELL)));
    having(made, { "aria-sort": isSorted ? (this.sort.isDown ? "descending" : "ascending") : "none", title: `${name.slice(0, 300)}: sort` });
    return this.placed(made, -1, index, "columnheader");
  }

  cell(row, index) {
    const { name, isNumber } = this.columns[index];
    const value = this.value(row, index);
    const path = value === null ? null : pathFor(name, value);
    const shown = inCell(name, value);
    const kind = value === null ? "null" : isNumber ? "number" : "";
    const made = make("span", kind, path === null ? shown : having(link(path, shown), { tabindex: -1 }));
    return this.placed(made, row, index, "gridcell");
  }

  value(row, index) {
    return this.columns[index].values[this.order === null ? row : this.order[row]];
  }

  /** Moves to a cell; row -1 is the head. */
  go(row, column) {
    this.at = { row: Math.max(-1, Math.min(row, this.rows - 1)), column: Math.max(0, Math.min(column, this.columns.length - 1)) };
    const { scroller, lefts, letter } = this;
    const [top, left, right] = [this.at.row * ROW, lefts[this.at.column] * letter, lefts[this.at.column + 1] * letter];
    if (this.at.row >= 0) {
      const height = scroller.clientHeight - HEAD - ROW;
      scroller.scrollTop = Math.min(Math.max(scroller.scrollTop, top - height), top);
    }
    if (left < scroller.scrollLeft || right - left > scroller.clientWidth) scroller.scrollLeft = left;
    else if (right > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = right - scroller.clientWidth;
    this.draw(true);
    this.say();
  }

  key(event) {
    if (event.altKey || event.metaKey) return;
    const { row, column } = this.at ?? { row: 0, column: 0 };
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 3);
    const far = event.ctrlKey;
    const moves = {
      ArrowDown: [row + 1, column], ArrowUp: [row - 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      PageDown: [row + page, column], PageUp: [Math.max(row - page, 0), column],
      Home: [far ? 0 : row, 0], End: [far ? this.rows - 1 : row, this.columns.length - 1],
    };
    if (event.key in moves) this.go(...moves[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && this.at !== null) {
      if (row < 0) this.sortBy(column);
      else this.scroller.querySelector("#sql-cell a")?.click();
    } else return;
    event.preventDefault();
  }

  click(event) {
    const cell = event.target.closest("[data-row]");
    if (cell === null || event.target.closest("a")) return;
    const [row, column] = [Number(cell.dataset.row), Number(cell.dataset.column)];
    if (row < 0) this.sortBy(column);
    else this.go(row, column);
  }

  /** Sorts by a column: upwards, then downwards, then as the service answered. */
  async sortBy(index) {
    const isSame = this.sort?.index === index;
    this.sort = isSame && this.sort.isDown ? null : { index, isDown: isSame };
    const { sort } = this;
    const order = sort === null ? null : await sorted(this.columns[index], sort.isDown, slices());
    if (this.sort !== sort) return;
    this.order = order;
    this.go(-1, index);
  }

  /** Shows below the table the whole text of the cell. */
  say() {
    if (this.at === null || this.at.row < 0) {
      const hint = "A click on a cell, or the arrow keys, show its whole text here; a click on a name sorts.";
      put(this.detail, make("p", "note", this.rows > 0 ? hint : ""));
      return;
    }
    const { row, column } = this.at;
    const { name, type } = this.columns[column];
    const value = this.value(row, column);
    const whole = textOf(value, 2);
    const path = value === null ? null : pathFor(name, value);
    const shown = whole.slice(0, BELOW);
    const rest = whole.length > BELOW ? make("p", "note", `… and ${number(whole.length - BELOW)} further letters, which Copy has.`) : null;
    const where = `${type === "" ? "" : ` ${type.slice(0, 200)}`}, row ${number(row + 1)} `;
    put(this.detail,
      make("p", "note", make("bdi", "mono", name.slice(0, 200)), where, copyButton(() => whole, "the value")),
      make("pre", value === null ? "null" : "", path === null ? linked(shown) : link(path, shown)), rest);
  }
}

/** Returns the width of a column in letters: that of most of its values. */
function widthOf({ name, values }) {
  let width = Math.min(name.length + 2, 30);
  for (const value of values.slice(0, SAMPLE)) width = Math.max(width, Math.min(inCell(name, value).length, WIDE));
  return Math.max(NARROW, width);
}
