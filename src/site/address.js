// Addresses of pages and of the service. All are relative to the place that the site is served from, so that it works
// behind a proxy that adds a path prefix.

import { having, make } from "./dom.js";
import { number, short } from "./format.js";

/** Address of the first page, ending in `/`. */
export const BASE = new URL("../../", import.meta.url).href;

/** Returns the absolute address of a page or route of the service. */
export const to = (path) => new URL(path, BASE).href;

/** Creates a link to a page of the site, or to a route of the service. */
export const link = (path, ...children) => having(make("a", "", ...children), { href: to(path) });

/** Encodes a text for a path or a parameter. Half a surrogate pair, which cannot be encoded, becomes U+FFFD. */
export const encoded = (text) => encodeURIComponent(String(text).toWellFormed());

/** Creates a link to the SQL page with a query. */
export const sqlLink = (query, ...children) => link(`sql?q=${encoded(query)}`, ...children);

export const ledgerLink = (ledger) => link(`ledger/${ledger}`, String(ledger));
export const transactionLink = (hash, kept = 6) => link(`tx/${hash}`, short(hash, kept));
export const eventLink = (id) => link(`event/${id}`, String(id));

/** Returns the path of the page of an address (strkey, SEP-23); null if no page shows such an address. */
export function pathOf(address) {
  if (/^C[A-Z2-7]{55}$/.test(address)) return `contract/${address}`;
  return /^(G[A-Z2-7]{55}|M[A-Z2-7]{68})$/.test(address) ? `account/${address}` : null;
}

/** `of(address)` creates the element of the name of an address, which may come later. `labels.js` sets it. */
export const labels = { of: () => null };

/** Creates a link to the page of a contract or an account, after its name; text if no page shows such an address. */
export function addressLink(address, kept = 6) {
  const path = pathOf(address);
  return path === null ? short(address, kept)
    : make("span", "address", labels.of(address), link(path, short(address, kept)));
}

/** Creates text with ranges of ledgers, the first ones of many. */
export function ledgerRanges(list, most = 12) {
  const one = ([first, last]) => first === last ? [ledgerLink(first)] : [ledgerLink(first), "–", ledgerLink(last)];
  const shown = list.slice(0, most).flatMap((range, index) => index === 0 ? one(range) : [", ", ...one(range)]);
  return make("span", "ranges", ...shown, list.length > most ? ` and ${number(list.length - most)} more ranges` : "");
}
