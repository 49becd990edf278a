// The documents and the reference: accessibility, width, addresses of before the reference had several pages, the search
// and copying. Further members of the argument: `widths`, and `pictures`, a directory, or null.

import { mkdirSync } from "node:fs";
import path from "node:path";
import { Notes, axe, base, context, given, launch, overflow, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const rules = axe();
const told = { axe: rules !== null, violations: [], wide: [], bytes: {}, moved: {} };

const PAGES = ["docs", "docs/install", "docs/webhooks", "docs/api", "docs/api/events", "docs/api/records"];
for (const colorScheme of ["light", "dark"]) {
  for (const width of given.widths) {
    const made = await context(browser, notes, { colorScheme, viewport: { width, height: 900 } });
    const page = await made.newPage();
    for (const where of PAGES) {
      const label = `${where.replaceAll("/", "-")}-${width}-${colorScheme}`;
      const answer = await page.goto(base + where);
      told.bytes[where] = (await answer.body()).length;
      await page.waitForSelector("#search:not([hidden])");
      const extra = await overflow(page);
      if (extra !== 0) told.wide.push(`${label}: ${extra} px`);
      if (given.pictures) {
        mkdirSync(given.pictures, { recursive: true });
        await page.screenshot({ path: path.join(given.pictures, `${label}.png`) });
      }
      if (rules === null) continue;
      await page.evaluate(rules);
      const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      told.violations.push(...found.violations.map(({ id, nodes }) => `${label}: ${id}: ${nodes[0].html.slice(0, 160)}`));
    }
    await made.close();
  }
}

const made = await context(browser, notes, { permissions: ["clipboard-read", "clipboard-write"] });
const page = await made.newPage();
for (const [part, place] of Object.entries(given.moved)) {
  await page.goto("about:blank");
  await page.goto(`${base}docs/api#${part}`);
  await page.waitForSelector("#search:not([hidden])");
  told.moved[part] = await until(`${part} leads to ${place}`, () => {
    const at = page.url().slice(base.length);
    return at === `${place}#${part}` && at;
  });
  const isThere = await page.evaluate((id) => document.getElementById(id)?.matches("h2, h3"), part);
  if (!isThere) throw new Error(`${place} has no heading ${part}`);
}

await page.goto(`${base}docs`);
await page.locator("#search-text").fill("ticket stream");
const found = page.locator("#found a", { hasText: "POST /rest/events/stream/ticket" });
await found.click();
told.found = await until("the place is open", () => page.url().includes("#") && page.url().slice(base.length));
told.current = await page.locator("header nav a[aria-current]").allInnerTexts();
await page.locator("#post-resteventsstreamticket ~ pre button").first().click();
told.copied = await until("it is copied", () => page.evaluate(() => navigator.clipboard.readText()));

await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
