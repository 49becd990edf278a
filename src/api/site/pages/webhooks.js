// Your webhooks, whether they work, and subscribing to further events.

import { Stale, ask, session } from "../api.js";
import { addressLink, link } from "../address.js";
import { button, choice, field, input, make, put } from "../dom.js";
import { clock, count, number, short } from "../format.js";
import { steady } from "../steady.js";
import { table } from "../table.js";
import { subscriptionForm } from "../webhook_form.js";
import { arrivedOf, filtersOf, stateOf, tag, whyOf } from "../webhook_parts.js";

/** Subscriptions on a page: the deliveries of each take a request. */
const SHOWN = 20;
/** Deliveries of which the share that arrived is computed, and how often that is done, in milliseconds. */
const RATED = 100;
const RATE_EVERY = 15000;

const STATES = ["enabled", "failing", "disabled"];
const HEADS = ["State", "Endpoint", ["Arrived", "number"], ["Waiting", "number"], "Contract", "Events"];

function arrived(rate) {
  if (rate === undefined) return ["…", "number null"];
  if (rate.share === null) return ["none ended", "number null"];
  return [`${rate.share} % of ${rate.ended}`, rate.arrived < rate.ended ? "number bad" : "number"];
}

function row(hook, rate) {
  const why = whyOf(hook, clock);
  return [
    tag(stateOf(hook, rate)),
    [make("div", "", link(`webhooks/${hook.id}`, short(hook.webhook_endpoint, 24)), why && make("div", "note", why)), "wide"],
    arrived(rate), [number(hook.deliveries_waiting), "number"],
    hook.contract_id === "" ? "all" : addressLink(hook.contract_id), [filtersOf(hook), "wide"],
  ];
}

/** Describes all subscriptions in one sentence. */
function overview(list) {
  const of = (word) => list.filter((hook) => stateOf(hook)[0] === word).length;
  const parts = STATES.filter((word) => of(word) > 0).map((word) => `${of(word)} ${word}`);
  const waiting = list.reduce((sum, hook) => sum + hook.deliveries_waiting, 0);
  return `${count(list.length, "webhook")}: ${parts.join(", ")}. ${waiting === 1 ? "1 delivery waits" : `${number(waiting)} deliveries wait`}.`;
}

class List {
  constructor(view) {
    Object.assign(this, { view, rates: new Map(), all: [], first: 0 });
    this.text = input({ type: "search", value: view.query.get("q") ?? "" });
    this.state = choice([["", "any"], ...STATES.map((state) => [state, state])], view.query.get("state") ?? "");
    for (const it of [this.text, this.state]) it.addEventListener("input", () => this.select());
    this.filter = make("div", "row", field("Endpoint, contract or address has", this.text, "grow"), field("State", this.state));
    this.place = make("div");
    this.paging = make("div", "row");
  }

  select() {
    this.first = 0;
    this.view.setQuery({ q: this.text.value.trim(), state: this.state.value });
    this.draw();
    this.rate();
  }

  /** Subscriptions that the filter leaves, the newest first. */
  get chosen() {
    const text = this.text.value.trim().toLowerCase();
    return this.all.filter((hook) => (this.state.value === "" || stateOf(hook)[0] === this.state.value)
      && [hook.webhook_endpoint, hook.contract_id, hook.address ?? ""].some((it) => it.toLowerCase().includes(text)));
  }

  async load(body) {
    const list = await ask("rest/webhooks/list", { signal: this.view.signal });
    this.all = list.sort((one, other) => other.id - one.id);
    if (!this.place.isConnected || this.place.parentNode !== body) put(body, this.filter, this.place, this.paging);
    this.draw();
    await this.rate();
  }

  draw() {
    const { all, chosen, first } = this;
    this.filter.hidden = all.length < 5;
    const shown = chosen.slice(first, first + SHOWN);
    steady(this.place, [all.length, shown, shown.map(({ id }) => this.rates.get(id)?.rate)], () => {
      if (all.length === 0) return make("p", "note", "You have no webhooks yet: the form below subscribes an endpoint to events.");
      if (shown.length === 0) return make("p", "note", "The filter leaves none of your webhooks.");
      return [make("p", "", overview(all)), table(HEADS, shown.map((hook) => row(hook, this.rates.get(hook.id)?.rate)), "Your webhooks"),
        make("p", "note", `Arrived is the delivered share of the newest ${RATED} deliveries, of those that have ended.`)];
    });
    const turn = (text, by) => {
      const made = button(text, "quiet", () => { this.first += by; this.draw(); this.rate(); });
      made.disabled = first + by < 0 || first + by >= chosen.length;
      return made;
    };
    steady(this.paging, [first, chosen.length], () => chosen.length <= SHOWN ? []
      : [turn("Newer", -SHOWN), turn("Older", SHOWN), make("span", "note", `${first + 1} to ${first + shown.length} of ${chosen.length}`)]);
  }

  /** Reads the deliveries of those in sight, one subscription after the other. */
  async rate() {
    const { signal } = this.view;
    for (const { id } of this.chosen.slice(this.first, this.first + SHOWN)) {
      if (signal.aborted || Date.now() - (this.rates.get(id)?.at ?? 0) < RATE_EVERY) continue;
      this.rates.set(id, { ...this.rates.get(id), at: Date.now() });
      try {
        const deliveries = await ask(`rest/webhooks/${id}/deliveries?limit=${RATED}`, { signal });
        this.rates.set(id, { at: Date.now(), rate: arrivedOf(deliveries) });
        this.draw();
      } catch (error) {
        // It may have been deleted in the meantime; another failure is told by the list.
        if (error instanceof Stale) return;
      }
    }
  }
}

export function open(view) {
  view.heading("Webhooks");
  const list = new List(view);
  const part = view.part("Your subscriptions", (body) => list.load(body), { every: 3000 });
  if (session.token === "") return;
  view.part("Subscribe an endpoint", (body) => put(body,
    make("p", "note", "Each matching event of ledgers that are stored from now on is sent as a POST, signed, and at least once. ",
      "Older ones can be replayed."),
    subscriptionForm(view.query, part.reload)));
}
