// Actions that change something: what a form gives for them, and telling their outcome.

import { Refused, Stale, Unreachable } from "./api.js";
import { having, input, make, put } from "./dom.js";
import { problem } from "./problem.js";

/** Returns the words of a text that has commas, spaces or line ends between them. */
export const wordsOf = (text) => text.split(/[\s,;]+/).filter(Boolean);

/** Creates the field in which addresses of contracts are written. */
export const contractsArea = (attributes) => having(make("textarea"),
  { rows: 2, spellcheck: "false", autocomplete: "off", placeholder: "C…, C…", ...attributes });

/** Creates the field in which the number of a ledger is written. */
export const ledgerInput = (attributes) => input({ type: "number", min: 0, ...attributes });

/** Creates the place in which the outcome of an action is told. */
export const outcome = () => having(make("div", ""), { role: "status" });

/**
 * Does something that changes the service, and tells the outcome in `place`: what `work` returns, text or elements, or
 * why it was refused. Returns whether it was done.
 */
export async function attempt(place, doing, work) {
  put(place, make("p", "note", doing));
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
