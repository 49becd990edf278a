// One address of every kind of page, of what is stored in the service.

import { ask } from "./common.mjs";

const isAccount = (address) => typeof address === "string" && /^G[A-Z2-7]{55}$/.test(address);

/** Returns pairs of a name and a path; pages of which the service has nothing are left out. */
export async function subjects() {
  const events = await ask("rest/events/by-ledger?limit=200&decoded=true");
  const programs = await ask("rest/retroshade/list") ?? [];
  const hooks = await ask("rest/webhooks/list") ?? [];
  const wallet = await smartAccount(programs);
  // A contract that declares its events: the one that most of the newest events are of.
  const named = events.filter((event) => event.decoded?.name && event.contract_id);
  const event = named[0] ?? events[0];
  const account = events.flatMap((it) => Object.values(it.decoded?.params ?? {})).find(isAccount);
  const transaction = event && await ask(`rest/txs/by-hash/${event.tx}`);
  const all = {
    home: "",
    ledger: event && `ledger/${event.ledger}`,
    transaction: event && `tx/${event.tx}`,
    event: event && `event/${event.id}`,
    contract: event && `contract/${event.contract_id}`,
    account: account && `account/${account}`,
    wallet: wallet && `account/${wallet}`,
    programs: "programs",
    program: programs[0] && `programs/${programs[0].id}`,
    tables: programs[1] && `programs/${programs[1].id}`,
    webhooks: "webhooks",
    webhook: hooks[0] && `webhooks/${hooks[0].id}`,
    sql: "sql",
    status: "status",
    trust: "trust",
    search: event && `search?q=${event.decoded?.name ?? "transfer"}`,
  };
  return { pages: Object.entries(all).filter(([, path]) => path !== undefined && path !== null), event, transaction };
}

/** A contract that the index of smart accounts knows; undefined if there is none. */
async function smartAccount(programs) {
  const contracts = programs.flatMap((program) => program.contracts);
  for (const contract of new Set(contracts)) {
    const found = await ask(`rest/smart-account-indexer/api/contract/${contract}`);
    if (found !== null) return contract;
  }
  return undefined;
}
