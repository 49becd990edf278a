// Subscribing an endpoint to events, and the secret, which is shown once.

import { attempt, contractsArea, mistake, outcome, wordsOf } from "../actions.js";
import { ask } from "../api.js";
import { link } from "../address.js";
import { copyButton } from "../copy.js";
import { field, form, having, input, make, paragraph, prose, put, submit } from "../dom.js";
import { listed } from "../program/parts.js";

const RECEIVER = `import { createHmac, timingSafeEqual } from "node:crypto";

// body: the bytes as they arrived, not parsed and written again
function isGenuine(secret, headers, body) {
  const expected = createHmac("sha256", secret).update(body).digest();
  const given = Buffer.from(headers["x-service-signature"] ?? "", "hex");
  return given.length === expected.length && timingSafeEqual(given, expected);
}`;

const HEADERS = [
  "`X-Service-Signature`: the HMAC-SHA256 of the exact body under the secret as it is shown, in lower-case hex.",
  "`webhook-id`, `webhook-timestamp`, `webhook-signature`: the same after Standard Webhooks, whose libraries check it; "
    + "this signature covers the time, too.",
  "`X-Service-Delivery` stays the same when a delivery is sent again: keep it, and skip what you have had.",
];

/** Explains how a receiver checks that a delivery is genuine. */
export const verification = () => make("details", "webhooks-verify",
  make("summary", "", "How a receiver checks deliveries"),
  make("ul", "", HEADERS.map((text) => make("li", "", prose(text)))),
  make("p", "note", "Answer with a status from 200 to 299 within 15 seconds. Otherwise it is sent again after ",
    "5 s, 30 s, 2 min, 10 min, 1 h, 3 h, 6 h, 12 h, 24 h and 24 h. In Node:"),
  having(make("pre", "", RECEIVER), { tabindex: 0, role: "region", "aria-label": "Example in Node" }),
  copyButton(() => RECEIVER, "the example"),
  paragraph("note", "`orrery webhooks listen` is a receiver for trying it out: it checks deliveries and prints them."));

/** Creates the place of a secret that was made, which has the focus when it is shown. */
export const secretOf = (secret, title, ...told) => having(make("div", "webhooks-made", make("h3", "", title), ...told,
  make("p", "", "The secret is shown now, and never again: ", make("code", "", secret), " ",
    copyButton(() => secret, "the secret"))), { tabindex: -1 });

const made = ({ ids, secret }) => secretOf(secret,
  ids.length === 1 ? "It is subscribed" : `${ids.length} webhooks are subscribed`,
  make("p", "", ...listed(ids.map((id) => link(`webhooks/${id}`, `webhook ${id}`))), ". Send a test from there."));

/** Creates the error of a field, which is found by its name. */
const ofField = (name, text) => Object.assign(mistake(text), { field: name });

/** Returns what the form says in a request: its fields have the names of the members. */
function said(whole) {
  const given = new FormData(whole);
  const body = { include_backfill: given.has("include_backfill") };
  for (const [name, value] of given) {
    const text = name === "webhook_secret" ? value : value.trim();
    if (text !== "" && name !== "include_backfill") body[name] = name === "contract_ids" ? wordsOf(text) : text;
  }
  const { webhook_endpoint: endpoint } = body;
  if (!endpoint) throw ofField("webhook_endpoint", "give the endpoint: the address to which events are sent");
  if (!/^[a-z][a-z0-9+.-]*:/i.test(endpoint)) {
    throw ofField("webhook_endpoint", "the endpoint has to be a URL, which begins with https:// or http://");
  }
  if (!body.contract_ids && !body.address) throw ofField("contract_ids", "name a contract or more, or an address");
  return body;
}

/** Marks the field of a form that an error names, and no other. */
function mark(whole, told, error) {
  const [, named = ""] = /'(\w+)'/.exec(error?.message) ?? [];
  const wrong = error && (whole.elements.namedItem(error.field ?? named) ?? whole.querySelector("input:invalid"));
  for (const it of whole.elements) {
    having(it, { "aria-invalid": it === wrong || null, "aria-describedby": it === wrong ? told.id : null });
  }
  wrong?.focus();
}

/** Creates the fields. `given` are values for some of them. */
function fields(given) {
  const entry = (label, name, attributes) =>
    field(label, input({ name, value: given.get(name) ?? "", ...attributes }), "grow");
  const contracts = contractsArea({ name: "contract_ids" });
  contracts.defaultValue = given.get("contract") ?? "";
  const topics = ["transfer", "G…", "u64:5", "string:a b"];
  return [
    make("div", "row", entry("Endpoint, a URL", "webhook_endpoint",
      { type: "url", required: "", maxlength: 2048, placeholder: "https://…" })),
    make("div", "row", field("Contracts, with spaces between them; a webhook for each", contracts, "grow"),
      entry("Address in any topic; without contracts, of all contracts", "address", { placeholder: "G… or C…" })),
    make("div", "row", topics.map((placeholder, index) =>
      entry(`Topic ${index + 1}, if it matters`, `topic${index + 1}`, { placeholder }))),
    make("div", "row", entry("Secret; one is made if this is empty", "webhook_secret",
      { type: "password", maxlength: 512, autocomplete: "new-password" }),
    make("label", "check", input({ type: "checkbox", name: "include_backfill", spellcheck: null }),
      " Also older ledgers when they are backfilled"), submit("Subscribe")),
  ];
}

/** Creates the form. `done` is called when something was subscribed. `given` are values for fields. */
export function subscriptionForm(given, done) {
  const [told, checks] = [having(outcome(), { id: "webhooks-refusal" }), verification()];
  // The secret of a subscription is shown once: it stays until the next one is made.
  const result = outcome();
  const send = async () => {
    mark(whole, told, null);
    const isDone = await attempt(told, "Subscribing …", async () => {
      try {
        // Not ended by leaving the page, because the secret would be lost.
        put(result, made(await ask("rest/webhooks/new", { body: said(whole) })));
        return "It is done.";
      } catch (error) {
        mark(whole, told, error);
        throw error;
      }
    });
    if (!isDone) return;
    whole.reset();
    checks.open = true;
    put(told);
    result.firstChild.focus();
    done();
  };
  const whole = form("webhooks-form", send, ...fields(given));
  whole.noValidate = true;
  return make("div", "", whole, told, result, checks);
}
