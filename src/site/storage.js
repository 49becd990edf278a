// What a contract holds, at the end of the newest ledger or of another one: the map of its instance, then its entries by
// name, and the history of each.

import { encoded, ledgerLink, link, transactionLink } from "./address.js";
import { Refused, ask } from "./api.js";
import { button, form, having, joined, make, note, put, submit } from "./dom.js";
import { clear, ledgerField, textField, written } from "./filter.js";
import { clock, number, words } from "./format.js";
import { pieces } from "./pieces.js";
import { table, tag } from "./table.js";
import { foldedLong, isObject, plain } from "./value.js";

/** Entries of a page of the service, entries of a name that are shown at a time, and changes of a page of a history. */
const PAGE = 200;
const AT_ONCE = 10;
const CHANGES = 20;
/** Columns of entries. */
const HEADS = ["Key", "Value", "Updated", "Lives until", "History"];

/** What is said of the value before, where that is no other one. */
const BEFORE = words({ extended: "the same", evicted: "the same", found: "not known" });
/** Who made a change that no transaction made. */
const BY = words({ evicted: "by the network", found: "in a history archive" });

/** Creates a value. */
const valueOf = (content) => [foldedLong(content, plain), "wide"];

/** Creates the key of an entry or a change: what follows its name, which `hasName` puts before that. */
function keyOf({ key, name, args, durability, archived, archived_value: mark }, hasName) {
  const shown = name === null || args === null ? [key === null ? "not known" : plain(key)]
    : [hasName || args.length === 0 ? [make("b", "", name), " "] : null, joined(args.map((it) => [plain(it)]))].flat();
  return make("span", "", shown,
    durability === "temporary" ? [" ", tag(["temporary", ""])] : null,
    archived === true ? [" ", tag([mark === undefined ? "archived" : `archived, its value ${mark}`, "warn"])] : null);
}

/** Says until when an entry lives. */
const lifeOf = ({ live_until_ledger: until, archived }) =>
  until === null ? make("span", "null", archived === true ? "archived" : "not known") : String(until);

const updateOf = ({ updated_ledger: ledger, updated_at: at, tx }) => make("span", "",
  ledgerLink(ledger), at === null ? null : [" ", clock(at)], tx === null ? null : [" ", transactionLink(tx, 4)]);

/** Whether a change is an update of an instance, of which only what differs is shown. */
const isOfInstance = ({ kind, key, name, previous, value }) =>
  kind === "updated" && key === "instance" && name === null && isObject(previous) && isObject(value);

/** Returns those parts of an instance that another one does not have. */
function different(instance, other) {
  const itemsOf = ({ storage }) => Array.isArray(storage) ? storage : Object.entries(storage);
  const known = new Set(itemsOf(other).map((item) => JSON.stringify(item)));
  const left = itemsOf(instance).filter((item) => !known.has(JSON.stringify(item)));
  const isSame = JSON.stringify(instance.executable) === JSON.stringify(other.executable);
  return {
    ...isSame ? {} : { executable: instance.executable },
    storage: Array.isArray(instance.storage) ? left : Object.fromEntries(left),
  };
}

/** Creates the cells of the values before and after a change. */
function valuesOf(change) {
  const { kind, previous, value } = change;
  const none = (text) => [make("span", "null", text), "wide"];
  if (isOfInstance(change)) return [valueOf(different(previous, value)), valueOf(different(value, previous))];
  return [
    kind in BEFORE ? none(BEFORE[kind]) : previous !== null ? valueOf(previous) : none(kind === "created" ? "none" : "not known"),
    value !== null ? valueOf(value) : none(kind === "removed" ? "none" : "not known"),
  ];
}

/** Creates the table of changes; of a transaction, with the contract that `contractOf` creates. */
export function changesOf(changes, label, contractOf) {
  const [heads, before] = contractOf === undefined
    ? [["Change", "Ledger", "Transaction"], (change) => [change.kind,
      make("span", "", ledgerLink(change.ledger), change.ledger_closed_at === null ? null : [" ", clock(change.ledger_closed_at)]),
      change.tx === null ? make("span", "null", BY[change.kind] ?? "") : transactionLink(change.tx, 4)]]
    : [["Change", "Contract", "Key"], (change) => [change.kind, contractOf(change), [keyOf(change, true), "wide"]]];
  const rows = changes.map((change) => [...before(change), ...valuesOf(change), String(change.live_until_ledger ?? "")]);
  const made = table([...heads, "Before", "After", "Lives until"], rows, label);
  // Three of its columns are wide.
  made.classList.add("many");
  return make("div", "", made,
    changes.some(isOfInstance) ? note("After the update of an instance, only what differs is shown.") : null);
}

