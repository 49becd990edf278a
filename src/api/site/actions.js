// Actions that change something: what a form gives for them, and telling their outcome.

import { Refused, Stale, Unreachable } from "./api.js";
import { having, make, put } from "./dom.js";
import { problem } from "./problem.js";

/** Returns the words of a text that has commas, spaces or line ends between them. */
export const wordsOf = (text) => text.split(/[\s,;]+/).filter(Boolean);

/** Creates the place in which the outcome of an action is told. */
export const outcome = () => having(make("div", ""), { role: "status" });

/**
 * Does something that changes the service, and tells the outcome in `place`: what `work` returns, or why it was refused.
 * Returns whether it was done.
 */
export async function attempt(place, doing, work) {
  put(place, make("p", "note", doing));
  try {
    put(place, ...[await work()].flat());
    return true;
  } catch (error) {
    if (error instanceof Stale) return false;
    put(place, error instanceof Unreachable
      ? make("p", "problem", "The service does not answer. Whether this was done is not known: see the state before you repeat it.")
      : problem(error));
    return false;
  }
}

/** Creates the error of a form that cannot be sent as it is. */
export const mistake = (text) => new Refused(0, text);
