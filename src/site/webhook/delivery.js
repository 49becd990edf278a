// One delivery: what became of it, why, what was sent, and sending it again.

import { attempt, outcome } from "../actions.js";
import { Refused, ask } from "../api.js";
import { encoded, eventLink, ledgerLink } from "../address.js";
import { copyButton, copyable } from "../copy.js";
import { button, having, make, note, put, renew } from "../dom.js";
import { count, duration, number, time } from "../format.js";
import { facts, tag } from "../table.js";
import { STATUSES, adviceOf, answerOf, isGood } from "./parts.js";

/** Returns for how many seconds a delivery waits for its next attempt. */
const waitOf = ({ next_attempt_at: next }) => Math.max(0, Math.ceil((Date.parse(next) - Date.now()) / 1000)) || 0;

/** Creates a sentence that says where a delivery stands. */
function standing(delivery) {
  const { status, attempts: all, next_attempt_at: next, ended_at: ended, reason } = delivery;
  const tries = count(all.length, "attempt");
  if (status === "delivered") return make("p", "", "It arrived: ", time(ended), `, after ${tries}.`);
  if (status === "dead") {
    return make("p", "problem", "It is dead: ", make("bdi", "", reason ?? "no attempt succeeded"),
      ". It is listed for 30 days from ", time(ended), ", and can be sent again.");
  }
  if (next === null) return make("p", "", "It waits for its first attempt, until those before it have been made.");
  const wait = waitOf(delivery);
  const when = wait > 0 ? ` (in ${duration(wait)}).` : " (now).";
  return make("p", "", `${tries} failed so far. The next one: `, time(next), when);
}

/** Creates text that scrolls within the page. */
const body = (text, role, label) =>
  having(make("pre", "webhook-body", text), { tabindex: 0, role, "aria-label": label });

function attempts({ attempts: all, status }) {
  if (all.length === 0) return [];
  const advice = status === "delivered" ? null : adviceOf(all.at(-1));
  const items = all.toReversed().map((it, index) => make("li", "", time(it.at), " ",
    make("bdi", isGood(it) ? "good" : "bad", answerOf(it)),
    make("span", "note", ` after ${number(it.duration_ms)} ms${it.excerpt === "" ? "" : "; its answer begins:"}`),
    it.excerpt === "" ? null : body(it.excerpt, "group", `Beginning of the answer to attempt ${all.length - index}`)));
  return [advice && make("p", "webhook-advice", advice), make("h3", "", "Attempts, the newest first"),
    having(make("ol", "webhook-attempts", items), { reversed: "" })];
}

/** Creates the place of what was sent, or is going to be. */
function sent(text, isSent) {
  if (text === null) return isSent ? [note("What was sent is no longer kept.")] : [];
  let pretty = text;
  try {
    pretty = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // It is shown as it is.
  }
  return [make("h3", "", isSent ? "What was sent" : "What will be sent"),
    note(`${number(new Blob([text]).size)} bytes, shown with line breaks. Copies are the exact text. `,
      copyButton(() => text, "the body")), body(pretty, "region", "Body")];
}

export class Delivery {
  /** The delivery that is open. */
  id = null;

  /** `done` is called when the delivery was sent again, `closed` when it is closed. */
  constructor(view, subscription, { done, closed }) {
    Object.assign(this, { view, subscription, done });
    [this.state, this.body, this.status] = [make("div"), make("div"), make("span")];
    this.told = outcome();
    this.heading = having(make("h3", "", ""), { tabindex: -1 });
    this.element = having(make("div", "webhook-delivery", make("div", "heading", this.heading, this.status),
      make("div", "row", button("Send it again", "", () => this.replay()), button("Close", "quiet", closed)),
      this.told, this.state, this.body), { role: "region", "aria-label": "Delivery" });
    this.element.hidden = true;
    this.element.addEventListener("keydown", (event) => { if (event.key === "Escape") closed(); });
  }

  /** Shows a delivery; null closes it. */
  async show(id) {
    this.id = id;
    this.element.hidden = id === null;
    this.seen = "";
    put(this.heading, `Delivery ${id}`);
    for (const place of [this.status, this.body, this.told]) put(place);
    put(this.state, note("Reading it …"));
    await this.update();
  }

  /** Reads the delivery again, if one is open, and shows what has changed. */
  async update() {
    const { id, subscription, view } = this;
    if (id === null) return;
    const path = `rest/webhooks/${subscription}/deliveries?delivery_id=${encoded(id)}`;
    await view.fill(this.state, async () => {
      const [found] = await ask(path, { signal: view.signal });
      if (this.id !== id) return;
      if (found === undefined) {
        for (const place of [this.status, this.body]) put(place);
        throw new Refused(404, "there is no such delivery any more: those that arrived are removed after "
          + "some days, dead ones after 30");
      }
      this.draw(found);
      // The body is made with the first attempt.
      const seen = `${id} ${found.attempts.length > 0}`;
      if (this.seen === seen) return;
      const [{ body: text = null } = {}] = await ask(`${path}&body=true`, { signal: view.signal });
      if (this.id !== id) return;
      this.seen = seen;
      put(this.body, sent(text, found.attempts.length > 0));
    }, true);
  }

  draw(found) {
    put(this.status, tag([found.status, STATUSES[found.status]]));
    renew(this.state, standing(found), facts([
      ["Event", found.event_id !== null ? eventLink(found.event_id) : found.test ? "a test, with invented values" : null],
      ["Ledger", ledgerLink(found.ledger)],
      ["Made", time(found.created_at)],
      ["Sent again on request", found.replays === 0 ? null : `${number(found.replays)} ×`],
      ["X-Service-Delivery", copyable(found.delivery_id, "the id", make("span", "mono", found.delivery_id))],
    ]), attempts(found));
  }

  replay() {
    const { id, subscription } = this;
    return attempt(this.told, "Sending it again …", async () => {
      await ask(`rest/webhooks/${subscription}/replay`, { body: { delivery_id: id } });
      this.done();
      return "It is sent again; its attempts begin anew.";
    });
  }
}