/** Creates a button that adds more to a place by calling `more`, and below it tells an error of that. */
function moreButton(view, text, more) {
  const failure = make("div");
  return make("div", "", button(text, "quiet", () => view.fill(failure, more)), failure);
}

/** Focuses the button that follows the one that was pressed, if there is more. */
const focusMore = (place) => place.lastElementChild.querySelector(":scope > button")?.focus();

/** Fills a place with the history at a path, and adds older changes at the press of a button. */
async function history(view, path, body) {
  put(body, note("Reading its history …"));
  const all = [];
  const more = async (cursor) => {
    const isFirst = cursor === null;
    const answer = await ask(`${path}${isFirst ? "" : `&cursor=${encoded(cursor)}`}`, { signal: view.signal });
    all.push(...answer.changes);
    const since = answer.known_since;
    put(body, all.length === 0 ? note("No change of it is stored.") : changesOf(all, "History"),
      since === null ? null : note("From ledger ", ledgerLink(since), " on, no change is missing."),
      answer.cursor === null ? null : moreButton(view, "Show older changes", () => more(answer.cursor)));
    if (!isFirst) focusMore(body);
  };
  await more(null);
}

/** Creates the button that shows the history of a key below its row. `path` returns a promise of its route. */
function historyButton(view, key, path) {
  let opened = null;
  const made = having(button("History", "quiet small", async () => {
    if (opened !== null) {
      opened.remove();
      opened = null;
      having(made, { "aria-expanded": false });
      return;
    }
    const body = make("div");
    opened = make("tr", "", having(make("td", "wide storage-history", body), { colspan: HEADS.length }));
    made.closest("tr").after(opened);
    having(made, { "aria-expanded": true });
    await view.fill(body, async () => history(view, await path(), body));
  }), { "aria-expanded": false, "aria-label": `History of ${key.textContent}` });
  return made;
}

/** Creates the table of entries of one name. `path` returns a promise of the route of an entry's history. */
function entriesTable(view, entries, label, path) {
  const made = table(HEADS, entries.map((entry) => {
    const key = keyOf(entry, false);
    return [[key, "wide"], valueOf(entry.value), updateOf(entry), lifeOf(entry),
      historyButton(view, key, () => path(entry))];
  }), label);
  made.classList.add("storage-entries");
  return made;
}

/** Creates the map of the instance, and the history of the whole of it. */
function instanceOf(view, contract, { instance, ledger }, name) {
  if (instance === null) return null;
  const route = `rest/contracts/${contract}/storage`;
  const page = `decoded=true&limit=${CHANGES}`;
  const itemPath = async (item) => {
    // The key as the service reads it: that of the same item in the answer without plain values.
    const query = `durability=instance&at=${ledger}${name ? `&name=${encoded(name)}` : ""}`;
    const raw = await ask(`${route}?${query}`, { signal: view.signal });
    const { key } = raw.instance.storage[instance.storage.indexOf(item)];
    return `${route}/${instance.key_hash}/history?${page}&key=${encoded(key)}`;
  };
  const whole = { ...instance, key: "instance", name: null, args: null, durability: "persistent", value: instance.executable };
  const shown = [...instance.storage, ...name ? [] : [whole]];
  if (shown.length === 0) return null;
  const path = async (entry) =>
    entry === whole ? `${route}/${instance.key_hash}/history?${page}` : itemPath(entry);
  return make("div", "", make("h3", "", "Instance"), entriesTable(view, shown, "The instance and its map", path));
}

