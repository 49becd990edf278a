// What the pages of webhooks have in common: states of subscriptions and deliveries, filters, and why attempts fail.

import { addressLink, ledgerLink, pathOf } from "../address.js";
import { make } from "../dom.js";
import { count, duration, time, words } from "../format.js";
import { topicText } from "../topics.js";

/** States of a delivery with the class of each. */
export const STATUSES = words({ pending: "note", retrying: "warn", delivered: "good", dead: "bad" });

/** Returns the state of a subscription as a word and a class. That it works is only said if something has arrived. */
export function stateOf({ enabled, failing_since: since }, rate) {
  if (!enabled) return ["disabled", "bad"];
  if (since !== null) return ["failing", "warn"];
  return rate?.arrived > 0 ? ["works", "good"] : ["enabled", "note"];
}

/** Creates the reason why a subscription does not work; null if it does. `shown` creates the element of a time. */
export function whyOf({ enabled, disabled_reason: reason, failing_since: since }, shown = time) {
  if (!enabled) return make("bdi", "", reason === null ? "" : `${reason[0].toUpperCase()}${reason.slice(1)}.`);
  if (since === null) return null;
  const age = (Date.now() - Date.parse(since)) / 1000;
  return make("span", "", "Every attempt has failed since ", shown(since), ` (${duration(Math.max(0, age))}).`);
}

/** Creates sentences on events that a condition could not be asked of, or does not fit. */
export const unmetOf = ({ unjudged, where_misfit: misfit }) => [
  unjudged && make("p", "warning", `${count(unjudged.events, "event")} from ledger `, ledgerLink(unjudged.first_ledger),
    " on could not be judged, because it is not known what their contracts declare. A replay asks again."),
  misfit && make("p", "warning", "From ledger ", ledgerLink(misfit.first_ledger), " on, the condition does not fit what "
    + "the contract declares: ", make("bdi", "", misfit.reason), "."),
];

/** Whether the endpoint of a format is a chat's: a secret, of which host and last characters are shown. */
export const isChat = ({ format }) => ["slack", "discord", "telegram"].includes(format);

/** Creates what a subscription is of: a contract, a project, or all contracts. */
export const subjectOf = ({ project, contract_id: contract }, kept) =>
  project ? make("span", "", "project ", make("i", "", project)) : contract === "" ? "all" : addressLink(contract, kept);

const written = (text) => pathOf(text) === null ? make("bdi", "mono", text) : addressLink(text);

const FILTERS = ["topic1", "topic2", "topic3", "topic4", "address", "within", "entries", "key_name", "key", "durability",
  "functions", "where"];

/** Returns the text of a filter. */
function filterText(name, value) {
  if (Array.isArray(value)) return value.join(", ");
  return /^(topic.|key)$/.test(name) ? topicText(value) : name === "within" ? count(value, "ledger") : value;
}

/** Creates a line with what a subscription is told of, and its conditions apart from its contract. */
export function filtersOf(hook) {
  const all = FILTERS.filter((name) => (hook[name] ?? null) !== null)
    .map((name) => [name.replace(/^topic/, "topic ").replace("_", " "), filterText(name, hook[name])]);
  if (hook.on !== "event") all.unshift(["on", hook.on]);
  return all.length === 0 ? make("span", "null", "every event")
    : make("span", "summary", all.map(([name, value]) => make("span", "", make("i", "", `${name} `), written(value))));
}

/** Describes which share of the deliveries that have ended arrived, and counts both. */
export function arrivedOf(deliveries) {
  const of = (wanted) => deliveries.filter(({ status }) => status === wanted).length;
  const [arrived, dead] = [of("delivered"), of("dead")];
  const ended = arrived + dead;
  return { ended, arrived, text: ended === 0 ? "none yet" : `${Math.floor(100 * arrived / ended)} % of ${ended}` };
}

/** Whether an attempt succeeded. */
export const isGood = ({ status }) => status !== null && status < 300;

/** Returns what came of an attempt in few words: the status of the answer, or why there was none. */
export const answerOf = ({ status, error }) => error ?? (status === null ? "no answer" : String(status));

const REFUSES = "The endpoint refuses: it needs this subscription's secret, and the body as it arrived, unparsed.";
const NOTHING = "The endpoint has nothing for a POST at this path.";

/** What a status of an answer means, and what mends it. */
const ADVICE = {
  401: REFUSES, 403: REFUSES, 404: NOTHING, 405: NOTHING,
  410: "410 (Gone) says that nothing is wanted any more: unless it answers a test, it disables the subscription.",
  413: "The endpoint does not accept bodies of this size.",
  429: "The endpoint gets more requests than it wants.",
};

/** Explains an attempt that failed, and what mends it; null for one that succeeded, and where nothing is known. */
export function adviceOf({ status, error }) {
  if (status === null) {
    if (/no answer within/.test(error)) return "It must answer within 15 seconds: answer first, and work afterwards.";
    if (/refused/.test(error)) return "Nothing listens at that address and port.";
    return /certificate|tls/i.test(error) ? "The endpoint's certificate is not accepted." : null;
  }
  if (status >= 300 && status < 400) return "Redirects are not followed: subscribe the address to which it leads.";
  return ADVICE[status] ?? (status >= 500 ? "The endpoint, or a proxy before it, failed: its log says why." : null);
}
