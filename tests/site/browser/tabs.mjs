// Many tabs of one browser, which has six connections to the service; and a tab that is hidden. Further member of the
// argument: `tabs`, how many.

import { Notes, ask, context, given, latestLedger, launch, open, settled, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const made = await context(browser, notes);
const told = { behind: [], outages: [] };
const [{ contracts: [contract] }] = await ask("rest/retroshade/list");

// The first page has its ledgers beside the events, and asks for them with each event of a newer one.
const LEDGER = "main .events .spacer .row a[href*='/ledger/'], main [data-moves] a[href*='/ledger/']";
const newest = (page) => page.evaluate((it) => Number(document.querySelector(it)?.textContent ?? 0), LEDGER);
const outage = (page) => page.evaluate(() => document.querySelector("#outage").hidden ? "" : document.querySelector("#outage").innerText);

/** Streams that a page has open. */
function counted(page) {
  const streams = new Set();
  page.on("request", (request) => { if (request.url().includes("/events/stream")) streams.add(request); });
  for (const name of ["requestfinished", "requestfailed"]) page.on(name, (request) => streams.delete(request));
  return streams;
}

const tabs = [];
for (let number = 0; number < given.tabs; number += 1) {
  const page = await made.newPage();
  const streams = counted(page);
  await open(page, number % 2 === 0 ? "" : `contract/${contract}`);
  tabs.push({ page, streams });
}
// Every tab shows what is stored now, and says nothing of the service.
const latest = await latestLedger();
for (const [number, { page }] of tabs.entries()) {
  await until(`tab ${number} shows events after ledger ${latest}`, async () => await newest(page) > latest, 20000)
    .catch(async (error) => told.behind.push(`${number}: ${error.message}`));
  const said = await outage(page);
  if (said !== "") told.outages.push(`${number}: ${said}`);
}
told.streams = tabs.reduce((sum, { streams }) => sum + streams.size, 0);
// A statement in the last one is answered.
{
  const { page } = tabs.at(-1);
  await open(page, "sql");
  await page.locator("main textarea").first().fill("select 42 as answer");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  told.answered = await until("the statement is answered", () => page.evaluate(() =>
    document.querySelector(".sql-body [role=row]")?.innerText.trim()), 20000).catch((error) => error.message);
}
for (const { page } of tabs) await page.close();

// A hidden tab lets go of its stream, and has every event once when it is shown again.
{
  const page = await made.newPage();
  const streams = counted(page);
  await open(page, `contract/${contract}`);
  const hide = (isHidden) => page.evaluate((it) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => it });
    document.dispatchEvent(new Event("visibilitychange"));
  }, isHidden);
  await until("it has a stream", () => streams.size === 1);
  await hide(true);
  told.let_go = await until("the stream is let go", () => streams.size === 0, 10000).catch((error) => error.message);
  const before = await newest(page);
  await until("ledgers are stored meanwhile", async () => await latestLedger() > before + 6);
  told.hidden_changed = await newest(page) !== before;
  await hide(false);
  await until("it goes on", async () => await newest(page) > before + 5, 20000);
  await settled(page);
  const ids = await page.$$eval("main .events .spacer .row a[href*='/ledger/']", (all) => all.map((it) => Number(it.textContent)));
  told.in_order = ids.every((ledger, index) => index === 0 || ledger <= ids[index - 1]);
  await hide(true);
  await page.close();
}
await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
