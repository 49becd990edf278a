// A list that may be long: only the rows in sight are elements, and further ones are read when the reader comes near
// the end.

import { having, make, put } from "./dom.js";
import { number } from "./format.js";
import { problem } from "./problem.js";
import { recall } from "./kept_rows.js";
import { onKey, untab } from "./row_keys.js";

/** Rows above and below those in sight that are elements, too. */
const MARGIN = 8;
/** Rows before the end of the list from which on further ones are read. */
const NEAR_END = 25;

/** Most items that are kept when newer ones are put before them. */
const MOST = 5000;

const part = (kind, role, ...children) => having(make("div", kind, ...children), { role });

/** A list of which only the rows in sight are elements. */
export class Rows {
  /**
   * - `label`: accessible name of the list.
   * - `kind`: class, whose style has the widths of the columns (`--columns`) and the height of a row (`--row`).
   * - `heads`: names of the columns.
   * - `row`: returns the cells of an item: elements or text.
   * - `more`: returns a promise of the items after this last one; of none at the end. It gets null for the first ones.
   * - `empty`: text where there are no items.
   * - `keptAs`: what tells its items from those of other lists of the page, if they are kept for who comes back.
   */
  constructor({ label, kind, heads, row, more, empty, keptAs }) {
    Object.assign(this, { row, more, empty, keptAs, heads });
    this.items = [];
    /** The place at which the reader left the list; undefined once it is there again. */
    this.kept = recall(`${label} ${keptAs ?? ""}`, this);
    /** The rows that are elements, by the index of their item. When it is cleared, they are made anew. */
    this.shown = new Map();
    this.isEnd = false;
    this.loading = null;
    this.spacer = part("spacer", "presentation");
    this.scroller = having(part("scroller", "rowgroup", this.spacer),
      { tabindex: 0, "aria-label": label, "aria-description": "The arrow keys move through the rows." });
    this.head = part("row head", "row", heads.map((name) => having(make("span", "", name), { role: "columnheader" })));
    this.grid = having(part("rows", "table", part("", "rowgroup", this.head), this.scroller), { "aria-label": label });
    // No status: it changes with each item that comes, and would be read out each time.
    this.said = make("p", "note");
    this.element = make("div", kind, this.grid, this.said);
    this.scroller.addEventListener("scroll", () => this.later());
    this.scroller.addEventListener("keydown", (event) => onKey(this, event));
    this.observer = new ResizeObserver(() => this.later());
    this.observer.observe(this.scroller);
  }

  /** Reads the first items, or further ones. Returns a promise that ends when they are shown. */
  load() {
    if (this.items.length === 0 && this.kept?.items !== undefined) {
      Object.assign(this, { items: this.kept.items, isEnd: this.kept.isEnd });
      this.draw();
      return Promise.resolve();
    }
    if (this.isEnd) return Promise.resolve();
    this.loading ??= this.read().finally(() => { this.loading = null; });
    return this.loading;
  }

  async read() {
    try {
      const last = this.items.at(-1) ?? null;
      const items = await this.more(last);
      // The list may have been begun anew meanwhile.
      if ((this.items.at(-1) ?? null) !== last) return;
      if (items.length === 0) this.isEnd = true;
      this.items.push(...items);
      this.draw();
    } catch (error) {
      if (this.items.length === 0) throw error;
      put(this.said, problem(error) ?? "");
    }
  }

  /** Puts items before the first one. The rows in sight stay where they are, unless the first one is in sight. */
  prepend(items) {
    this.items.unshift(...items);
    const { scrollTop, clientHeight } = this.scroller;
    const inSight = scrollTop === 0 ? 0 : (scrollTop + clientHeight) / this.height + items.length;
    if (this.items.length > MOST && inSight + NEAR_END < MOST) {
      this.items.length = MOST;
      this.isEnd = false;
    }
    this.shown = new Map([...this.shown].map(([index, row]) => [index + items.length, row]));
    this.draw();
    if (scrollTop > 0) this.scroller.scrollTop = scrollTop + items.length * this.height;
  }

