// The deliveries of a subscription: a list that may be long, and is kept up to date while it is read.

import { askOn } from "../api.js";
import { eventLink, ledgerLink } from "../address.js";
import { button, choice, field, having, make, put } from "../dom.js";
import { clock, number } from "../format.js";
import { LiveRows } from "../live_rows.js";
import { STATUSES, answerOf } from "./parts.js";

const PAGE = 200;
/** Deliveries that are read again in each round, and how many of them are before those in sight. */
const FRESH = 60;
const BEFORE = 10;
/** Deliveries after which a search of the service ends, for one request. */
const SEARCHED = 20000;

const HEADS = ["Time", "Status", "Event", "Ledger", "Attempts", "Last answer"];

/** Whether a page is the last one. A search for a status may end before the end of the list. */
const isEndOf = (page, limit, status) => page.length === 0 || (status === "" && page.length < limit);

class Deliveries extends LiveRows {
  /** The id of the delivery that is open. */
  opened = null;

  cells(item) {
    const made = super.cells(item);
    made.classList.toggle("on", item.delivery_id === this.opened);
    return made;
  }

  mark(id) {
    this.opened = id;
    for (const [index, row] of this.shown) row.classList.toggle("on", this.items[index].delivery_id === id);
  }
}

/** The list with its filter. `open(id)` shows a delivery. */
export class DeliveryList {
  constructor(view, id, open) {
    Object.assign(this, { view, id, open, isSearch: false, reading: new AbortController() });
    const statuses = Object.keys(STATUSES).map((status) => [status, status]);
    this.status = choice([["", "any"], ...statuses], view.query.get("status") ?? "");
    this.status.addEventListener("change", () => {
      view.setQuery({ status: this.status.value });
      this.begin();
    });
    this.newest = button("To the newest", "quiet", () => this.begin());
    this.newest.hidden = true;
    this.said = having(make("div", "note"), { role: "status" });
    this.rows = new Deliveries({
      label: "Deliveries", kind: "webhook-list", heads: HEADS, row: (item) => this.row(item),
      more: ({ delivery_id: last }) => this.page(last, PAGE),
    });
    this.rows.opened = view.query.get("delivery");
    this.rows.scroller.addEventListener("scroll", () => this.offerNewest());
    this.rows.spacer.addEventListener("click", (event) => this.openPointed(event));
    const filter = make("div", "row", field("Status", this.status), this.newest);
    this.place = make("div", "", filter, this.said, this.rows.element);
  }

  /** Reads the list from its beginning. */
  begin() {
    this.reading.abort();
    this.reading = new AbortController();
    this.isSearch = false;
    return this.view.fill(this.said, async () => {
      const { rows, status: { value: status } } = this;
      const page = await this.page(undefined, PAGE);
      rows.empty = status === "" ? "Nothing has been sent yet, and nothing waits." : `No delivery is ${status}.`;
      rows.scroller.scrollTop = 0;
      rows.replace(page, isEndOf(page, PAGE, status));
      this.listed = status;
      this.offerNewest();
    });
  }

  /** What a search has found is not read again by itself, because that takes many requests. */
  offerNewest() {
    this.newest.hidden = this.rows.scroller.scrollTop === 0 && !this.isSearch;
  }

  /** A click anywhere in a row opens its delivery, as its first control does, unless text was selected. */
  openPointed({ target }) {
    const row = target.closest("a, button") ? null : target.closest(".row");
    if (row && getSelection().isCollapsed) row.querySelector("button").click();
  }

  show(id) {
    this.rows.mark(id);
    this.open(id);
  }

  row(item) {
    const last = item.attempts.at(-1);
    const opener = button("", "link", () => this.show(item.delivery_id));
    opener.append(clock(item.created_at));
    opener.title = "Shows this delivery";
    const again = item.replays > 0 ? make("small", "note", " sent again") : null;
    const answer = last ? answerOf(last) : item.reason ?? "";
    return [opener, make("span", STATUSES[item.status], item.status),
      item.event_id === null ? (item.test ? "test" : "") : eventLink(item.event_id), ledgerLink(item.ledger),
      make("span", "", item.attempts.length, again), make("bdi", "", answer.slice(0, 120))];
  }

  /** Returns the deliveries after this one, or the first ones. A search for a rare status takes several requests. */
  async page(cursor, limit) {
    const { status: { value: status }, view, reading } = this;
    let searches = 0;
    const searched = () => {
      searches += 1;
      this.isSearch = true;
      put(this.said, `Searching: about ${number(searches * SEARCHED)} older deliveries have another status …`);
    };
    const query = new URLSearchParams({ limit, ...status && { status }, ...cursor && { cursor } });
    const signal = AbortSignal.any([view.signal, reading.signal]);
    const page = await askOn(`rest/webhooks/${this.id}/deliveries?${query}`, { signal, searched });
    put(this.said);
    return page;
  }

  /** Reads those in sight again, and shows what has changed. */
  update() {
    return this.view.fill(this.said, async () => {
      const { rows, reading, isSearch, status: { value: status } } = this;
      if (isSearch || rows.loading !== null) return;
      // After a change of the status that could not be read, the rows are still those of the status before.
      const isSame = this.listed === status;
      const first = isSame ? Math.max(0, rows.firstInSight() - BEFORE) : 0;
      const page = await this.page(rows.items[first - 1]?.delivery_id, FRESH);
      if (this.reading !== reading || rows.loading !== null) return;
      const last = isSame ? rows.items.findIndex(({ delivery_id: id }) => id === page.at(-1)?.delivery_id) : -1;
      const [rest, isEnd] = last < 0 ? [[], isEndOf(page, FRESH, status)]
        : [rows.items.slice(last + 1), rows.isEnd];
      rows.replace([...rows.items.slice(0, first), ...page, ...rest], isEnd);
      this.listed = status;
    }, true);
  }
}
