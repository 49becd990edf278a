// Selecting events of a contract: by name, a value for each topic, an address and ledgers. All of that is in the address
// of the page, so that it can be shared.

import { button, choice, field, form, input, make, put, submit } from "./dom.js";

/** Topics by which the service selects. */
const MOST_TOPICS = 4;
/** Value of the choice in which any name can be written. */
const OTHER = "=";

const NUMBERS = ["u32", "i32", "u64", "i64", "u128", "i128", "u256", "i256", "timepoint", "duration"];

/** Returns a declared name in snake case, as events have it. */
const snake = (name) => name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").replace(/([A-Z])([A-Z][a-z])/g, "$1_$2").toLowerCase();

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
    const topics = params.filter((it) => it.in === "topic")
      .map((it, index) => ({ position: prefix.length + index + 1, name: it.name, type: it.type }))
      .filter(({ position }) => position <= MOST_TOPICS);
    if ((found.get(name)?.topics.length ?? -1) < topics.length) found.set(name, { name, written, prefix, topics });
  }
  return [...found.values()];
}

/** Returns a value as the service takes it. For a topic whose type is declared, the type need not be written. */
function valueOf(text, type = "") {
  const kind = type.toLowerCase();
  if (text === "" || text.startsWith(`${kind}:`)) return text;
  if (NUMBERS.includes(kind) && /^-?\d+$/.test(text)) return `${kind}:${text}`;
  if (kind === "bool" && /^(true|false)$/.test(text)) return `bool:${text}`;
  // The base64 of a text (SCV_STRING) begins with AAAADg, that of bytes with AAAADQ.
  if (kind === "string" && !text.startsWith("AAAADg")) return `string:${text}`;
  if (kind.startsWith("bytes") && /^(0x)?([0-9a-f]{2})+$/i.test(text)) return `bytes:${text.replace(/^0x/i, "")}`;
  return text;
}

/** Returns the first topic of events with this name, which may also be written as a value. */
const topicOf = (name) => /^[A-Za-z0-9_]{1,32}$/.test(name) && !name.startsWith("AAAA") ? `symbol:${name}` : name;

/** Returns the parameters of the service for the parameters of the page's address. */
export function conditions(query, declared) {
  const found = {};
  for (const name of ["topic1", "topic2", "topic3", "topic4", "address", "from", "to"]) {
    if (query.get(name)) found[name] = query.get(name);
  }
  const event = query.get("event");
  if (!event) return found;
  const words = named(declared, event)?.prefix.map((word) => `symbol:${word}`) ?? [topicOf(event)];
  words.slice(0, MOST_TOPICS).forEach((word, index) => { found[`topic${index + 1}`] = word; });
  return found;
}

const UNDECLARED = [2, 3, 4].map((position) => ({ position, name: `Topic ${position}`, type: "" }));

function example(type) {
  const kind = type.toLowerCase();
  if (kind === "address" || kind === "muxedaddress" || kind === "muxed_address") return "G… or C…";
  return kind === "symbol" || kind === "string" ? "text" : NUMBERS.includes(kind) ? "5" : "G…, word, u64:5, base64";
}

/**
 * Creates the form of the filter. `show` gets the new parameters of the page's address, where null removes one.
 * `update` shows other declarations, unless somebody is writing in the form.
 */
export function filterForm({ query, declared, show, beside = [] }) {
  const topics = make("div", "row");
  const other = input({ placeholder: "transfer", value: "" });
  const otherField = field("Name", other);
  const address = input({ placeholder: "G… or C…", value: query.get("address") ?? "" });
  const [from, to] = ["from", "to"].map((name) =>
    input({ inputmode: "numeric", pattern: "[0-9]*", title: "a number", size: 10, value: query.get(name) ?? "" }));
  let names = choice([["", "any"]]);
  let fields = [];
  const nameField = make("label", "", make("span", "", "Event"), names);

  const drawTopics = (isKept) => {
    const declaration = named(declared, names.value);
    otherField.hidden = names.value !== OTHER;
    const wanted = names.value === OTHER ? UNDECLARED : declaration?.topics ?? [];
    fields = wanted.map(({ position, name, type }) => {
      const value = isKept ? query.get(`topic${position}`) ?? "" : "";
      const label = type ? `${name.slice(0, 64)} (${type.slice(0, 64)})` : name;
      return { position, type, label, entry: input({ placeholder: example(type), value }) };
    });
    put(topics, fields.map(({ label, entry }) => field(label, entry, "grow")));
    topics.hidden = fields.length === 0;
  };
  const drawNames = () => {
    const event = query.get("event") ?? "";
    const declaration = named(declared, event);
    const hasTopics = [1, 2, 3, 4].some((position) => query.has(`topic${position}`));
    const chosen = declaration ? declaration.name : event !== "" || hasTopics ? OTHER : "";
    names = choice([["", "any"], ...declared.map(({ name }) => [name, name.slice(0, 64)]), [OTHER, "another name …"]], chosen);
    other.value = declaration ? "" : event;
    names.addEventListener("change", () => {
      drawTopics(false);
      // What is exported is what is shown. Another name has to be written first.
      if (names.value !== OTHER) show(read());
    });
    put(nameField, make("span", "", "Event"), names);
    drawTopics(true);
  };
  const read = () => {
    const values = { topic1: null, topic2: null, topic3: null, topic4: null };
    for (const { position, type, entry } of fields) values[`topic${position}`] = valueOf(entry.value.trim(), type);
    const event = names.value === OTHER ? other.value.trim() : names.value;
    return { event, ...values, address: address.value.trim(), from: from.value.trim(), to: to.value.trim() };
  };
  const clear = () => {
    for (const entry of [address, from, to]) entry.value = "";
    names.value = "";
    drawTopics(false);
    return show(read());
  };
  const element = form("contract-filter", () => show(read()),
    make("div", "row", nameField, otherField, field("Address in any topic", address, "grow"), field("From ledger", from), field("To ledger", to)),
    topics, make("div", "row", submit("Show"), button("Clear", "quiet", clear), ...beside));
  drawNames();
  return {
    element,
    update(events) {
      declared = events;
      if (!element.contains(document.activeElement)) drawNames();
    },
  };
}
