// Names of addresses: those that were not looked at in time are asked for again, and a search finds an address by its
// name.
// `given.name` is the name of an asset.

import { Notes, context, given, launch, open, settled, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes)).newPage();
const asked = [];
await page.route("**/rest/contracts/labels?addresses=*", async (route) => {
  asked.push(new URL(route.request().url()).searchParams.get("addresses").split(",").length);
  // The first answers end before any address was looked at.
  return asked.length <= 2 ? route.fulfill({ json: [], headers: { "X-Result-Truncated": "true" } }) : route.continue();
});
await open(page, "");
await settled(page);
await until("names are shown", () => page.evaluate(() => document.querySelector("main .alias:not([hidden])") !== null));
await open(page, `search?q=${given.name.toLowerCase()}`);
await until("the search has ended", () => page.evaluate(() => document.querySelector("main li, main b") !== null));
const text = await page.evaluate(() => document.querySelector("main").innerText);
await tell(browser, { asked, text, complaints: notes.complaints });
