// Pages without scripts: health is in the HTML itself.

import { Notes, base, given, launch, tell } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const made = await browser.newContext({ javaScriptEnabled: false, viewport: { width: 360, height: 780 } });
const page = await made.newPage();
notes.watchPage(page);
const told = { pages: {} };
for (const where of given.addresses) {
  await page.goto(base + where);
  told.pages[where] = {
    text: await page.locator("main").innerText(),
    badge: await page.locator("#badge").innerText(),
    search: await page.locator("#search").isHidden(),
    links: await page.$$eval("a", (all) => all.map((it) => it.href)),
    directory: await page.locator("html").getAttribute("data-dir"),
    wide: (await page.locator("body").boundingBox()).width > 360,
  };
}
await tell(browser, { ...told, requests: notes.requests, complaints: notes.complaints });
