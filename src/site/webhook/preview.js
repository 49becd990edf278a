// What a subscription would have sent.

import { having, make } from "../dom.js";
import { count, number } from "../format.js";

/** Returns the text of a message as the chat gets it; null for what is not of such a form. */
const textOf = ({ content, text, blocks }) => content ?? text
  ?? blocks?.map((it) => it.text?.text ?? it.elements?.map((part) => part.text).join(" ")).join("\n") ?? null;

/** Creates one delivery: a message, or the body. */
function shown(body, index, isMessage) {
  const text = typeof body === "string" ? body : isMessage ? textOf(body) : null;
  return having(make("pre", "webhook-body", text ?? JSON.stringify(body, null, 2)),
    { tabindex: 0, role: "region", "aria-label": `${isMessage ? "Message" : "Body"} ${index + 1}` });
}

/** Creates the elements of an answer to a request for this format. */
export function preview({ ledgers, from, to, matched, first, unjudged }, format) {
  const isMessage = format !== "service";
  const which = `${count(ledgers, "ledger")}${ledgers > 0 ? `, ${number(from)} to ${number(to)}` : ""}`;
  const sent = `It would have sent ${number(matched)} in ${which}`;
  return make("div", "",
    unjudged === 0 ? null : make("p", "warning",
      `${count(unjudged, "event")} could not be judged: it is not known what their contracts declare.`),
    make("p", matched > 0 ? "good" : "", `${sent}${first.length > 0 ? ". The first:" : "."}`),
    ...first.map((body, index) => shown(body, index, isMessage)));
}
