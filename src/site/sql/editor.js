// The text area for SQL, which offers words while one is typed.

import { having, make, put } from "../dom.js";
import { painting } from "./paint.js";
import { complete } from "./words.js";

/** Letters of a text up to which words are offered: the whole is read at each key. */
const LONGEST = 60_000;
const OPTION = "sql-option-";

export class Editor {
  /** `tables` returns the tables that may be completed; `run` is called when the keyboard asks for it. */
  constructor({ text, tables, run }) {
    Object.assign(this, { tables, run, list: [], active: 0 });
    this.area = having(make("textarea", "sql-text"), {
      "aria-label": "SQL statement", rows: 6, spellcheck: "false", autocapitalize: "off", autocomplete: "off",
      placeholder: "from project.table limit 10", "aria-describedby": "sql-keys",
      "aria-autocomplete": "list", "aria-haspopup": "listbox", "aria-controls": "sql-words",
    });
    this.popup = having(make("ul", "sql-words"), { role: "listbox", id: "sql-words", "aria-label": "Completions" });
    this.painting = painting(this.area);
    this.element = make("div", "sql-editor", this.painting.element, this.area, this.popup);
    this.area.addEventListener("input", ({ inputType }) => {
      having(this.area, { "aria-invalid": null });
      if (inputType === "insertText" || (inputType === "deleteContentBackward" && this.list.length > 0)) this.offer();
      else this.close();
    });
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("blur", () => this.close());
    this.area.addEventListener("pointerdown", () => this.close());
    this.popup.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      const option = event.target.closest("li");
      if (option !== null) this.accept(Number(option.id.slice(OPTION.length)));
    });
    this.set(text);
  }

  get text() {
    return this.area.value;
  }

  /** Replaces the statement. */
  set(text) {
    this.area.value = text;
    this.mark(null);
    this.close();
  }

  /** Marks the place of a mistake, an index of the text; null if there is none, -1 if it is not known where. */
  mark(at) {
    having(this.area, { "aria-invalid": at === null ? null : "true" });
    this.painting.draw(at ?? -1);
  }

  /** Puts text in place of what is selected, so that the browser can undo it. */
  insert(text, start = this.area.selectionStart) {
    this.area.focus();
    this.area.setSelectionRange(start, this.area.selectionEnd);
    // There is no other way that can be undone.
    document.execCommand("insertText", false, text);
    this.close();
  }

  /** Inserts a name, with a blank before it if a word precedes. */
  insertName(name) {
    const before = this.text.slice(0, this.area.selectionStart);
    this.insert(/[\w")*]$/.test(before) ? ` ${name}` : name);
  }

  offer(isAsked = false) {
    this.close();
    const { selectionStart, selectionEnd } = this.area;
    if (selectionStart !== selectionEnd || this.text.length > LONGEST) return;
    Object.assign(this, complete(this.text, selectionStart, this.tables(), isAsked));
    if (this.list.length === 0) return;
    put(this.popup, this.list.map(({ label, detail }, index) => {
      const option = make("li", "", make("span", "mono", label), make("small", "note", detail));
      return having(option, { role: "option", id: OPTION + index });
    }));
    this.popup.hidden = false;
    this.choose(0);
  }

  choose(index) {
    this.active = (index + this.list.length) % this.list.length;
    const chosen = this.popup.children[this.active];
    for (const option of this.popup.children) option.setAttribute("aria-selected", option === chosen);
    this.area.setAttribute("aria-activedescendant", chosen.id);
    chosen.scrollIntoView({ block: "nearest" });
  }

  accept(index) {
    this.insert(this.list[index].insert, this.start);
  }

  close() {
    this.list = [];
    this.popup.hidden = true;
    this.area.removeAttribute("aria-activedescendant");
  }

  key(event) {
    const act = this.actOf(event);
    if (act === undefined || event.isComposing) return;
    event.preventDefault();
    // Escape closes only the completions.
    event.stopPropagation();
    act();
  }

  /** Returns what a key does here; undefined for one that does what it does in every text. */
  actOf({ key, ctrlKey, metaKey, altKey, shiftKey }) {
    if (key === "Enter" && (ctrlKey || metaKey)) return () => { this.close(); this.run(); };
    if (key === " " && ctrlKey) return () => this.offer(true);
    if (this.list.length === 0 || ctrlKey || metaKey || altKey || shiftKey) return undefined;
    const accept = () => this.accept(this.active);
    return {
      ArrowDown: () => this.choose(this.active + 1), ArrowUp: () => this.choose(this.active - 1),
      Enter: accept, Tab: accept, Escape: () => this.close(),
    }[key];
  }
}
