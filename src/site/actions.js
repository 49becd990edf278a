// Actions that change something: what a form gives for them, and telling their outcome.

import { Refused, Stale, Unreachable } from "./api.js";
import { having, input, make, note, put } from "./dom.js";
import { problem } from "./problem.js";

/** Returns the words of a text that has commas, spaces or line ends between them. */
export const wordsOf = (text) => text.split(/[\s,;]+/).filter(Boolean);

/** Creates the field in which addresses of contracts are written. */
export const contractsArea = (attributes) => having(make("textarea"),
  { rows: 2, spellcheck: "false", autocomplete: "off", placeholder: "C…, C…", ...attributes });

/** Creates the field in which the number of a ledger is written. */
export const ledgerInput = (attributes) => input({ type: "number", min: 0, ...attributes });

/** Creates a labelled check box. */
export const check = (name, text, isChecked, value = "on") => make("label", "check",
  input({ type: "checkbox", name, value, checked: isChecked ? "" : null }), ` ${text}`);

/** Creates the place in which the outcome of an action is told. */
export const outcome = () => having(make("div", ""), { role: "status" });

/**
 * Does something that changes the service, and tells the outcome in `place`: what `work` returns, text or elements, or
 * why it was refused. Returns whether it was done.
 */
export async function attempt(place, doing, work) {
  put(place, note(doing));
  try {
    const told = await work();
    put(place, typeof told === "string" ? make("p", "good", told) : told);
    return true;
  } catch (error) {
    if (error instanceof Stale) return false;
    put(place, !(error instanceof Unreachable) ? problem(error) : make("p", "problem",
      "The service does not answer. Whether this was done is not known: see the state before you repeat it."));
    return false;
  }
}

/** Creates the error of a form that cannot be sent as it is. */
export const mistake = (text) => new Refused(0, text);

/** Creates the error of a field, which is found by its name, and its number where there are several. */
export const ofField = (name, text, index) => Object.assign(mistake(text), { field: name, index });

/**
 * Marks the field of a form that an error names, and no other; of several, the one whose value the error has. `told` is
 * the place where the error is told. A character that it names is selected, and its index returned; otherwise null.
 */
export function mark(whole, told, error) {
  const [, named = ""] = /'(\w+)'/.exec(error?.message) ?? [];
  const all = [...whole.elements].filter((it) => !it.disabled);
  const same = error ? all.filter(({ name }) => name === (error.field ?? named)) : [];
  const has = ({ value }) => value !== "" && error.message.includes(value);
  const wrong = error && (same[error.index] ?? same.find(has) ?? same[0] ?? whole.querySelector("input:invalid:enabled"));
  for (const it of all) {
    having(it, { "aria-invalid": it === wrong || null });
    // What else describes a field, a note, stays.
    const notes = (it.getAttribute("aria-describedby") ?? "").split(" ").filter((id) => id && id !== told.id);
    having(it, { "aria-describedby": [...notes, ...it === wrong ? [told.id] : []].join(" ") || null });
  }
  wrong?.focus();
  const [, character] = /\bat character (\d+)/.exec(error?.message) ?? [];
  if (!wrong?.matches("textarea") || character === undefined) return null;
  // The service counts characters, without the blanks before them; the field counts units of UTF-16.
  const before = wrong.value.length - wrong.value.trimStart().length;
  const letters = [...wrong.value.slice(before)];
  const at = before + letters.slice(0, character - 1).join("").length;
  wrong.setSelectionRange(at, at + (letters[character - 1]?.length ?? 0));
  return at;
}
