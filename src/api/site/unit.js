// Units of tokens, as their contracts say them.

import { ask, session } from "./api.js";

/** Units that have been asked for, by contract and token of the session. */
const known = new Map();
const MOST = 500;

/** The contract of lumens calls them `native`. */
const unit = (token) => token?.name === "native" ? { ...token, symbol: "XLM" } : token ?? null;

/** Returns what a contract says of its token, `{ name, symbol, decimals }`; null if it is none, or if that is not known. */
export function tokenOf(contract) {
  const key = `${contract} ${session.token}`;
  if (!known.has(key)) {
    if (known.size >= MOST) known.clear();
    // What fails is asked again by the next page.
    const asked = ask(`rest/contracts/${contract}`).then(({ token }) => unit(token)).catch(() => { known.delete(key); return null; });
    known.set(key, asked);
  }
  return known.get(key);
}

/** Returns the units of the contracts of these events, by contract. Only events that have an amount are asked for. */
export async function tokensOf(events, most = 10) {
  const contracts = events.filter(({ decoded, contract_id: contract }) => contract !== "" && decoded?.params?.amount !== undefined)
    .map(({ contract_id: contract }) => contract);
  const distinct = [...new Set(contracts)].slice(0, most);
  return new Map(await Promise.all(distinct.map(async (contract) => [contract, await tokenOf(contract)])));
}
