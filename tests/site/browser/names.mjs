// Names of accounts, on their own pages and beside their addresses. Further members of the argument: `account`, which the
// operator calls Treasury; `muxed`, a muxed address of it; `tx`, the hash of a transaction.

import { Notes, context, given, heading, launch, open, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes)).newPage();
const told = { headings: [] };

for (const address of [given.account, given.muxed]) {
  await open(page, `account/${address}`);
  const named = await until("the account has a name", async () => {
    const text = await heading(page);
    return text.includes("Treasury") && text;
  });
  told.headings.push(named.trim().replace(/\s+/g, " "));
}
told.title = await page.title();

// The demo has no transactions of muxed accounts, so the page is given such an answer.
await page.route(`**/rest/txs/by-hash/${given.tx}?**`, async (route) => {
  const answer = await route.fetch();
  const list = await answer.json();
  await route.fulfill({ json: list.map((it) => ({ ...it, source_account: given.muxed })) });
});
await open(page, `tx/${given.tx}`);
const source = page.locator("main .address").filter({ has: page.locator(`a[href$="/account/${given.muxed}"]`) }).first();
told.source = await until("the source has a name", async () => {
  const text = await source.innerText();
  return text.includes("Treasury") && text;
});
told.source = told.source.trim().replace(/\s+/g, " ");

await tell(browser, { ...told, complaints: notes.complaints });
