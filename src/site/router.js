// Opens pages: the one of the address, of a link that is followed, and those of the browser's history.

import { BASE, link, to } from "./address.js";
import { Unreachable, ask } from "./api.js";
import { at, having, make } from "./dom.js";
import { whenAnswering } from "./health.js";
import { turn } from "./kept_rows.js";
import { find } from "./pages.js";
import { problem } from "./problem.js";
import { View } from "./view.js";

/** How long the scroll position waits for the first loads of a page's parts, in milliseconds. */
const PATIENCE = 1500;

let leaving = new AbortController();
/** Path and parameters of the page that is open. */
let opened = "";

/** Returns the part of an address after the first page's, without parameters; null if it is not of this site. */
function pathOf(href) {
  const { origin, pathname } = new URL(href);
  const plain = origin + pathname;
  if (`${plain}/` === BASE) return "";
  return plain.startsWith(BASE) ? plain.slice(BASE.length) : null;
}

function mark(path) {
  for (const item of document.querySelectorAll("header nav a")) {
    const own = pathOf(item.href);
    const isCurrent = path === own || (own !== "" && path.startsWith(`${own}/`));
    having(item, { "aria-current": isCurrent ? "page" : null });
    if (!isCurrent || item.matches(".state")) continue;
    // On a phone, the links are one line, of which the end may be out of sight.
    const line = item.parentElement;
    line.scrollLeft = item.offsetLeft - line.clientWidth / 2;
  }
}

/** Opens the page of the current address in place of the one that is open. */
export async function open({ scroll = 0, focus = false } = {}) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  turn();
  opened = location.pathname + location.search;
  const path = pathOf(location.href) ?? "";
  const found = find(path) ?? { load: () => ({ open: unknown }), params: {} };
  const root = make("div", "page");
  const view = new View(root, found.params, new URLSearchParams(location.search), signal, go);
  mark(path);
  try {
    const page = await loaded(found);
    if (signal.aborted || page === null) return;
    await page.open(view);
  } catch (error) {
    if (signal.aborted) return;
    if (root.querySelector("h1") === null) view.heading("This page cannot be shown now");
    view.add(problem(error) ?? "");
    if (error instanceof Unreachable) whenAnswering(() => open(), signal);
  }
  if (signal.aborted) return;
  const hadFocus = at("main").contains(document.activeElement);
  at("main").replaceChildren(root);
  if (focus || hadFocus) root.querySelector("h1")?.focus({ preventScroll: true });
  await Promise.race([Promise.allSettled(view.loads), new Promise((resolve) => setTimeout(resolve, PATIENCE))]);
  if (!signal.aborted && (scroll > 0 || focus)) scrollTo(0, scroll);
}

/**
 * Loads the module of a page. After an upgrade of the service its address is another one, so the site is loaded anew,
 * once; null until then.
 */
async function loaded({ load }) {
  try {
    return await load();
  } catch (error) {
    if (history.state?.isReloaded || !(error instanceof TypeError)) throw error;
    await ask("rest/health", { timeout: 2000 });
    history.replaceState({ ...history.state, isReloaded: true }, "");
    location.reload();
    return null;
  }
}

/** What other explorers call the pages of this one, as the first part of an address. */
const OTHER_NAMES = {
  contracts: "contract", accounts: "account", address: "account", ledgers: "ledger", block: "ledger", events: "event",
  transactions: "tx", transaction: "tx", txs: "tx", webhook: "webhooks", program: "programs",
};

function unknown(view) {
  view.heading("No such page");
  const [first, ...others] = (pathOf(location.href) ?? "").split("/");
  const meant = [OTHER_NAMES[first], ...others].join("/");
  view.add(make("section", "", make("p", "", "This address names no page. The search field above finds ledgers, "
    + "transactions, contracts and accounts; ", link("", "the first page"), " has the newest, and ",
  link("docs", "the documents"), " have a search of their own."),
  Object.hasOwn(OTHER_NAMES, first) && find(meant) ? make("p", "", "Did you mean ", link(meant, meant), "?") : null));
}

/**
 * Opens another page of the site. With `isReplaced`, it takes the place of the open one in the history. The history
 * notes that the address is the site's own, and not that of a link from elsewhere.
 */
export function go(path, { isReplaced = false } = {}) {
  if (!isReplaced) {
    history.replaceState({ ...history.state, scroll: scrollY }, "");
    history.pushState({ isOwn: true }, "", to(path));
  } else history.replaceState({ isOwn: true }, "", to(path));
  return open({ focus: true });
}

/** Follows links of the site without loading it anew, unless another window or a file is wanted. */
function follow(event) {
  const anchor = event.target.closest?.("a[href]:not([target], [download])");
  const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!anchor || !isPlain || event.defaultPrevented) return;
  // Not `anchor.href`, which is an object in drawings.
  const url = new URL(anchor.getAttribute("href"), location.href);
  const path = pathOf(url.href);
  if (path === null || find(path) === null || url.hash) return;
  event.preventDefault();
  go(path + url.search);
}

/** Opens the page of the address, and from then on those of links and of the history. */
export function begin() {
  // Links of the shell are relative to the page that was loaded, not to those that are opened after it.
  for (const item of document.querySelectorAll("header a, footer a")) having(item, { href: item.href });
  history.scrollRestoration = "manual";
  document.addEventListener("click", follow);
  addEventListener("popstate", (event) => {
    // The link to the content changes nothing but the part behind `#`.
    if (location.pathname + location.search !== opened) open({ scroll: event.state?.scroll ?? 0, focus: true });
  });
  open();
}
