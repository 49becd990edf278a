// Selecting events of a contract: by name, a value for each topic, an address and ledgers. All of that is in the
// address of the page, so that it can be shared.

import { button, choice, field, form, having, input, make, put, submit } from "./dom.js";

/** Topics by which the service selects. */
const TOPICS = ["topic1", "topic2", "topic3", "topic4"];
/** Value of the choice in which any name can be written. */
const OTHER = "=";

const NUMBERS = ["u32", "i32", "u64", "i64", "u128", "i128", "u256", "i256", "timepoint", "duration"];

/** Returns a declared name in snake case, as events have it. */
const snake = (name) =>
  name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").replace(/([A-Z])([A-Z][a-z])/g, "$1_$2").toLowerCase();

/** Returns the declaration of this name, which may be written as the code has it or as events have it. */
const named = (declared, event) => declared.find(({ name, written }) => name === event || written === event);

/**
 * Returns the events that an interface declares, each with its leading words and the topics behind them by which can be
 * selected. Of several declarations with one name, the one with the most topics counts.
 */
export function declarations(info) {
  const found = new Map();
  for (const { name: written, prefix, params } of info?.events ?? []) {
    const name = snake(written);
    const topics = params.filter((it) => it.in === "topic").slice(0, Math.max(0, TOPICS.length - prefix.length))
      .map((it, index) => ({ topic: TOPICS[prefix.length + index], name: it.name, type: it.type }));
    if (!(found.get(name)?.topics.length >= topics.length)) found.set(name, { name, written, prefix, topics });
  }
  return [...found.values()];
}

/** Returns a value as the service takes it. For a topic whose type is declared, the type need not be written. */
function valueOf(text, type) {
  const kind = type.toLowerCase();
  if (text === "" || text.startsWith(`${kind}:`)) return text;
  if (NUMBERS.includes(kind) && /^-?\d+$/.test(text)) return `${kind}:${text}`;
  if (kind === "bool" && /^(true|false)$/.test(text)) return `bool:${text}`;
  // The base64 of a text (SCV_STRING) begins with AAAADg.
  if (kind === "string" && !text.startsWith("AAAADg")) return `string:${text}`;
  if (kind.startsWith("bytes") && /^(0x)?([0-9a-f]{2})+$/i.test(text)) return `bytes:${text.replace(/^0x/i, "")}`;
  return text;
}

/** Returns the first topic of events with this name, which may also be written as a value. */
const topicOf = (name) => /^[A-Za-z0-9_]{1,32}$/.test(name) && !name.startsWith("AAAA") ? `symbol:${name}` : name;

/** Returns the parameters of the service for the parameters of the page's address. */
export function conditions(query, declared) {
  const given = [...TOPICS, "address", "from", "to"].filter((name) => query.get(name));
  const found = Object.fromEntries(given.map((name) => [name, query.get(name)]));
  const event = query.get("event");
  if (!event) return found;
  const words = named(declared, event)?.prefix.map((word) => `symbol:${word}`) ?? [topicOf(event)];
  TOPICS.slice(0, words.length).forEach((topic, index) => { found[topic] = words[index]; });
  return found;
}

const UNDECLARED = TOPICS.slice(1).map((topic, index) => ({ topic, name: `Topic ${index + 2}`, type: "" }));

function example(type) {
  const kind = type.toLowerCase();
  if (["address", "muxedaddress", "muxed_address"].includes(kind)) return "G… or C…";
  return kind === "symbol" || kind === "string" ? "text" : NUMBERS.includes(kind) ? "5" : "G…, word, u64:5, base64";
}

/** Creates a field for a text, which the form has by this name. */
export const textField = (label, name, placeholder, value, kind) =>
  field(label, input({ name, placeholder, value: value ?? "" }), kind);

/** Creates the field of a ledger's number, which the address of the page has by this name. */
export const ledgerField = (label, name, query) => field(label,
  input({ name, inputmode: "numeric", pattern: "[0-9]*", title: "a number", size: 10, value: query.get(name) ?? "" }));

/** Returns what is written in a form by the names of its fields. */
export const written = (element) =>
  Object.fromEntries([...new FormData(element)].map(([name, value]) => [name, value.trim()]));

/** Clears all fields of a form. */
export function clear(element) {
  for (const it of element.elements) it.value = "";
}

function choiceOf(query, declared) {
  const event = query.get("event") ?? "";
  const isOther = event !== "" || TOPICS.some((name) => query.has(name));
  const options = declared.map(({ name }) => [name, name.slice(0, 64)]);
  return having(choice([["", "any"], ...options, [OTHER, "another name …"]],
    named(declared, event)?.name ?? (isOther ? OTHER : "")), { name: "event" });
}

/**
 * Creates the form of the filter. `show` gets the new parameters of the page's address, where null removes one.
 * `beside` stands beside its buttons.
 */
export function filterForm({ query, declared, show, beside }) {
  const names = choiceOf(query, declared);
  const topics = () => names.value === OTHER ? UNDECLARED : named(declared, names.value)?.topics ?? [];
  const place = make("div", "row");
  const other = textField("Name", "other", "transfer", names.value === OTHER ? query.get("event") : "");
  const draw = (values) => {
    other.hidden = names.value !== OTHER;
    put(place, topics().map(({ topic, name, type }) => {
      const label = type ? `${name.slice(0, 64)} (${type.slice(0, 64)})` : name;
      return textField(label, topic, example(type), values.get(topic), "grow");
    }));
    place.hidden = topics().length === 0;
  };
  const send = () => {
    const { other: name, ...values } = written(element);
    for (const { topic, type } of topics()) values[topic] = valueOf(values[topic], type);
    if (values.event === OTHER) values.event = name;
    return show({ ...Object.fromEntries(TOPICS.map((topic) => [topic, null])), ...values });
  };
  const empty = () => {
    clear(element);
    draw(new URLSearchParams());
    return send();
  };
  const element = form("contract-filter", send,
    make("div", "row", field("Event", names), other,
      textField("Address in any topic", "address", "G… or C…", query.get("address"), "grow"),
      ledgerField("From ledger", "from", query), ledgerField("To ledger", "to", query)),
    place,
    make("div", "row", submit("Show"), button("Clear", "quiet", empty), beside));
  names.addEventListener("change", () => {
    draw(new URLSearchParams());
    // What is exported is what is shown. Another name has to be written first.
    if (names.value !== OTHER) send();
  });
  draw(query);
  return element;
}
