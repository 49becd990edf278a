// Assets and their contracts: the id of an asset's contract is a hash of the asset, so nobody else's contract has it.

import { sha256 } from "./sha256.js";
import { keyOf } from "./strkey.js";
import { strkey } from "./topics.js";

/** First byte of the addresses of contracts. */
const CONTRACT = 2 << 3;
const utf8 = (text) => [...new TextEncoder().encode(text)];

/** Returns an asset (SEP-11: `code:issuer` or `native`) as XDR; null if the text is none. */
function xdrOf(asset) {
  if (asset === "native") return [0, 0, 0, 0];
  const [, code, issuer] = /^([A-Za-z0-9]{1,12}):(G[A-Z2-7]{55})$/.exec(asset) ?? [];
  if (code === undefined) return null;
  const size = code.length > 4 ? 12 : 4;
  const padded = [...utf8(code), ...Array(size - code.length).fill(0)];
  return [0, 0, 0, size === 4 ? 1 : 2, ...padded, 0, 0, 0, 0, ...keyOf(issuer)];
}

/** Contracts of assets, by passphrase and asset. */
const known = new Map();
const MOST = 1000;

/** Returns the address of an asset's contract in the network with this passphrase; null if the text is no asset. */
export function contractOf(asset, passphrase) {
  const name = `${asset} ${passphrase}`;
  if (!known.has(name)) {
    const xdr = xdrOf(asset);
    // XDR HashIDPreimage: its type, the network, and the kind of what the contract is made from.
    const preimage = xdr && [0, 0, 0, 8, ...sha256(utf8(passphrase)), 0, 0, 0, 1, ...xdr];
    if (known.size >= MOST) known.clear();
    known.set(name, preimage && strkey(CONTRACT, sha256(preimage)));
  }
  return known.get(name);
}