/** Says of which ledger this is, and what is not in it because it is not known. */
function extent(contract, answer, { entries, name }) {
  const { ledger, complete, instance, cursor, known_in: elsewhere, known_since: since } = answer;
  const under = name ? ` under the name ${name}` : "";
  const at = [" at the end of ledger ", ledgerLink(ledger)];
  const isEmpty = entries.length === 0 && (instance === null || (name && instance.storage.length === 0));
  if (isEmpty && cursor === null) {
    if (complete) return note(`It holds nothing${under}`, ...at, ".");
    return note(`What it holds${under}`, ...at, " is not known: the stored ledgers do not tell.",
      elsewhere === undefined ? null : [" It is known in the ledgers ", link(`contract/${contract}?at=${elsewhere[0]}`, String(elsewhere[0])),
        " to ", link(`contract/${contract}?at=${elsewhere[1]}`, String(elsewhere[1])), "."]);
  }
  const said = !complete ? ["This may not be all that it holds", under, ...at, ": entries of which the stored ledgers do not tell are left out."]
    : [cursor === null ? "This is all that it holds" : "What it holds", under, ...at, "."];
  return note(...said, since === null || since === ledger ? null
    : [" The same is known of all ledgers from ", ledgerLink(since), " on."]);
}

/** Creates what was read so far: `answer` is the first page, with the cursor of the last one. */
function list(view, contract, answer, { entries, name, isOrdered }) {
  const path = async ({ key_hash: hash }) => `rest/contracts/${contract}/storage/${hash}/history?decoded=true&limit=${CHANGES}`;
  const groups = [...Map.groupBy(entries, (entry) => entry.name ?? "")].sort(([one], [other]) =>
    (one === "") - (other === "") || (one < other ? -1 : Number(one > other)));
  const isPending = entries.some((entry) => entry.names_pending);
  return [
    extent(contract, answer, { entries, name }),
    isPending ? note("The types that the contract declares are being read: look it up again in some seconds.") : null,
    isOrdered ? null : note("It has too many entries for an order by time: of each name, these are in no order."),
    instanceOf(view, contract, answer, name),
    groups.map(([group, some]) => make("div", "", make("h3", "", group || "Without a name"),
      pieces(some, AT_ONCE, (shown) => entriesTable(view, shown, group || "Entries without a name", path)))),
  ].flat();
}

/** Fills a part of a contract's page. The name and the ledger are parameters of the page's address. */
export function storage(view, contract, body) {
  const place = make("div");
  const aloud = having(make("p", "offscreen"), { role: "status" });
  const read = (cursor, order) => {
    const [name, at] = [view.query.get("name"), view.query.get("at")];
    const wanted = { decoded: true, limit: PAGE, ...name && { name }, ...at && { at }, ...order, ...cursor && { cursor } };
    return ask(`rest/contracts/${contract}/storage?${new URLSearchParams(wanted)}`, { signal: view.signal });
  };
  const show = (isFirst) => view.fill(place, async () => {
    put(place, note("Reading what it holds …"));
    const name = view.query.get("name");
    let order = { order_by: "updated" };
    const answer = await read(null, order).catch((error) => {
      // Of very many entries, there is only the order of the hashes.
      if (!(error instanceof Refused) || error.status !== 400 || !error.message.includes("'order_by'")) throw error;
      order = {};
      return read(null, order);
    });
    const { entries } = answer;
    const draw = () => put(place, ...list(view, contract, answer, { entries, name, isOrdered: "order_by" in order }),
      answer.cursor === null ? null : moreButton(view, "Show more entries", more));
    const more = async () => {
      const next = await read(answer.cursor, order);
      entries.push(...next.entries);
      answer.cursor = next.cursor;
      draw();
      focusMore(place);
      aloud.textContent = `${number(entries.length)} entries so far.`;
    };
    draw();
    if (!isFirst) aloud.textContent = place.firstChild.textContent;
  });
  const send = (values) => {
    view.setQuery(values);
    return show(false);
  };
  const element = form("storage-filter", () => send(written(element)),
    make("div", "row",
      textField("Name", "name", "Balance", view.query.get("name")), ledgerField("At the end of ledger", "at", view.query),
      submit("Look up"), button("Clear", "quiet", () => {
        clear(element);
        return send(written(element));
      })));
  put(body, element, place, aloud,
    note("Balances of accounts (G…) in assets to which they have trust lines are no data of a contract, and not among these."));
  return show(true);
}
