// The deliveries of a subscription: a list that may be long, and is kept up to date while it is read.

import { Refused, Stale, Unreachable, ask, pause } from "./api.js";
import { eventLink, ledgerLink } from "./address.js";
import { button, choice, field, having, make, put } from "./dom.js";
import { clock } from "./format.js";
import { problem } from "./problem.js";
import { Rows } from "./rows.js";
import { STATUSES, answerOf, isOlder } from "./webhook_parts.js";

const PAGE = 200;
/** Deliveries that are read again in each round: the newest ones, and those in sight. */
const FRESH = 60;
const EVERY = 2500;
/** The same while a search for a rare status reads many deliveries. */
const EVERY_SLOW = 15000;

const HEADS = ["Time", "Status", "Event", "Ledger", "Attempts", "Last answer"];

class Deliveries extends Rows {
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

  /** Returns the first item in sight and its index. */
  get top() {
    const index = Math.min(Math.floor(this.scroller.scrollTop / this.height), Math.max(0, this.items.length - 1));
    return { index, item: this.items[index] };
  }

  /**
   * Replaces the items. The rows in sight stay where they are, unless the list is at its beginning and nobody points at
   * it. Rows of items that have not changed remain the same elements.
   */
  replace(items) {
    const { height, scroller, top, items: old } = this;
    const known = new Map([...this.shown].map(([index, row]) => [old[index].delivery_id, { row, text: JSON.stringify(old[index]) }]));
    const isAtTop = scroller.scrollTop === 0 && !this.grid.matches(":hover, :focus-within");
    this.items = items;
    this.shown = new Map();
    items.forEach((item, index) => {
      const found = known.get(item.delivery_id);
      if (found === undefined || found.text !== JSON.stringify(item)) return;
      found.row.style.top = `${index * height}px`;
      this.shown.set(index, having(found.row, { "aria-rowindex": index + 2 }));
    });
    this.draw();
    if (isAtTop || top.item === undefined) return;
    const behind = olderThan(items, top.item.delivery_id);
    const now = items[behind - 1]?.delivery_id === top.item.delivery_id ? behind - 1 : behind;
    scroller.scrollTop += (now - top.index) * height;
  }
}

/** Returns the index of the first item that is older than this one. */
function olderThan(items, id) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isOlder(items[middle].delivery_id, id)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Returns items in which those after `after`, up to `until`, are replaced by a page. Null stands for the ends of the list. */
const merged = (items, page, after, until) => [
  ...after === null ? [] : items.slice(0, olderThan(items, after)), ...page,
  ...until === null ? [] : items.slice(olderThan(items, until)),
];

/** The list with its filter. `open(id)` shows a delivery; `beside` stands below the filter. */
export class DeliveryList {
  constructor(view, id, open, beside) {
    Object.assign(this, { view, id, open, isSlow: false });
    this.status = choice([["", "any"], ...Object.keys(STATUSES).map((status) => [status, status])], view.query.get("status") ?? "");
    this.status.addEventListener("change", () => {
      view.setQuery({ status: this.status.value });
      this.begin();
    });
    this.newest = button("To the newest", "quiet", () => { this.begin(); });
    this.newest.hidden = true;
    this.said = having(make("div", "note"), { role: "status" });
    this.place = make("div", "", make("div", "row", field("Status", this.status), this.newest), beside, this.said);
  }

