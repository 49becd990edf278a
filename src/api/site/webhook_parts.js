// What the pages of webhooks have in common: states of subscriptions and deliveries, filters, and why attempts fail.

import { addressLink, pathOf } from "./address.js";
import { make } from "./dom.js";
import { duration, time, words } from "./format.js";
import { topicText } from "./topics.js";

/** States of a delivery with the class of each. */
export const STATUSES = words({ pending: "note", retrying: "warn", delivered: "good", dead: "bad" });

/** Returns the state of a subscription as a word and a class. That it works is only said if something has arrived. */
export function stateOf({ enabled, failing_since: since }, rate) {
  if (!enabled) return ["disabled", "bad"];
  if (since !== null) return ["failing", "warn"];
  return rate?.arrived > 0 ? ["works", "good"] : ["enabled", "note"];
}

/** Creates a state as a tag. */
export const tag = ([word, kind]) => make("span", `tag ${kind}`, word);

/** Creates the reason why a subscription does not work; null if it does. `shown` creates the element of a time. */
export function whyOf({ enabled, disabled_reason: reason, failing_since: since }, shown = time) {
  if (!enabled) return make("bdi", "", reason === null ? "" : `${reason[0].toUpperCase()}${reason.slice(1)}.`);
  if (since === null) return null;
  const age = (Date.now() - Date.parse(since)) / 1000;
  return make("span", "", "Every attempt has failed since ", shown(since), ` (${duration(Math.max(0, age))}).`);
}

const written = (text) => pathOf(text) === null ? make("bdi", "mono", text) : addressLink(text);

/** Creates a line with the conditions of a subscription apart from its contract. */
export function filtersOf(hook) {
  const topics = [1, 2, 3, 4].map((position) => [`topic ${position}`, hook[`topic${position}`]])
    .filter(([, value]) => value !== null).map(([name, value]) => [name, topicText(value)]);
  const all = hook.address === null ? topics : [...topics, ["address", hook.address]];
  return all.length === 0 ? make("span", "null", "every event")
    : make("span", "summary", all.map(([name, value]) => make("span", "", make("i", "", `${name} `), written(value))));
}

/** Returns the share that arrived of the deliveries that have ended, and how many these are; the share is null for none. */
export function arrivedOf(deliveries) {
  const ended = deliveries.filter(({ status }) => status === "delivered" || status === "dead");
  const arrived = ended.filter(({ status }) => status === "delivered").length;
  return { ended: ended.length, arrived, share: ended.length === 0 ? null : Math.floor(100 * arrived / ended.length) };
}

/** Returns what came of an attempt in few words: the status of the answer, or why there was none. */
export const answerOf = ({ status, error }) => error ?? (status === null ? "no answer" : String(status));

/** Explains an attempt that failed, and what mends it; null for one that succeeded, and where nothing is known. */
export function adviceOf({ status, error }) {
  if (status === null) {
    if (/no answer within/.test(error)) return "The endpoint must answer within 15 seconds: answer first, and work afterwards.";
    if (/refused/.test(error)) return "Nothing listens at that address and port.";
    return /certificate|tls/i.test(error ?? "") ? "The endpoint's certificate is not accepted." : null;
  }
  if (status < 300) return null;
  if (status < 400) return "Redirects are not followed: subscribe the address to which it leads.";
  if (status === 401 || status === 403) return "The endpoint refuses: it needs this subscription's secret, and the body as it arrived, unparsed.";
  if (status === 404 || status === 405) return "The endpoint has nothing for a POST at this path.";
  if (status === 410) return "410 (Gone) says that nothing is wanted any more: unless it answers a test, it disables the subscription.";
  if (status === 413) return "The endpoint does not accept bodies of this size.";
  if (status === 429) return "The endpoint gets more requests than it wants.";
  return status >= 500 ? "The endpoint, or a proxy before it, failed: its log says why." : null;
}

/** Number of the event in the id of a delivery, and that of a test. */
const ID = /-(\d+)(?:-t(\d+))?$/;

/** Returns whether a delivery comes after another in lists, which are in the order of events, the newest first. */
export function isOlder(id, other) {
  const [[event, test], [otherEvent, otherTest]] = [id, other].map((it) => ID.exec(it).slice(1).map((part) => Number(part ?? 0)));
  return event === otherEvent ? test < otherTest : event < otherEvent;
}
