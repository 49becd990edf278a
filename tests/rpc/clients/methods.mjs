// Calls every method that reads history with the official client, follows each list to its end, and prints the results
// as the client parsed them, in the same JSON format for all clients.
// Arguments: directory with node_modules/@stellar/stellar-sdk, URL of the RPC server, first ledger.
import { createRequire } from 'node:module';

const [directory, url, first] = process.argv.slice(2);
const sdk = createRequire(`${directory}/`)('@stellar/stellar-sdk');
const server = new sdk.rpc.Server(url, { allowHttp: true });
const startLedger = Number(first);
const base64 = (value) => value.toXDR('base64');

const ledgers = [];
for (let request = { startLedger }, latest = Infinity; (ledgers.at(-1)?.[0] ?? 0) < latest;) {
  const page = await server.getLedgers({ ...request, pagination: { ...request.pagination, limit: 5 } });
  for (const it of page.ledgers) {
    ledgers.push([it.sequence, it.hash, base64(it.headerXdr), base64(it.metadataXdr)]);
  }
  latest = page.latestLedger;
  request = { pagination: { cursor: page.cursor } };
}

const transaction = (it) => [it.txHash, it.status, it.ledger, it.applicationOrder, it.feeBump,
  base64(it.envelopeXdr), base64(it.resultXdr), base64(it.resultMetaXdr)];
const transactions = [];
for (let page = await server.getTransactions({ startLedger, pagination: { limit: 200 } });
  page.transactions.length > 0;
  page = await server.getTransactions({ pagination: { cursor: page.cursor, limit: 200 } })) {
  transactions.push(...page.transactions.map(transaction));
}

const singles = [];
for (const [hash] of transactions.filter((_, index) => index % 37 === 0)) {
  singles.push(transaction(await server.getTransaction(hash)));
}

const events = [];
for (let page = await server.getEvents({ startLedger, filters: [], limit: 5000 }); page.events.length > 0;
  page = await server.getEvents({ cursor: page.cursor, filters: [], limit: 5000 })) {
  for (const it of page.events) {
    events.push([it.id, it.type, it.ledger, it.ledgerClosedAt, it.contractId?.contractId() ?? '', it.txHash,
      it.operationIndex, it.transactionIndex, it.inSuccessfulContractCall, it.topic.map(base64), base64(it.value)]);
  }
}

const latest = await server.getLatestLedger();
const fees = await server.getFeeStats();
console.log(JSON.stringify({
  health: await server.getHealth().then((it) => it.status, (error) => error.message),
  passphrase: (await server.getNetwork()).passphrase,
  version: (await server.getVersionInfo()).version,
  latest: [latest.sequence, latest.id],
  fees: [fees.sorobanInclusionFee.p99, fees.inclusionFee.p99],
  ledgers, transactions, singles, events,
}));
