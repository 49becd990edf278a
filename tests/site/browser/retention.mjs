// Pages of what retention removes: while they are open, and when they are opened afterwards. The service keeps few
// ledgers.

import { Notes, ask, context, heading, launch, open, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const made = await context(browser, notes);
const [event] = await ask("rest/events/by-ledger?limit=1&decoded=true");
const addresses = { ledger: `ledger/${event.ledger}`, transaction: `tx/${event.tx}`, event: `event/${event.id}` };
const told = { event: event.id, ledger: event.ledger, before: {}, open: {}, after: {} };
const seen = async (page) => ({ heading: await heading(page), text: (await page.locator("main").innerText()).slice(0, 3000) });

const tabs = {};
for (const [name, where] of Object.entries(addresses)) {
  tabs[name] = await made.newPage();
  await open(tabs[name], where);
  told.before[name] = await seen(tabs[name]);
}
await until("retention has removed the event", async () => await ask(`rest/events/by-id/${event.id}`) === null, 300000);
for (const name of Object.keys(addresses)) {
  await tabs[name].bringToFront();
  const says = () => tabs[name].evaluate(() => /retention has removed/i.test(document.querySelector("main").innerText));
  told.open[name] = { says: await until("it is said", says, 25000).catch(() => false), ...await seen(tabs[name]) };
}
for (const [name, where] of Object.entries(addresses)) {
  const page = await made.newPage();
  await open(page, where);
  told.after[name] = await seen(page);
}
await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
