// A new secret for a subscription, which is shown once; the one before goes on signing for a day.

import { attempt, outcome } from "../actions.js";
import { ask } from "../api.js";
import { button, having, input, make, note, paragraph, put } from "../dom.js";
import { time } from "../format.js";
import { secretOf } from "./receiving.js";

/** Tells what becomes of the secrets before a new one. */
const earlier = (until) => make("p", "", until === null
  ? "The secrets before it no longer sign: a receiver without the new one refuses what is sent from now on."
  : ["The secret before it goes on signing beside it until ", time(until), ": give receivers the new one in that time."]);

/** Creates the button with its question, for the subscription with this id. */
export function rotation(id) {
  const [told, result] = [outcome(), outcome()];
  const isLeaked = input({ type: "checkbox", spellcheck: null });
  const rotate = () => attempt(told, "Making a secret …", async () => {
    // Not ended by leaving the page, because the secret would be lost.
    const answer = await ask(`rest/webhooks/${id}/secret`, { body: { end_previous: isLeaked.checked } });
    put(result, secretOf(answer.secret, "It has a new secret", earlier(answer.previous_secrets_until)));
    question.hidden = true;
    result.firstChild.focus();
    return "";
  });
  const keep = button("Keep the present one", "quiet", () => show(false));
  const begin = button("Make a new secret", "quiet", () => show(true));
  const question = having(make("div", "webhook-confirm",
    paragraph("", `Make a new secret for webhook ${id}? For 24 hours, both sign: \`webhook-signature\` has a signature `
      + "of each, `X-Service-Signature` that of the present one. Change the receivers in that time."),
    make("label", "check", isLeaked, " Earlier secrets end at once, because others have seen them"),
    make("div", "row", button("Make it", "danger", rotate), keep)),
  { role: "group", "aria-label": "A new secret", hidden: "" });
  const show = (isAsked) => {
    question.hidden = !isAsked;
    isLeaked.checked = false;
    (isAsked ? keep : begin).focus();
  };
  return make("div", "",
    note("The secret is not shown again. If it is lost, or others have seen it, a new one takes its place."),
    make("div", "row", begin), question, told, result);
}
