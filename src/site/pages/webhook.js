// One webhook: whether it works, its deliveries, and what can be done to it.

import { attempt, outcome } from "../actions.js";
import { Refused, ask, pause } from "../api.js";
import { encoded, ledgerRanges, link } from "../address.js";
import { copyable } from "../copy.js";
import { button, having, make, note, put, renew } from "../dom.js";
import { number, time } from "../format.js";
import { facts, tag } from "../table.js";
import { Delivery } from "../webhook/delivery.js";
import { DeliveryList } from "../webhook/deliveries.js";
import { adviceOf, answerOf, arrivedOf, isGood, stateOf, whyOf } from "../webhook/parts.js";
import { filtersOf, isChat, subjectOf, unmetOf } from "../webhook/parts.js";
import { verification } from "../webhook/receiving.js";
import { replayForm } from "../webhook/replay.js";
import { rotation } from "../webhook/rotation.js";

const EVERY = 2500;
/** How often the newest deliveries are read for the figures, in milliseconds, and how many. */
const FIGURES_EVERY = 10000;
const RATED = 100;
/** How often the outcome of a test is asked, in milliseconds, and how many times: others may come before it. */
const TEST_EVERY = 300;
const TEST_TRIES = 200;
/** Kinds of failures that are listed. */
const MOST_FAILURES = 5;

/** Creates what is known of a subscription. */
function state(hook, rate) {
  const { missing_ledgers: missing } = hook;
  return [
    // Of a chat, this is not the whole.
    make("p", "", isChat(hook) ? [make("span", "mono", hook.webhook_endpoint), ` (${hook.format}; the rest is secret)`]
      : copyable(hook.webhook_endpoint, "the endpoint", make("span", "mono", hook.webhook_endpoint))),
    make("p", "", tag(stateOf(hook, rate)), " ", whyOf(hook)),
    !hook.enabled ? note("Nothing is sent until it is enabled, and then only newer events.")
      : hook.failing_since ? note("After five days without a success it is disabled.") : null,
    ...unmetOf(hook),
    facts([
      [hook.project ? "Contracts" : "Contract", subjectOf(hook)],
      ["Told of", filtersOf(hook)],
      ["Format", hook.format === "service" ? null : hook.format],
      ["Message", (hook.message ?? null) && make("span", "mono webhook-template", hook.message)],
      ["Backfilled ledgers", hook.include_backfill ? "are sent, too" : "are not sent"],
      ["Subscribed", time(hook.created_at)],
      ["Deliveries that wait", number(hook.deliveries_waiting)],
      ["Earlier secrets sign until", hook.previous_secrets_until ? time(hook.previous_secrets_until) : null],
      ["Ledgers whose events it never gets", missing.length === 0 ? null : ledgerRanges(missing)],
    ])];
}

/** Creates the figures of deliveries: how their attempts went, and why some failed. */
function figures(title, rate, attempts) {
  if (attempts.length === 0) return [];
  const answered = attempts.filter(({ status }) => status !== null);
  const times = answered.map(({ duration_ms: took }) => took).sort((one, other) => one - other);
  const failures = Map.groupBy(attempts.filter((it) => !isGood(it)), answerOf);
  const kinds = [...failures].sort(([, one], [, other]) => other.length - one.length).slice(0, MOST_FAILURES);
  return [
    make("h3", "", title),
    facts([
      ["Arrived", rate.text],
      ["Attempts", number(attempts.length)],
      ["Time to answer", times.length === 0 ? "no answer" : `${times[Math.floor(times.length / 2)]} ms (median)`],
      ["Longest", times.length === 0 ? null : `${times.at(-1)} ms`],
    ], "figures"),
    make("ul", "", kinds.map(([name, all]) =>
      make("li", "", make("bdi", "bad", name), ` ${number(all.length)} ×. `, adviceOf(all.at(-1))))),
  ];
}

class Page {
  constructor(view) {
    Object.assign(this, { view, id: view.params.id, figuresAt: -Infinity });
    view.heading(`Webhook ${this.id}`);
    [this.facts, this.figures, this.told] = [make("div"), make("div"), outcome()];
    this.enable = button("Enable it", "", () => this.enableIt());
    this.remove = button("Delete", "quiet", () => this.confirm(true));
    this.keep = button("Keep it", "quiet", () => this.confirm(false));
    this.confirmation = having(make("div", "webhook-confirm",
      make("p", "", `Delete webhook ${this.id} with all its deliveries? Nothing more is sent, and its secret is lost.`),
      make("div", "row", button("Delete it for good", "danger", () => this.deleteIt()), this.keep)),
    { role: "group", "aria-label": "Deleting", hidden: "" });
    const actions = make("div", "row", button("Send a test", "", () => this.test()), this.enable, this.remove);
    this.element = make("div", "", this.facts, actions, this.confirmation, this.told, this.figures);
  }

  begin() {
    this.view.part("Subscription", (body) => this.load(body), { every: EVERY });
  }

