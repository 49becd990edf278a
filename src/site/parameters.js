// All values of an event: its parameters, topics and data.

import { make, note } from "./dom.js";
import { parameter } from "./event.js";
import { isObject, named, typed } from "./value.js";

/** Creates a value after the name of its type. */
const kinded = (value) =>
  make("span", "", isObject(value) ? make("small", "kind", Object.keys(value)[0]) : null, typed(value));

/** Creates the list of topics and data with their types. */
export const topicsOf = ({ decoded: { topics, data } }) =>
  named([...topics.map((topic, index) => [`topic ${index + 1}`, topic]), ["data", data]], kinded);

/**
 * Creates the list of an event's parameters as its contract declares them; of one without a declaration, its topics and
 * data.
 */
export function parametersOf(event) {
  const { params, rest } = event.decoded;
  if (params === null) return topicsOf(event);
  const declared = named(Object.entries(params), (value, name) => parameter(event, name, value));
  return rest === undefined ? declared : make("div", "", declared,
    note("What the declaration does not name:"), named(Object.entries(rest)));
}
