// Units of tokens, as their contracts say them.

import { ask } from "./api.js";
import { beginning } from "./health.js";

/** Units that have been asked for, by contract: all tokens read the same. */
const known = new Map();
const MOST = 500;

/** The contract of lumens calls them `native`. */
const unit = (token) => token?.name === "native" ? { ...token, symbol: "XLM" } : token ?? null;

/** Returns what a contract says of its token, `{ name, symbol, decimals }`; null if it is none, or if that is not known. */
export function tokenOf(contract) {
  if (!known.has(contract)) {
    if (known.size >= MOST) known.clear();
    const asked = ask(`rest/contracts/${contract}`).then(({ token }) => unit(token)).catch(() => null).then((token) => {
      // What fails, and what is not known yet, is asked again by the next page.
      if (token === null) known.delete(contract);
      return token;
    });
    known.set(contract, asked);
  }
  return known.get(contract);
}

/** Returns the units of the contracts of these events, by contract. Only events that have an amount are asked for. */
export async function tokensOf(events, most = 10) {
  const contracts = events.filter(({ decoded, contract_id: contract }) => contract !== "" && decoded?.params?.amount !== undefined)
    .map(({ contract_id: contract }) => contract);
  await beginning;
  const distinct = [...new Set(contracts)].slice(0, most);
  return new Map(await Promise.all(distinct.map(async (contract) => [contract, await tokenOf(contract)])));
}
