// Reaches pages by the search field and by links, and goes back and forward.

import { Notes, base, context, heading, launch, open, settled, tell, until } from "./common.mjs";
import { subjects } from "./subjects.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes)).newPage();
const { pages, event, transaction } = await subjects();
const where = Object.fromEntries(pages);
const told = { searched: {}, followed: {}, history: [] };

const at = () => page.url().slice(base.length);
const arrived = (path) => until(`${path} is open`, () => at() === path).then(() => settled(page));

async function search(text) {
  await page.fill("#search-text", text);
  await page.press("#search-text", "Enter");
  await settled(page);
  return { at: at(), heading: await heading(page), text: (await page.locator("main").innerText()).slice(0, 3000) };
}

await open(page, "");
told.searched.ledger = await search(String(event.ledger));
told.searched.ledger_with_spaces = await search(`  ${event.ledger} `);
told.searched.transaction = await search(event.tx);
told.searched.transaction_upper_case = await search(event.tx.toUpperCase());
told.searched.contract = await search(event.contract_id);
told.searched.account = await search(transaction[0].source_account);
told.searched.name = await search(event.decoded?.name ?? "transfer");
told.searched.credential = await search("6f7272657279277320706173736b6579");
told.searched.nothing = await search("nothing has this name");
told.searched.no_ledger = await search("4000000000");
told.searched.no_transaction = await search("0".repeat(64));
told.searched.no_contract = await search("CAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAD2KM");

// By links: the newest ledger of the first page, a transaction of it, its event, its contract, and the menu.
await open(page, "");
const loads = await page.evaluate(() => { window.isSame = true; return performance.getEntriesByType("navigation").length; });
for (const [name, selector] of [
  ["ledger", `main a[href="${base}${where.ledger}"]`],
  ["transaction", `main a[href="${base}${where.transaction}"]`],
  ["event", `main a[href="${base}${where.event}"]`],
  ["contract", `main a[href="${base}${where.contract}"]`],
  ["programs", "header nav a >> text=Programs"],
  ["program", `main a[href="${base}${where.program}"]`],
  ["webhooks", "header nav a >> text=Webhooks"],
  ["webhook", `main a[href="${base}${where.webhook}"]`],
  ["sql", "header nav a >> text=SQL"],
  ["trust", "header nav a >> text=Trust"],
  ["status", "header nav a >> text=Status"],
  ["home", "header nav a >> text=Newest"],
]) {
  if (where[name] === undefined) continue;
  try {
    await page.locator(selector).first().click({ timeout: 15000 });
    await arrived(where[name]);
    told.followed[name] = { at: at(), focus: await page.evaluate(() => document.activeElement?.tagName), title: await page.title() };
  } catch (error) {
    told.followed[name] = { failed: `${selector} on ${at()}: ${error.message.split("\n")[0]}` };
    await open(page, where[name]);
    await page.evaluate(() => { window.isSame = true; });
  }
}
told.loads = { loads, isSame: await page.evaluate(() => window.isSame === true) };

// Back to the beginning, and forward again.
await open(page, "");
for (const path of [where.ledger, where.contract, "sql", "status"]) {
  await page.evaluate((href) => {
    const link = document.createElement("a");
    link.href = href;
    document.body.append(link);
    link.click();
    link.remove();
  }, base + path);
  await arrived(path);
}
for (const step of ["goBack", "goBack", "goBack", "goBack", "goForward", "goForward"]) {
  await page[step]();
  await settled(page);
  told.history.push({ at: at(), heading: await heading(page), token: await page.locator("main .locked").count() });
}
await page.reload();
await settled(page);
told.reloaded = { at: at(), locked: await page.locator("main .locked").count() };
told.where = where;
await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
