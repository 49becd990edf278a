// One webhook: whether it works, its deliveries, and what can be done to it.

import { attempt, outcome } from "../actions.js";
import { Refused, ask, pause } from "../api.js";
import { addressLink, encoded, ledgerRanges, link } from "../address.js";
import { copyable } from "../copy.js";
import { button, having, make, put } from "../dom.js";
import { number, time } from "../format.js";
import { go } from "../router.js";
import { steady } from "../steady.js";
import { facts } from "../table.js";
import { Delivery } from "../webhook_delivery.js";
import { DeliveryList } from "../webhook_deliveries.js";
import { verification } from "../webhook_form.js";
import { adviceOf, answerOf, arrivedOf, filtersOf, stateOf, tag, whyOf } from "../webhook_parts.js";
import { deadButton, replayForm } from "../webhook_replay.js";

const EVERY = 2500;
/** How often the newest deliveries are read for the figures, in milliseconds, and how many. */
const FIGURES_EVERY = 10000;
const RATED = 100;
/** How often the outcome of a test is asked, and how long, in milliseconds: others may come before it. */
const TEST_EVERY = 300;
const TEST_PATIENCE = 60000;
/** Kinds of failures that are listed. */
const MOST_FAILURES = 5;

class Page {
  constructor(view) {
    Object.assign(this, { view, id: view.params.id, figuresAt: 0 });
    view.heading(`Webhook ${this.id}`);
    this.facts = make("div");
    this.figures = make("div");
    this.told = outcome();
    this.enable = button("Enable it", "", () => this.enableIt());
    this.actions = make("div", "row", button("Send a test", "", () => this.test()), this.enable, button("Delete", "quiet", () => this.confirm()));
    this.confirmation = make("div");
  }

  begin() {
    this.view.part("Subscription", (body) => this.load(body), { every: EVERY });
  }

  async load(body) {
    const { id, view: { signal } } = this;
    const list = await ask("rest/webhooks/list", { signal });
    const hook = list.find((it) => String(it.id) === id);
    if (hook === undefined) {
      // The service says why: it is unknown, or somebody else's.
      await ask(`rest/webhooks/${encoded(id)}/deliveries?limit=1`, { signal });
      throw new Refused(404, `there is no webhook ${id} of yours`);
    }
    this.draw(hook);
    if (this.facts.parentNode !== body) put(body, this.facts, this.actions, this.confirmation, this.told, this.figures);
    if (this.list === undefined) this.rest();
    if (Date.now() - this.figuresAt >= FIGURES_EVERY) await this.drawFigures();
  }

  draw(hook) {
    this.enable.hidden = hook.enabled;
    const why = whyOf(hook);
    steady(this.facts, [hook, why?.textContent, this.rate], () => [
      make("p", "", copyable(hook.webhook_endpoint, "the endpoint", make("span", "mono", hook.webhook_endpoint))),
      make("p", "", tag(stateOf(hook, this.rate)), " ", why),
      hook.enabled ? null
        : make("p", "note", "Nothing is sent until it is enabled. Events of the meantime are not sent by themselves: send their ledgers again, below."),
      hook.enabled && hook.failing_since ? make("p", "note", "After five days without a success it is disabled.") : null,
      facts([
        ["Contract", hook.contract_id === "" ? "all" : addressLink(hook.contract_id)],
        ["Events", filtersOf(hook)],
        ["Backfilled ledgers", hook.include_backfill ? "are sent, too" : "are not sent"],
        ["Subscribed", time(hook.created_at)],
        ["Deliveries that wait", number(hook.deliveries_waiting)],
        ["Ledgers whose events it never gets", hook.missing_ledgers.length === 0 ? null : ledgerRanges(hook.missing_ledgers)],
      ])]);
  }

  /** Shows how the newest deliveries went. */
  async drawFigures() {
    const { id, view: { signal } } = this;
    const newest = await ask(`rest/webhooks/${id}/deliveries?limit=${RATED}`, { signal });
    this.figuresAt = Date.now();
    // While an endpoint fails, the newest ones wait for those that are tried again, which know the cause.
    const isBehind = newest.length > 0 && newest.every(({ attempts }) => attempts.length === 0);
    const told = !isBehind ? newest : await ask(`rest/webhooks/${id}/deliveries?status=retrying&limit=${RATED}`, { signal }).catch((error) => {
      if (error instanceof Refused) return [];
      throw error;
    });
    const tried = told.flatMap(({ attempts }) => attempts);
    const rate = arrivedOf(newest);
    this.rate = rate;
    if (tried.length === 0) return put(this.figures);
    const times = tried.filter(({ status }) => status !== null).map(({ duration_ms: took }) => took).sort((a, b) => a - b);
    const failures = new Map();
    for (const it of tried.filter(({ status }) => status === null || status >= 300)) {
      failures.set(answerOf(it), [...failures.get(answerOf(it)) ?? [], it]);
    }
    const kinds = [...failures].sort(([, one], [, other]) => other.length - one.length);
    const data = [isBehind, rate, times, kinds.map(([name, all]) => [name, all.length])];
    return steady(this.figures, data, () => [
      make("h3", "", isBehind ? "Deliveries that are tried again; newer ones wait" : `The newest ${newest.length === 1 ? "delivery" : `${newest.length} deliveries`}`),
      facts([
        ["Arrived", rate.share === null ? "none has ended" : `${rate.share} % of ${rate.ended}`],
        ["Attempts", number(tried.length)],
        ["Time to answer", times.length === 0 ? "no answer" : `${times[Math.floor(times.length / 2)]} ms (median)`],
        ["Longest", times.length === 0 ? null : `${times.at(-1)} ms`],
      ], "figures"),
      kinds.length === 0 ? null : make("ul", "webhook-failures", kinds.slice(0, MOST_FAILURES).map(([name, all]) =>
        make("li", "", make("bdi", "bad", name), ` ${number(all.length)} ×. `, adviceOf(all.at(-1)))))]);
  }

