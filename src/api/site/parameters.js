// All values of an event: its parameters, topics and data.

import { make } from "./dom.js";
import { parameter, unitOf } from "./event.js";
import { named, typed } from "./value.js";

/** Creates the value of a parameter, or of an argument of a call that is given as such an event. An amount in a token's unit has the integer that the contract wrote beside it. */
export function parameterOf(event, name, value, token) {
  const made = parameter(event, name, value, token);
  if (name !== "amount" || unitOf(event, token) === null) return made;
  return make("span", "", made, " ", make("small", "note", `(${value})`));
}

/** Creates the list of topics and data with their types. */
export function topicsOf({ decoded: { topics, data } }) {
  const values = topics.map((topic, index) => [`topic ${index + 1}`, topic]);
  return named([...values, ["data", data]], kinded);
}

/** Creates a value after the name of its type. */
function kinded(value) {
  const kind = value !== null && typeof value === "object" ? Object.keys(value)[0] : null;
  return make("span", "", kind ? make("small", "kind", kind) : null, typed(value));
}

/** Creates the list of an event's parameters as its contract declares them; of one without a declaration, its topics and data. */
export function parametersOf(event, token = null) {
  const { params, rest } = event.decoded;
  if (params === null) return topicsOf(event);
  const declared = named(Object.entries(params), (value, name) => parameterOf(event, name, value, token));
  return rest === undefined ? declared : make("div", "", declared,
    make("p", "note", "What the declaration does not name:"), named(Object.entries(rest)));
}
