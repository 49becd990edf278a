// One delivery: what became of it, why, what was sent, and sending it again.

import { attempt, outcome } from "./actions.js";
import { Refused, Stale, Unreachable, ask } from "./api.js";
import { encoded, eventLink, ledgerLink, transactionLink } from "./address.js";
import { copyButton, copyable } from "./copy.js";
import { button, having, make, put } from "./dom.js";
import { duration, number, time } from "./format.js";
import { parametersOf } from "./parameters.js";
import { problem } from "./problem.js";
import { steady } from "./steady.js";
import { facts } from "./table.js";
import { STATUSES, adviceOf, answerOf, tag } from "./webhook_parts.js";

/** Days for which a dead delivery is listed. */
const DEAD_DAYS = 30;

/** Creates a sentence that says where a delivery stands. */
function standing({ status, attempts, next_attempt_at: next, ended_at: ended, reason }) {
  const tries = attempts.length === 1 ? "one attempt" : `${attempts.length} attempts`;
  if (status === "delivered") return make("p", "", "It arrived: ", time(ended), `, after ${tries}.`);
  if (status === "dead") {
    return make("p", "problem", "It is dead: ", make("bdi", "", reason ?? "no attempt succeeded"), `. It is listed for ${DEAD_DAYS} days from `,
      time(ended), ", and can be sent again.");
  }
  if (next === null) return make("p", "", "It waits for its first attempt. First attempts are made one at a time, in the order of the ledgers.");
  const wait = Math.ceil((Date.parse(next) - Date.now()) / 1000);
  return make("p", "", `${tries[0].toUpperCase()}${tries.slice(1)} failed so far. The next one: `, time(next),
    wait > 0 ? ` (in ${duration(wait)}).` : " (now).");
}

const milliseconds = (value) => value < 1000 ? `${value} ms` : `${(value / 1000).toFixed(1)} s`;

function attempts({ attempts: all, status }) {
  if (all.length === 0) return null;
  const isBad = (it) => it.status === null || it.status >= 300;
  const items = all.toReversed().map((it, index) => make("li", "", time(it.at), " ", make("bdi", isBad(it) ? "bad" : "good", answerOf(it)),
    make("span", "note", ` after ${milliseconds(it.duration_ms)}${it.excerpt === "" ? "" : "; its answer begins:"}`),
    it.excerpt === "" ? null : having(make("pre", "webhook-body", it.excerpt),
      { tabindex: 0, role: "group", "aria-label": `Beginning of the answer to attempt ${all.length - index}` })));
  const advice = status === "delivered" ? null : adviceOf(all.at(-1));
  return [advice && make("p", "webhook-advice", advice), make("h3", "", "Attempts, the newest first"),
    having(make("ol", "webhook-attempts", items), { reversed: "" })];
}

/** Creates the place of what was sent, or is going to be. */
function sent(body, isSent) {
  let pretty = body;
  try {
    pretty = JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    // It is shown as it is.
  }
  return [make("h3", "", isSent ? "What was sent" : "What will be sent"),
    make("p", "note", `${number(new TextEncoder().encode(body).length)} bytes, shown with line breaks. Copies are the exact text. `,
      copyButton(() => body, "the body")),
    having(make("pre", "webhook-body", pretty), { tabindex: 0, role: "region", "aria-label": "Body" })];
}

export class Delivery {
  /** `done` is called when the delivery was sent again, `closed` when it is closed. */
  constructor(view, subscription, { done, closed }) {
    Object.assign(this, { view, subscription, done });
    this.state = make("div");
    this.body = make("div");
    this.told = outcome();
    this.heading = having(make("h3", "", ""), { tabindex: -1 });
    this.status = make("span");
    const again = button("Send it again", "", () => this.replay());
    const close = button("Close", "quiet", closed);
    this.element = having(make("div", "webhook-delivery", make("div", "heading", this.heading, this.status),
      make("div", "row", again, close), this.told, this.state, this.body), { role: "region", "aria-label": "Delivery" });
    this.element.hidden = true;
    this.element.addEventListener("keydown", (event) => { if (event.key === "Escape") closed(); });
  }

  /** Shows a delivery; null closes it. */
  async show(id) {
    this.id = id;
    this.element.hidden = id === null;
    if (id === null) return;
    this.seen = "";
    put(this.heading, `Delivery ${id}`);
    for (const place of [this.status, this.body, this.told]) put(place);
    put(this.state, make("p", "note", "Reading it …"));
    await this.update();
  }

  get path() {
    return `rest/webhooks/${this.subscription}/deliveries?delivery_id=${encoded(this.id)}`;
  }

  /** Reads the delivery again, and shows what has changed. Returns it; null if none is open or it cannot be read. */
  async update() {
    const { id, view: { signal } } = this;
    if (id === null || id === undefined) return null;
    try {
      const [found] = await ask(this.path, { signal });
      if (this.id !== id) return null;
      if (found === undefined) throw new Refused(404, `there is no delivery '${id}' any more: retention has removed it`);
      this.draw(found);
      // The body is made with the first attempt.
      const seen = `${id} ${found.attempts.length > 0}`;
      if (this.seen !== seen) {
        this.seen = seen;
        await this.readBody(found);
      }
      return found;
    } catch (error) {
      if (error instanceof Stale || error instanceof Unreachable || this.id !== id) return null;
      put(this.state, problem(error));
      for (const place of [this.status, this.body]) put(place);
      return null;
    }
  }

  draw(found) {
    put(this.status, tag([found.status, STATUSES[found.status]]));
    const wait = found.next_attempt_at === null ? 0 : Math.max(0, Math.ceil((Date.parse(found.next_attempt_at) - Date.now()) / 1000));
    steady(this.state, [found, wait], () => [standing(found), facts([
      ["Event", found.event_id === null ? "a test, with the values of the newest event" : eventLink(found.event_id)],
      ["Ledger", ledgerLink(found.ledger)],
      ["Made", time(found.created_at)],
      ["Sent again on request", found.replays === 0 ? null : `${number(found.replays)} ×`],
      ["X-Service-Delivery", copyable(found.delivery_id, "the id", make("span", "mono", found.delivery_id))],
    ]), attempts(found)].flat());
  }

  /** Shows the body that was sent; where it is not kept, the event. */
  async readBody({ event_id: event, attempts: all }) {
    const { id, view: { signal } } = this;
    let body = null;
    try {
      [{ body = null }] = await ask(`${this.path}&body=true`, { signal });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
    const shown = body !== null ? sent(body, all.length > 0) : event === null ? [] : await this.eventOf(event);
    if (this.id === id) put(this.body, shown);
  }

  async eventOf(event) {
    const [found] = await ask(`rest/events/by-id/${event}?decoded=true`, { signal: this.view.signal }).catch((error) => {
      if (error instanceof Refused) return [];
      throw error;
    });
    if (found === undefined) return [make("p", "note", "The body is not kept, and the event is no longer stored.")];
    return [make("h3", "", "The event"),
      make("p", "note", "The body itself is not kept. Transaction: ", transactionLink(found.tx), "."), parametersOf(found)];
  }

  replay() {
    const { id } = this;
    return attempt(this.told, "Sending it again …", async () => {
      await ask(`rest/webhooks/${this.subscription}/replay`, { body: { delivery_id: id } });
      this.done();
      return make("p", "good", "It is sent again; its attempts begin anew.");
    });
  }
}
