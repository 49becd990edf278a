// How a receiver checks deliveries, and the secret for it, which is shown once.

import { copyButton } from "../copy.js";
import { having, make, note, paragraph, prose } from "../dom.js";

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
  note("Answer with a status from 200 to 299 within 15 seconds. Otherwise it is sent again after ",
    "5 s, 30 s, 2 min, 10 min, 1 h, 3 h, 6 h, 12 h, 24 h and 24 h. In Node:"),
  having(make("pre", "", RECEIVER), { tabindex: 0, role: "region", "aria-label": "Example in Node" }),
  copyButton(() => RECEIVER, "the example"),
  paragraph("note", "`orrery webhooks listen` is a receiver for trying it out: it checks deliveries and prints them."));

/** Creates the place of a secret that was made, which has the focus when it is shown. */
export const secretOf = (secret, title, ...told) => having(make("div", "webhooks-made", make("h3", "", title), ...told,
  make("p", "", "The secret is shown now, and never again: ", make("code", "", secret), " ",
    copyButton(() => secret, "the secret"))), { tabindex: -1 });