  /** Begins the list anew with items that are not next to those that were read. */
  restart(items) {
    this.items = items;
    this.shown.clear();
    this.isEnd = false;
    this.draw();
  }

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
      this.resume();
    });
  }

  /** Returns the place at which the reader is, with the items if they are kept; null at the beginning. */
  place() {
    const { items, isEnd, height, scroller: { scrollTop }, keptAs } = this;
    if (scrollTop === 0 || items.length === 0) return this.kept ?? null;
    const index = Math.floor(scrollTop / height);
    const place = { scrollTop, offset: scrollTop - index * height, anchor: JSON.stringify(items[index]) };
    return keptAs === undefined ? place : { ...place, items, isEnd };
  }

  /** Goes to the place that was left, once the list is laid out. */
  resume() {
    const { items, kept, height, scroller } = this;
    if (kept === undefined || items.length === 0 || scroller.clientHeight === 0) return;
    this.kept = undefined;
    const index = items.findIndex((item) => JSON.stringify(item) === kept.anchor);
    scroller.scrollTop = index < 0 ? kept.scrollTop : index * height + kept.offset;
  }

  get height() {
    return parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 34;
  }

  draw() {
    const { height, items, scroller } = this;
    // All that is measured is read before anything is written, so that the layout is computed once.
    const { scrollTop, clientHeight } = scroller;
    const first = Math.max(0, Math.floor(scrollTop / height) - MARGIN);
    const last = Math.min(items.length, Math.ceil((scrollTop + (clientHeight || 600)) / height) + MARGIN);
    this.spacer.style.height = `${items.length * height}px`;
    const shown = new Map();
    for (let index = first; index < last; index += 1) {
      const row = this.shown.get(index) ?? this.cells(items[index]);
      row.style.top = `${index * height}px`;
      shown.set(index, having(row, { "aria-rowindex": index + 2 }));
    }
    this.shown = shown;
    this.arrange([...shown.values()]);
    this.grid.hidden = items.length === 0;
    having(this.grid, { "aria-rowcount": this.isEnd ? items.length + 1 : -1 });
    this.said.textContent = this.extent();
    if (!this.isEnd && last > items.length - NEAR_END && items.length > 0 && this.loading === null) this.load();
  }

  /** Says how much of the list has been read. */
  extent() {
    const { isEnd, items: { length } } = this;
    if (length === 0) return isEnd ? this.empty : "";
    if (!isEnd) return `${number(length)} read so far; more follow when you scroll.`;
    return length === 1 ? "One, and no more." : `All ${number(length)}.`;
  }

  /** Makes these rows the ones that exist. Those that stay are not moved, so that the focus in one stays, too. */
  arrange(rows) {
    const kept = new Set(rows);
    for (const row of [...this.spacer.children]) if (!kept.has(row)) row.remove();
    let next = this.spacer.firstChild;
    for (const row of rows) {
      if (row === next) next = next.nextSibling;
      else this.spacer.insertBefore(row, next);
    }
  }

  cells(item) {
    const headOf = (index) => typeof this.heads[index] === "string" ? this.heads[index] : null;
    const cells = this.row(item)
      .map((content, index) => having(make("span", "", content), { role: "cell", "data-head": headOf(index) }));
    return untab(part("row", "row", cells));
  }

  /** Returns the index of the first row that is whole in sight. */
  firstInSight() {
    return Math.ceil(this.scroller.scrollTop / this.height);
  }

  /** Scrolls as far as needed to bring a row into sight. */
  reveal(index) {
    const { height, scroller } = this;
    const most = index * height;
    const least = most + height - scroller.clientHeight;
    scroller.scrollTop = Math.max(least, Math.min(most, scroller.scrollTop));
    this.draw();
  }
}
