// Funds an account, uploads a module, creates a contract from it and calls it, as the SDK's documentation shows.
// Prints the contract's address, waits for input on standard input, calls the contract and prints one JSON object.
// Arguments: directory with node_modules/@stellar/stellar-sdk, URL of the RPC server, path of the module.
import { createRequire } from 'node:module';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';

const [directory, url, module] = process.argv.slice(2);
const sdk = createRequire(`${directory}/`)('@stellar/stellar-sdk');
const server = new sdk.rpc.Server(url, { allowHttp: true });
const key = sdk.Keypair.random();
const networkPassphrase = (await server.getNetwork()).passphrase;

async function run(operation) {
  const account = await server.getAccount(key.publicKey());
  const built = new sdk.TransactionBuilder(account, { fee: sdk.BASE_FEE, networkPassphrase });
  const prepared = await server.prepareTransaction(built.addOperation(operation).setTimeout(60).build());
  prepared.sign(key);
  const sent = await server.sendTransaction(prepared);
  const done = await server.pollTransaction(sent.hash, { attempts: 60, sleepStrategy: () => 250 });
  if (done.status !== 'SUCCESS') throw new Error(`${sent.status} ${done.status}`);
  return { ...done, hash: sent.hash };
}

const funded = (await server.requestAirdrop(key.publicKey())).accountId();
const uploaded = await run(sdk.Operation.uploadContractWasm({ wasm: readFileSync(module) }));
const wasmHash = Buffer.from(sdk.scValToNative(uploaded.returnValue));
const address = new sdk.Address(key.publicKey());
const made = await run(sdk.Operation.createCustomContract({ address, wasmHash }));
const contract = sdk.Address.fromScVal(made.returnValue).toString();
console.log(contract);
await once(process.stdin, 'data');
process.stdin.destroy();
const amount = (value) => sdk.nativeToScVal(value, { type: 'i128' });
const call = (name, ...values) => run(new sdk.Contract(contract).call(name, address.toScVal(), ...values));
await call('fund', amount(100n), amount(100n));
const placed = await call('place', amount(7n), sdk.nativeToScVal(3, { type: 'u32' }));
await call('fill', placed.returnValue, amount(2n));
const filters = [{ type: 'contract', contractIds: [contract] }];
const { events } = await server.getEvents({ startLedger: placed.ledger, filters });
const walked = await server.getLedgers({ startLedger: placed.ledger, pagination: { limit: 1 } });
console.log(JSON.stringify({
  funded: funded === key.publicKey(),
  contract,
  hash: placed.hash,
  ledger: placed.ledger,
  event: { id: events[0].id, topic: sdk.scValToNative(events[0].topic[0]) },
  latest: (await server.getLatestLedger()).sequence >= placed.ledger,
  walked: walked.ledgers[0].sequence,
  listed: (await server.getTransactions({ startLedger: placed.ledger })).transactions
    .some((transaction) => transaction.txHash === placed.hash),
  health: (await server.getHealth()).status,
  code: (await server.getContractWasmByContractId(contract)).length,
}));
