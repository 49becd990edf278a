// Copying: hashes and commands with a button beside them.

import { code, having, make, put } from "./dom.js";
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
  const made = having(make("button", "link copy"), { type: "button", "aria-live": "polite" });
  const say = (word, label = word) => having(put(made, word), { "aria-label": label });
  made.addEventListener("click", async () => {
    say(await copy(text()) ? "Copied" : "Not copied");
    setTimeout(say, SAID, "Copy", `Copy ${what}`);
  });
  return say("Copy", `Copy ${what}`);
}

/** Creates a shortened text, such as a hash, with a button that copies the whole. */
export const copyable = (text, what, shown = short(text, 8)) =>
  make("span", "copyable", shown, " ", copyButton(() => text, what));

/** Creates a command line with a button that copies it. `what` names it. Its method `set(text)` replaces the text. */
export function command(text, what) {
  const line = code(text);
  const made = make("div", "command", line, copyButton(() => line.textContent, what));
  made.set = (other) => put(line, ...code(other).childNodes);
  return made;
}
