// Copying: hashes and commands with a button beside them.

import { having, make } from "./dom.js";
import { short } from "./format.js";

/** Milliseconds for which it is said that the text was copied. */
const SAID = 1500;

/** Copies a text. Returns whether that worked. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Only pages over HTTPS, or of the reader's own machine, may do that. Others copy what is selected.
    const area = having(make("textarea", "offscreen"), { "aria-hidden": "true", readonly: "" });
    area.value = text;
    const before = document.activeElement;
    document.body.append(area);
    area.select();
    const worked = document.execCommand("copy");
    area.remove();
    before?.focus({ preventScroll: true });
    return worked;
  }
}

/** Creates a button that copies what `text()` returns. `what` names it: "the hash of ledger 5". */
export function copyButton(text, what) {
  const made = having(make("button", "link copy", "Copy"), { type: "button", "aria-label": `Copy ${what}`, "aria-live": "polite" });
  const say = (word, label) => {
    made.textContent = word;
    made.setAttribute("aria-label", label);
  };
  made.addEventListener("click", async () => {
    const word = await copy(text()) ? "Copied" : "Not copied";
    say(word, word);
    setTimeout(() => say("Copy", `Copy ${what}`), SAID);
  });
  return made;
}

/** Creates a shortened text, such as a hash, with a button that copies the whole. */
export const copyable = (text, what, shown = short(text, 8)) => make("span", "copyable", shown, " ", copyButton(() => text, what));

/** Creates a command line with a button that copies it. `what` names it. `set(text)` of the element replaces the command. */
export function command(text, what) {
  const line = make("code", "", text);
  const made = make("div", "command", line, copyButton(() => line.textContent, what));
  made.set = (other) => { line.textContent = other; };
  return made;
}
