// Subscribing an endpoint, and what that would have sent.

import { attempt, ledgerInput, mark, ofField, outcome } from "../actions.js";
import { ask } from "../api.js";
import { link } from "../address.js";
import { field, form, having, make, put, submit } from "../dom.js";
import { listed } from "../program/parts.js";
import { Fields, said } from "./fields.js";
import { preview } from "./preview.js";
import { secretOf, verification } from "./receiving.js";

const made = ({ ids, secret }) => secretOf(secret,
  ids.length === 1 ? "It is subscribed" : `${ids.length} webhooks are subscribed`,
  make("p", "", ...listed(ids.map((id) => link(`webhooks/${id}`, `webhook ${id}`))), ". Send a test from there."));

/** Returns what the form says in a request, if that can be sent. A preview needs no endpoint. */
function wanted(whole, isPreview) {
  const body = said(whole);
  if (!/^[a-z][a-z0-9+.-]*:/i.test(body.webhook_endpoint ?? (isPreview ? "x:" : ""))) {
    throw ofField("webhook_endpoint", "the endpoint has to be a URL, which begins with https:// or http://");
  }
  if (!body.contract_ids && !body.project && !body.address) {
    throw whole.elements.namedItem("project").disabled ? ofField("contract_ids", "name a contract or more, or an address")
      : ofField("project", "give the name of the project");
  }
  if (body.on === "ttl" && !body.entries) throw ofField("entries", "choose which entries: one kind or more");
  return body;
}

/** Creates the form that tries a subscription. A form of its own, because Enter in its field must not subscribe. */
function trying(told, attempted) {
  const last = ledgerInput({ min: 1, max: 100000, value: 1000 });
  const look = () => attempted(told, "Looking through the newest ledgers …", async (body) =>
    preview(await ask("rest/webhooks/try", { body: { ...body, last: Number(last.value) || undefined } }), body.format),
  true);
  return make("div", "", make("h3", "", "Try it before: what it would have sent"),
    form("row", look, field("Newest ledgers", last), submit("Preview", "quiet")), told);
}

/** Creates the form. `done` is called when something was subscribed. `given` are values for fields. */
export function subscriptionForm(given, done) {
  const [told, tried] = ["webhooks-refusal", "webhooks-tried"].map((id) => having(outcome(), { id }));
  const [checks, fields] = [verification(), new Fields(given)];
  // The secret of a subscription is shown once: it stays until the next one is made.
  const result = outcome();
  /** Does something with what the fields say, and marks the field that is refused. */
  const attempted = (place, doing, work, isPreview) => {
    const marked = (error) => fields.where.draw(mark(whole, place, error) ?? -1);
    marked(null);
    for (const it of [told, tried]) put(it);
    return attempt(place, doing, async () => {
      try {
        return await work(wanted(whole, isPreview));
      } catch (error) {
        marked(error);
        throw error;
      }
    });
  };
  const send = async () => {
    const isDone = await attempted(told, "Subscribing …", async (body) => {
      // Not ended by leaving the page, because the secret would be lost.
      put(result, made(await ask("rest/webhooks/new", { body })));
      return "It is done.";
    });
    if (!isDone) return;
    whole.reset();
    fields.draw();
    fields.where.draw();
    checks.open = true;
    put(told);
    result.firstChild.focus();
    done();
  };
  const whole = form("webhooks-form", send, fields.element, make("div", "row", submit("Subscribe")));
  whole.noValidate = true;
  return make("div", "", whole, told, result, trying(tried, attempted), checks);
}