  /** Reads the list from its beginning. */
  async begin() {
    const { status: { value: status }, view } = this;
    this.rows?.observer.disconnect();
    const rows = new Deliveries({
      label: "Deliveries", kind: "webhook-list", heads: HEADS, row: (item) => this.row(item),
      more: (last) => this.more(rows, status, last?.delivery_id ?? null),
      empty: status === "" ? "Nothing has been sent yet, and nothing waits." : `No delivery is ${status}.`,
    });
    rows.opened = this.rows?.opened ?? view.query.get("delivery");
    rows.spacer.addEventListener("click", (event) => {
      if (event.target.closest("a, button")) return;
      const found = [...rows.shown].find(([, row]) => row.contains(event.target));
      if (found && getSelection().isCollapsed) this.show(rows.items[found[0]].delivery_id);
    });
    rows.scroller.addEventListener("scroll", () => { this.newest.hidden = rows.scroller.scrollTop === 0; });
    this.rows?.element.remove();
    this.rows = rows;
    this.isSlow = false;
    this.newest.hidden = true;
    this.place.append(rows.element);
    try {
      await rows.load();
      rows.draw();
    } catch (error) {
      if (this.rows === rows) put(this.said, problem(error) ?? "");
      if (!(error instanceof Stale)) rows.element.remove();
    }
  }

  show(id) {
    this.rows?.mark(id);
    this.open(id);
  }

  row(item) {
    const last = item.attempts.at(-1);
    const opener = button("", "link", () => this.show(item.delivery_id));
    opener.append(clock(item.created_at));
    opener.title = "Shows this delivery";
    const answer = item.status === "pending" && last === undefined ? "" : last === undefined ? item.reason ?? "" : answerOf(last);
    return [opener, make("span", STATUSES[item.status], item.status), item.event_id === null ? "test" : eventLink(item.event_id),
      ledgerLink(item.ledger), make("span", "", String(item.attempts.length), item.replays > 0 ? make("small", "note", " sent again") : null),
      make("bdi", "", answer.slice(0, 120))];
  }

  async ask(status, cursor, limit) {
    const query = new URLSearchParams({ limit, ...(status && { status }), ...(cursor && { cursor }) });
    return ask(`rest/webhooks/${this.id}/deliveries?${query}`, { signal: this.view.signal });
  }

  /** Returns the deliveries after `cursor`. A search for a rare status takes several requests. */
  async more(rows, status, cursor) {
    for (let searches = 1; ; searches += 1) {
      try {
        const page = await this.ask(status, cursor, PAGE);
        if (this.rows === rows) put(this.said);
        return page;
      } catch (error) {
        if (!(error instanceof Refused) || error.status !== 422 || !error.told.cursor || this.rows !== rows) throw error;
        cursor = error.told.cursor;
        this.isSlow = true;
        put(this.said, `Searching: about ${(searches * 20000).toLocaleString("en-US")} older deliveries have another status …`);
      }
    }
  }

  /** Reads the newest deliveries and those in sight again, and shows what has changed. */
  async update() {
    const { rows } = this;
    const status = this.status.value;
    if (rows === undefined || rows.loading !== null) return;
    await this.refresh(rows, status, null);
    const { index } = rows.top;
    if (index > FRESH / 3) await this.refresh(rows, status, rows.items[Math.max(0, index - 10)].delivery_id);
  }

  async refresh(rows, status, after) {
    let page = [];
    let until = null;
    try {
      page = await this.ask(status, after, FRESH);
      until = page.at(-1)?.delivery_id ?? null;
    } catch (error) {
      if (!(error instanceof Refused) || !error.told.cursor) throw error;
      until = error.told.cursor;
      this.isSlow = true;
    }
    if (this.rows !== rows || rows.loading !== null) return;
    const [first] = rows.items;
    const isGap = after === null && first !== undefined && page.length >= FRESH && isOlder(first.delivery_id, until);
    if (isGap && rows.scroller.scrollTop > 0) {
      this.newest.hidden = false;
      return;
    }
    if (isGap || first === undefined) rows.isEnd = page.length === 0;
    rows.replace(isGap ? page : merged(rows.items, page, after, until));
  }

  /** Keeps the list up to date while the page is open. */
  async follow() {
    const { view } = this;
    while (!view.signal.aborted) {
      await pause(this.isSlow ? EVERY_SLOW : EVERY);
      if (document.hidden || view.signal.aborted) continue;
      try {
        await this.update();
      } catch (error) {
        if (!(error instanceof Stale) && !(error instanceof Unreachable)) put(this.said, problem(error));
      }
    }
  }
}
