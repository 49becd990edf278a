// Your webhooks, whether they work, and subscribing to further events.

import { ask, session } from "../api.js";
import { link } from "../address.js";
import { make, note, put, renew } from "../dom.js";
import { clock, count, number, short } from "../format.js";
import { InSight } from "../in_sight.js";
import { table, tag } from "../table.js";
import { subscriptionForm } from "../webhook/form.js";
import { arrivedOf, filtersOf, stateOf, subjectOf, whyOf } from "../webhook/parts.js";

/** How often the list is read again, in milliseconds. */
const EVERY = 3000;
/** Deliveries of which the share that arrived is computed. */
const RATED = 100;

const HEADS = ["State", "Endpoint", ["Arrived", "number"], ["Waiting", "number"], "Contract", "Told of"];

function row(hook, rate) {
  const why = whyOf(hook, clock);
  const filters = filtersOf(hook);
  const kind = rate === undefined || rate.ended === 0 ? "null" : rate.arrived < rate.ended ? "bad" : "";
  return [
    tag(stateOf(hook, rate)),
    [make("div", "", link(`webhooks/${hook.id}`, short(hook.webhook_endpoint, 24)),
      hook.format === "service" ? null : make("small", "note", ` ${hook.format}`), why && make("div", "note", why),
      hook.unjudged && make("div", "warn", `${count(hook.unjudged.events, "event")} not judged`),
      hook.where_misfit && make("div", "warn", "the condition does not fit")),
      "wide"],
    [rate?.text ?? "…", `number ${kind}`], [number(hook.deliveries_waiting), "number"],
    subjectOf(hook, 4), filters.matches(".null") ? filters : [filters, "wide"],
  ];
}

/** Describes all subscriptions in one sentence. */
function overview(list) {
  const states = Map.groupBy(list, (hook) => stateOf(hook)[0]);
  const parts = [...states].map(([word, hooks]) => `${hooks.length} ${word}`);
  const waiting = list.reduce((sum, hook) => sum + hook.deliveries_waiting, 0);
  return `${count(list.length, "webhook")}: ${parts.join(", ")}. Deliveries that wait: ${number(waiting)}.`;
}

export function open(view) {
  view.heading("Webhooks");
  const { signal } = view;
  const rates = new InSight((id) => ask(`rest/webhooks/${id}/deliveries?limit=${RATED}`, { signal }).then(arrivedOf));
  const draw = (body, list) => renew(body, ...list.length === 0
    ? [note("You have no webhooks yet: the form below subscribes an endpoint to events.")]
    : [make("p", "", overview(list)),
      table(HEADS, list.map((hook) => row(hook, rates.of(hook.id))), "Your webhooks"),
      note(`Arrived: which share of the newest ${RATED} deliveries, of those that have ended.`)]);
  const part = view.part("Your subscriptions", async (body) => {
    const list = (await ask("rest/webhooks/list", { signal })).sort((one, other) => other.id - one.id);
    draw(body, list);
    await rates.refresh(body, list.map(({ id }) => id));
    draw(body, list);
  }, { every: EVERY });
  if (session.token === "") return;
  view.part("Subscribe an endpoint", (body) => put(body,
    note("What happens in new ledgers is sent as a POST, at least once: to a service signed, to ",
      "a chat as a message. Older ledgers can be replayed."),
    subscriptionForm(view.query, part.reload)));
}
