// Units of amounts: of assets, as their contracts name them in events, and of tokens, as their contracts declare them.

import { ask } from "./api.js";
import { contractOf } from "./asset.js";
import { beginning, latest } from "./health.js";

/** Events and functions whose `amount` is in the smallest unit of the token that has them (SEP-41, CAP-67). */
const OF_TOKENS = ["transfer", "mint", "burn", "clawback", "approve", "fee"];
/** Contracts whose units are remembered, and those that may wait to be asked: they are asked one after the other. */
const MOST = 500;
const MOST_WAITING = 20;
/** How long a contract counts as none of a token, in milliseconds. What it runs may become known later. */
const AGAIN = 30000;
/** How long an answer may take, in milliseconds: others wait for it. */
const TIMEOUT = 10000;

/** The units that were asked for, by contract, and until when they hold. */
const known = new Map();
let queue = Promise.resolve();
let waiting = 0;

async function read(contract) {
  const { token, executable } = await ask(`rest/contracts/${contract}`, { timeout: TIMEOUT });
  if (token === null) return null;
  return executable?.stellar_asset ? { decimals: token.decimals, asset: token.name }
    : { decimals: token.decimals, symbol: (token.symbol ?? "").slice(0, 32) };
}

/** Returns the unit of a contract's token; null if it is none, or that cannot be known now. */
function tokenOf(contract) {
  const found = known.get(contract);
  if (found?.until > performance.now()) return found.unit;
  if (waiting === MOST_WAITING) return null;
  waiting += 1;
  queue = queue.then(() => read(contract)).catch(() => null).then((unit) => {
    waiting -= 1;
    if (unit === null) known.set(contract, { unit, until: performance.now() + AGAIN });
    return unit;
  });
  if (known.size >= MOST) known.clear();
  known.set(contract, { unit: queue, until: Infinity });
  return queue;
}

/** Returns the asset that an event names; null if its contract is not that of the asset: anybody may name any. */
export function assetOf({ contract_id: contract, decoded }) {
  const asset = decoded.params?.sep0011_asset;
  return typeof asset === "string" && contractOf(asset, latest?.network_passphrase) === contract ? asset : null;
}

/**
 * Returns the unit of an event's amount, which has `decimals` and an `asset` (SEP-11) or the `symbol` that a contract
 * has chosen; null if it has none, or it is not known. The contract is asked if the event does not tell.
 */
export async function unitOf(event) {
  const { contract_id: contract, decoded: { name, params } } = event;
  if (!OF_TOKENS.includes(name) || typeof params?.amount !== "string" || contract === "") return null;
  await beginning;
  const asset = assetOf(event);
  return asset === null ? tokenOf(contract) : { decimals: 7, asset };
}
