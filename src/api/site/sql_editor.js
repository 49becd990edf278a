// The text area for SQL: it grows with its text, offers words while one is typed, and marks the position of an error.

import { having, make, put } from "./dom.js";
import { complete } from "./sql_words.js";

/** Letters of a text up to which words are offered: the whole is read at each key. */
const LONGEST = 60_000;
const OPTION = "sql-option-";

export class Editor {
  /** `tables` returns the tables that may be completed; `run` is called when the keyboard asks for it. */
  constructor({ text, tables, run }) {
    Object.assign(this, { tables, run });
    this.list = [];
    this.active = 0;
    this.area = having(make("textarea", "sql-text"), {
      "aria-label": "SQL statement", rows: 5, spellcheck: "false", autocapitalize: "off", autocomplete: "off", autocorrect: "off",
      placeholder: "from project.table limit 10", "aria-autocomplete": "list", "aria-haspopup": "listbox", "aria-controls": "sql-words",
      "aria-describedby": "sql-keys",
    });
    // A copy of the text behind it has the same size, which the text area takes over, and the same positions.
    this.mirror = having(make("div", "sql-mirror"), { "aria-hidden": "true" });
    this.popup = having(make("ul", "sql-words"), { role: "listbox", id: "sql-words", "aria-label": "Completions", hidden: "" });
    this.said = having(make("span", "sql-unseen"), { role: "status" });
    this.element = make("div", "sql-editor", make("div", "sql-paper", this.mirror, this.area), this.popup, this.said);
    this.area.addEventListener("input", (event) => {
      this.reflect();
      if (event.inputType === "insertText" || event.inputType === "deleteContentBackward" && this.list.length > 0) this.offer();
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

  set(text) {
    this.area.value = text;
    this.close();
    this.reflect();
  }

  /** Puts text in place of what is selected, so that the browser can undo it. */
  insert(text, start = this.area.selectionStart, end = this.area.selectionEnd) {
    this.area.focus();
    this.area.setSelectionRange(start, end);
    if (!document.execCommand("insertText", false, text)) this.area.setRangeText(text, start, end, "end");
    this.close();
    this.reflect();
  }

  /** Inserts a name, with a blank before it if a word precedes. */
  insertName(name) {
    const before = this.text.slice(0, this.area.selectionStart);
    this.insert(/[\w")*]$/.test(before) ? ` ${name}` : name);
  }

  reflect(start = null, end = null) {
    // The last line of an element is only as high as a line if it has something.
    const text = `${this.text}\n`;
    if (start === null) this.mirror.textContent = text;
    else put(this.mirror, text.slice(0, start), make("mark", "", text.slice(start, end)), text.slice(end));
  }

  /** Marks a part of the text until it is changed. */
  mark(start, end) {
    this.reflect(start, Math.max(end, start + 1));
  }

  offer(isAsked = false) {
    const { area } = this;
    if (area.selectionStart !== area.selectionEnd || this.text.length > LONGEST) return this.close();
    const { start, list } = complete(this.text, area.selectionStart, this.tables(), isAsked);
    if (list.length === 0) return this.close();
    Object.assign(this, { start, list });
    put(this.popup, list.map(({ label, detail }, index) => having(
      make("li", "", make("span", "mono", label), make("small", "note", detail)), { role: "option", id: OPTION + index })));
    this.popup.hidden = false;
    this.place();
    this.choose(0);
    this.said.textContent = `${list.length} ${list.length === 1 ? "completion" : "completions"}: Tab accepts, Escape closes.`;
    return undefined;
  }

  /** Puts the list below the word. */
  place() {
    const caret = make("span", "", "\u200b");
    put(this.mirror, this.text.slice(0, this.start), caret, `${this.text.slice(this.start)}\n`);
    const [at, frame] = [caret.getBoundingClientRect(), this.element.getBoundingClientRect()];
    this.reflect();
    this.popup.style.top = `${at.bottom - frame.top + 2}px`;
    this.popup.style.left = `${Math.max(0, Math.min(at.left - frame.left, frame.width - this.popup.offsetWidth))}px`;
  }

  choose(index) {
    this.active = (index + this.list.length) % this.list.length;
    for (const [at, option] of [...this.popup.children].entries()) option.setAttribute("aria-selected", String(at === this.active));
    this.area.setAttribute("aria-activedescendant", OPTION + this.active);
    this.popup.children[this.active].scrollIntoView({ block: "nearest" });
  }

  accept(index) {
    this.insert(this.list[index].insert, this.start, this.area.selectionEnd);
  }

  close() {
    this.list = [];
    this.popup.hidden = true;
    this.said.textContent = "";
    this.area.removeAttribute("aria-activedescendant");
  }

  key(event) {
    if (event.isComposing) return;
    const { key } = event;
    const hasModifier = event.ctrlKey || event.metaKey;
    if (key === "Enter" && hasModifier) {
      event.preventDefault();
      this.close();
      this.run();
    } else if (key === " " && event.ctrlKey) {
      event.preventDefault();
      this.offer(true);
    } else if (this.list.length > 0 && !hasModifier && !event.altKey && !event.shiftKey) {
      const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
      if (key in moves) {
        const far = Math.abs(moves[key]) > 1;
        this.choose(far ? Math.min(this.list.length - 1, Math.max(0, this.active + moves[key])) : this.active + moves[key]);
      } else if (key === "Enter" || key === "Tab") this.accept(this.active);
      else if (key === "Escape") this.close();
      else {
        if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(key)) this.close();
        return;
      }
      event.preventDefault();
      event.stopPropagation();
    }
  }
}