  async load(body) {
    const list = await ask("rest/webhooks/list", { signal: this.view.signal });
    const hook = list.find(({ id }) => String(id) === this.id);
    if (hook === undefined) {
      put(body, make("p", "problem", `There is no webhook ${this.id.slice(0, 64)} of yours: `,
        "it was deleted, or is another owner's. See ", link("webhooks", "your webhooks"), "."));
      return;
    }
    this.draw(hook);
    if (!body.contains(this.element)) put(body, this.element);
    if (this.list === undefined) this.rest();
    if (performance.now() - this.figuresAt >= FIGURES_EVERY) await this.drawFigures(hook);
  }

  draw(hook) {
    this.enable.hidden = hook.enabled;
    renew(this.facts, state(hook, this.rate));
  }

  async drawFigures(hook) {
    const { id, view: { signal } } = this;
    const read = (query) => ask(`rest/webhooks/${id}/deliveries?limit=${RATED}${query}`, { signal });
    const newest = await read("");
    this.figuresAt = performance.now();
    this.rate = arrivedOf(newest);
    // While an endpoint fails, the newest ones may wait for those that are tried again, which know the cause;
    // a disabled one has none.
    const tried = hook.failing_since === null ? [] : await read("&status=retrying").catch((error) => {
      if (error instanceof Refused) return [];
      throw error;
    });
    const told = tried.length > 0 ? tried : newest;
    const title = `${told === newest ? "The newest deliveries" : "Deliveries that will be tried again"}: ${number(told.length)}`;
    const attempts = told.flatMap((delivery) => delivery.attempts);
    renew(this.figures, figures(title, this.rate, attempts));
  }

  /** Adds the other parts, when it is known that there is such a subscription. */
  rest() {
    const { id, view } = this;
    const update = () => Promise.all([this.list.update(), this.delivery.update()]);
    this.delivery = new Delivery(view, id, { done: update, closed: () => this.close() });
    this.list = new DeliveryList(view, id, (delivery) => this.open(delivery));
    this.body = make("div", "webhook-deliveries", this.list.place, this.delivery.element);
    view.part("Deliveries", async (body) => {
      put(body, this.body);
      await Promise.all([this.list.begin(), this.open(view.query.get("delivery"), false)]);
      setTimeout(() => view.every(EVERY, update), EVERY);
    });
    view.part("Send stored events again", (body) => put(body, replayForm(view, id, () => this.list.begin())));
    view.part("Receiving", (body) => put(body, verification(), rotation(id)));
  }

  /** Shows a delivery beside the list; null closes it. */
  async open(delivery, isChosen = true) {
    this.body.classList.toggle("open", delivery !== null);
    if (isChosen) {
      this.opener = document.activeElement;
      this.view.setQuery({ delivery });
    }
    await this.delivery.show(delivery);
    if (isChosen && delivery !== null) this.delivery.heading.focus();
  }

  close() {
    const { list, opener } = this;
    list.rows.mark(null);
    this.open(null);
    (opener?.isConnected ? opener : list.status).focus({ preventScroll: true });
  }

  test() {
    return attempt(this.told, "Sending a test …", async () => {
      const { id, view: { signal } } = this;
      const { delivery_id: delivery } = await ask(`rest/webhooks/${id}/test`, { body: {}, signal });
      const show = button("Show it", "link", () => this.list.show(delivery));
      const told = (kind, text) => make("p", kind, text, " ", show);
      for (let tries = 0; tries < TEST_TRIES; tries += 1) {
        const path = `rest/webhooks/${id}/deliveries?delivery_id=${encoded(delivery)}`;
        const [found] = await ask(path, { signal });
        if (found !== undefined && found.status !== "pending") {
          const { status, reason, attempts: [last] } = found;
          const came = last ? `${answerOf(last)} after ${last.duration_ms} ms` : reason;
          if (status === "delivered") return told("good", `The test arrived: the endpoint answered ${came}.`);
          return told("problem", `The test did not arrive: ${came}. ${(last && adviceOf(last)) ?? ""}`);
        }
        await pause(TEST_EVERY);
      }
      return told("problem", "The test has not been sent in a minute, because other deliveries come before it.");
    });
  }

  enableIt() {
    return attempt(this.told, "Enabling it …", async () => {
      this.draw(await ask(`rest/webhooks/${this.id}/enable`, { body: {} }));
      return "It is enabled: new events are sent. Send a test to see whether its endpoint works.";
    });
  }

  /** Asks whether it is to be deleted, or asks no more. */
  confirm(isAsked) {
    this.confirmation.hidden = !isAsked;
    (isAsked ? this.keep : this.remove).focus();
  }

  deleteIt() {
    return attempt(this.told, "Deleting it …", async () => {
      await ask(`rest/webhooks/${this.id}`, { method: "DELETE" });
      // Who has opened another page meanwhile stays there.
      if (!this.view.signal.aborted) await this.view.go("webhooks", { isReplaced: true });
      return "It is deleted.";
    });
  }
}

export function open(view) {
  new Page(view).begin();
}
