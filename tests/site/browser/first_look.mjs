// What pages show at the first look: data before keys, names before addresses, the next step, and on a phone the page
// before its head. Further member of the argument: `other`, a token of an owner without projects.

import { Notes, ask, base, context, given, heading, launch, open, settled, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes)).newPage();
const told = {};
const [{ contracts: [contract] }] = await ask("rest/retroshade/list");
const main = () => page.locator("main").innerText();
const part = (title) => page.locator("main section").filter({ has: page.getByRole("heading", { name: title, exact: true }) }).first();

// A table that is searched for by its name.
await open(page, "");
await page.fill("#search-text", "transfer");
await page.press("#search-text", "Enter");
await until("there are rows", () => page.locator(".sql-result .spacer .row").count());
told.columns = (await page.locator(".sql-result .head").innerText()).split(/\s+/).slice(0, 4);

// The plot of a statement does not touch the rows below it.
await open(page, "sql");
await page.locator("main textarea").first().fill("select _ledger, amount from demo.transfer order by _ledger");
await page.locator("main textarea").first().press("Control+Enter");
const plot = page.locator("main details").filter({ has: page.locator("summary", { hasText: "Plot" }) });
await plot.evaluate((it) => { it.open = true; });
await settled(page);
told.below_plot = await page.evaluate(() => {
  const [caption, rows] = ["main .caption", ".sql-result .rows"].map((it) => document.querySelector(it).getBoundingClientRect());
  return rows.top - caption.bottom;
});

// The token is issued where the data is.
await open(page, "sql", "");
told.token = await main();

// The contract of the native asset, and an account.
const events = await ask("rest/events/by-ledger?limit=500&decoded=true");
const native = events.find(({ decoded }) => decoded?.params?.sep0011_asset === "native");
await open(page, `contract/${native.contract_id}`);
// Names are read after the page.
told.native = await until("the asset is named", async () => {
  const seen = { heading: await heading(page), text: await main() };
  return seen.heading.startsWith("XLM") ? seen : Promise.reject(new Error(seen.heading));
});
await open(page, `account/${native.decoded.params.from}`);
told.account = await page.locator("main section h2").first().innerText();

// Tables of the events of a contract that has none, from the top of its page.
await open(page, `contract/${contract}`, given.other);
const tables = part("Tables of its events");
told.tables_first = await page.locator("main section h2").first().innerText();
await tables.getByLabel("Name of the project").fill("made_here");
await tables.getByRole("button", { name: "Make tables of its events" }).click();
told.tables = await until("there are tables", async () => {
  const text = await tables.innerText();
  return /made_here\.\w+/.test(text) ? text : Promise.reject(new Error(text));
});

// A click beside the links of a row opens a delivery.
await open(page, "webhooks/1");
const row = page.locator(".webhook-list .spacer .row").first();
const { width, height } = await row.boundingBox();
await row.click({ position: { x: width - 20, y: height / 2 } });
told.delivery = await until("a delivery is open", () => new URL(page.url()).searchParams.get("delivery"));

// Documents are linked where they are named.
await open(page, "trust");
told.documents = await page.locator("main a[href$='/docs/trust']").count();
told.paths = (await main()).includes(".md");

// A phone.
await page.setViewportSize({ width: 360, height: 740 });
await open(page, "");
told.phone = await page.evaluate(() => {
  const box = (selector) => document.querySelector(selector).getBoundingClientRect();
  const links = [...document.querySelectorAll("header nav a:not(.state)")].map((it) => it.getBoundingClientRect());
  const [badge, brand, token] = [box("header .state"), box("header .brand"), box("#token-toggle")];
  return {
    height: box("header").height, lines: new Set(links.map(({ top }) => Math.round(top))).size,
    isFree: badge.left >= brand.right && badge.right <= token.left,
  };
});
await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
