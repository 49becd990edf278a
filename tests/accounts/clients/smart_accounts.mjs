// Sends requests to a server with the indexer client of smart-account-kit, and prints the results as JSON.
// node --import ./resolve.mjs smart_accounts.mjs PACKAGE BASE CREDENTIAL ADDRESS CONTRACT UNKNOWN
import { pathToFileURL } from "node:url";

const [directory, baseUrl, credential, address, contract, unknown] = process.argv.slice(2);
const { IndexerClient } = await import(pathToFileURL(`${directory}/dist/indexer.js`).href);
const client = new IndexerClient({ baseUrl, timeout: 10_000 });
const refused = await client.lookupByAddress("nonsense").catch((error) => ({
  name: error.name,
  status: error.status,
}));
console.log(
  JSON.stringify({
    healthy: await client.isHealthy(),
    credential: await client.lookupByCredentialId(credential),
    address: await client.lookupByAddress(address),
    detail: await client.getContractDetails(contract),
    unknown: await client.getContractDetails(unknown),
    nobody: await client.lookupByCredentialId("00ff"),
    stats: await client.getStats(),
    refused,
  }),
);
