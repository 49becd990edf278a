// Subscribing an endpoint to events, and the secret, which is shown once.

import { wordsOf } from "./actions.js";
import { Stale, ask } from "./api.js";
import { link } from "./address.js";
import { copyButton } from "./copy.js";
import { field, form, having, input, make, paragraph, put, submit } from "./dom.js";
import { problem } from "./problem.js";

const TOPICS = ["topic1", "topic2", "topic3", "topic4"];

const RECEIVER = `import { createHmac, timingSafeEqual } from "node:crypto";

// body: the bytes as they arrived, not parsed and written again
function isGenuine(secret, headers, body) {
  const expected = createHmac("sha256", secret).update(body).digest();
  const given = Buffer.from(headers["x-service-signature"] ?? "", "hex");
  return given.length === expected.length && timingSafeEqual(given, expected);
}`;

/** Explains how a receiver checks that a delivery is genuine. */
export function verification() {
  const item = (...parts) => make("li", "", ...parts);
  const code = (text) => make("code", "", text);
  return make("details", "webhooks-verify", make("summary", "", "How a receiver checks deliveries"),
    make("ul", "",
      item(code("X-Service-Signature"), ": the HMAC-SHA256 of the exact body under the secret, as it is shown, in lower-case hexadecimal."),
      item(code("webhook-id"), ", ", code("webhook-timestamp"), ", ", code("webhook-signature"),
        ": the same after Standard Webhooks, whose libraries check it; this signature covers the time, too."),
      item(code("X-Service-Delivery"), " stays the same when a delivery is sent again: keep it, and skip what you have had.")),
    make("p", "note", "Answer with a status from 200 to 299 within 15 seconds. Otherwise the delivery is sent again after 5 s, 30 s, 2 min, ",
      "10 min, 1 h, 3 h, 6 h, 12 h, 24 h and 24 h. In Node:"),
    having(make("pre", "", RECEIVER), { tabindex: 0, role: "region", "aria-label": "Example in Node" }), copyButton(() => RECEIVER, "the example"),
    paragraph("note", "`orrery webhooks listen` is a receiver for trying it out: it checks deliveries and prints them."));
}

function made({ ids, secret }) {
  const links = ids.flatMap((id, index) => [index === 0 ? "" : ", ", link(`webhooks/${id}`, `webhook ${id}`)]);
  return having(make("div", "webhooks-made",
    make("h3", "", ids.length === 1 ? "It is subscribed" : `${ids.length} webhooks are subscribed`),
    make("p", "", ...links, ". Send a test from there."),
    make("p", "", "The secret is shown now, and never again: ", make("code", "", secret), " ", copyButton(() => secret, "the secret"))), { tabindex: -1 });
}

/** Creates the form. `done` is called when something was subscribed. `given` are values for fields. */
export function subscriptionForm(given, done) {
  const entry = (name, attributes = {}) => input({ value: given.get(name) ?? "", name, ...attributes });
  const endpoint = entry("webhook_endpoint", { type: "url", inputmode: "url", maxlength: 2048, placeholder: "https://…" });
  const contracts = having(make("textarea"), { name: "contract_ids", rows: 2, spellcheck: "false", placeholder: "C…" });
  contracts.value = given.get("contract") ?? "";
  const address = entry("address", { placeholder: "G… or C…" });
  const topics = TOPICS.map((name, index) => entry(name, { placeholder: index === 0 ? "transfer" : "G…, u64:5, string:a b" }));
  const secret = entry("webhook_secret", { type: "password", maxlength: 512, autocomplete: "new-password" });
  const backfill = input({ type: "checkbox", name: "include_backfill", spellcheck: null });
  const said = make("div");
  const outcome = having(make("div"), { role: "status" });
  const checks = verification();

  const refuse = (shown, name) => {
    put(said, shown);
    const named = name && whole.elements.namedItem(name);
    if (!named) return;
    having(named, { "aria-invalid": true, "aria-describedby": "webhooks-refusal" });
    named.focus();
  };
  const send = async () => {
    put(said);
    for (const it of whole.elements) having(it, { "aria-invalid": null, "aria-describedby": null });
    const list = wordsOf(contracts.value);
    if (endpoint.value.trim() === "") return refuse(make("p", "problem", "Give the endpoint: the address to which events are sent."), endpoint.name);
    if (list.length === 0 && address.value.trim() === "") {
      return refuse(make("p", "problem", "Name a contract or more, or an address whose events are wanted."), contracts.name);
    }
    const body = { webhook_endpoint: endpoint.value.trim(), include_backfill: backfill.checked };
    if (list.length > 0) body.contract_ids = list;
    for (const it of [address, ...topics]) if (it.value.trim() !== "") body[it.name] = it.value.trim();
    if (secret.value !== "") body.webhook_secret = secret.value;
    try {
      // Not ended by leaving the page, because the secret would be lost.
      const answer = made(await ask("rest/webhooks/new", { body }));
      whole.reset();
      put(outcome, answer);
      checks.open = true;
      answer.focus();
      done();
    } catch (error) {
      if (!(error instanceof Stale)) refuse(problem(error), /'(\w+)'/.exec(error.message)?.[1]);
    }
  };
  const whole = form("webhooks-form", send,
    make("div", "row", field("Endpoint, a URL", endpoint, "grow")),
    make("div", "row", field("Contracts, with spaces between them; a webhook for each", contracts, "grow"),
      field("Address in any topic; without contracts, of all contracts", address, "grow")),
    make("div", "row", topics.map((it, index) => field(`Topic ${index + 1}, if it matters`, it, "grow"))),
    make("div", "row", field("Secret; one is made if this is empty", secret, "grow"),
      make("label", "check", backfill, " Also older ledgers when they are backfilled"), submit("Subscribe")),
    having(said, { id: "webhooks-refusal", role: "alert" }));
  whole.noValidate = true;
  return make("div", "", whole, outcome, checks);
}