  /** Adds the other parts, when it is known that there is such a subscription. */
  rest() {
    const { id, view } = this;
    const update = () => Promise.all([this.list.update(), this.delivery.update()]).catch(() => {});
    this.delivery = new Delivery(view, id, { done: update, closed: () => this.close() });
    const deadOnes = deadButton(view, id, update);
    this.list = new DeliveryList(view, id, (delivery) => this.open(delivery), deadOnes);
    this.body = make("div", "webhook-deliveries", this.list.place, this.delivery.element);
    const showDead = () => { deadOnes.hidden = this.list.status.value !== "dead"; };
    this.list.status.addEventListener("change", showDead);
    showDead();
    view.part("Deliveries", async (body) => {
      put(body, this.body);
      await Promise.all([this.list.begin(), this.open(view.query.get("delivery"), false)]);
    });
    this.list.follow();
    view.every(EVERY, () => this.delivery.update());
    view.part("Send stored events again", (body) => put(body, replayForm(view, id, update)));
    view.part("Receiving", (body) => put(body, verification(),
      make("p", "note", "The secret was shown when this was subscribed, and is not shown again. If it is lost, delete this and ",
        link("webhooks", "subscribe anew"), ".")));
  }

  /** Shows a delivery beside the list; null closes it. */
  async open(delivery, isChosen = true) {
    this.opener = isChosen ? document.activeElement : null;
    this.body.classList.toggle("open", delivery !== null);
    if (isChosen) this.view.setQuery({ delivery });
    await this.delivery.show(delivery);
    if (!isChosen || delivery === null) return;
    this.delivery.heading.focus({ preventScroll: true });
    const { top } = this.delivery.heading.getBoundingClientRect();
    if (top < 0 || top > innerHeight - 100) this.delivery.element.scrollIntoView();
  }

  close() {
    const { opener } = this;
    this.list.rows?.mark(null);
    this.open(null);
    (opener?.isConnected ? opener : this.list.status).focus({ preventScroll: true });
  }

  test() {
    return attempt(this.told, "Sending a test …", async () => {
      const { id, view: { signal } } = this;
      const { delivery_id: delivery } = await ask(`rest/webhooks/${id}/test`, { body: {}, signal });
      const until = Date.now() + TEST_PATIENCE;
      const show = button("Show it", "link", () => this.list.show(delivery));
      for (;;) {
        const [found] = await ask(`rest/webhooks/${id}/deliveries?delivery_id=${encoded(delivery)}`, { signal });
        const last = found?.attempts.at(-1);
        if (found !== undefined && found.status !== "pending") {
          this.list.update().catch(() => {});
          const took = last?.status ? ` after ${last.duration_ms} ms` : "";
          if (found.status === "delivered") return make("p", "good", `The test arrived: the endpoint answered ${answerOf(last)}${took}. `, show);
          const advice = last && adviceOf(last);
          return make("p", "problem", `The test did not arrive: ${last ? answerOf(last) : found.reason}${took}. ${advice ?? ""} `, show);
        }
        if (Date.now() >= until) {
          return make("p", "problem", "The test has not been sent in a minute, because other deliveries come before it. ", show);
        }
        await pause(TEST_EVERY);
      }
    });
  }

  enableIt() {
    return attempt(this.told, "Enabling it …", async () => {
      this.draw(await ask(`rest/webhooks/${this.id}/enable`, { body: {} }));
      return make("p", "good", "It is enabled: new events are sent. Send a test to see whether its endpoint works.");
    });
  }

  confirm() {
    const close = () => { put(this.confirmation); this.actions.lastChild.focus(); };
    const keep = button("Keep it", "quiet", close);
    const remove = button("Delete it for good", "danger", () => attempt(this.told, "Deleting it …", async () => {
      await ask(`rest/webhooks/${this.id}`, { method: "DELETE" });
      await go("webhooks", { isReplaced: true });
      return [];
    }));
    const asked = having(make("div", "webhook-confirm",
      make("p", "", `Delete webhook ${this.id} with all its deliveries? Nothing more is sent, and its secret is lost.`),
      make("div", "row", remove, keep)), { role: "group", "aria-label": "Deleting" });
    asked.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
    put(this.confirmation, asked);
    keep.focus();
  }
}

export function open(view) {
  new Page(view).begin();
}
