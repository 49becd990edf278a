// What a contract holds, on its page, and what a transaction changed of it: in three widths, with the keyboard, at an
// earlier ledger, and where the service says that something is archived, not known, or wrong. Further members of the
// argument: `contract`, `widths`, `earlier`, a ledger, and `pictures`, a directory, or null.

import { mkdirSync } from "node:fs";
import path from "node:path";
import { Notes, ask, axe, context, given, launch, open, overflow, settled, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes)).newPage();
const told = { clipped: [], violations: [], states: {} };
const { contract } = given;
const part = (title) => page.locator("section", { has: page.locator("h2", { hasText: new RegExp(`^${title}$`) }) });
const storage = part("Storage");

/** What is cut off in a part of the page. */
const cut = (section) => section.evaluate((it) => [...it.querySelectorAll("td, h3, p")]
  .filter((cell) => cell.getClientRects().length > 0 && cell.scrollWidth > cell.clientWidth + 1)
  .map((cell) => `${cell.className} ${cell.textContent.slice(0, 60)}`));

async function measure(section, label) {
  for (const width of given.widths) {
    await page.setViewportSize({ width, height: 900 });
    await settled(page);
    told.clipped.push(...(await cut(section)).map((it) => `${label} ${width}: ${it}`));
    const extra = await overflow(page);
    if (extra > 0) told.clipped.push(`${label} ${width}: ${extra} px wider than the window`);
    if (given.pictures === null) continue;
    mkdirSync(given.pictures, { recursive: true });
    await section.screenshot({ path: path.join(given.pictures, `storage-${label}-${width}.png`) });
  }
  await page.setViewportSize({ width: 1280, height: 900 });
}

await open(page, `contract/${contract}`);
told.text = await storage.innerText();
told.names = await storage.locator("h3").allInnerTexts();
told.rows = await storage.locator("tbody tr").count();

// The history is one press of a key away, and closes again. Pages of it are short here.
await page.route(/\/history\?/, (request) =>
  request.continue({ url: request.request().url().replace(/limit=\d+/, "limit=3") }));
const offers = storage.locator("tr", { hasText: "offers" }).getByRole("button", { name: "History" });
await offers.focus();
await page.keyboard.press("Enter");
await until("the history is there", () => storage.locator(".storage-history tbody tr").count());
await settled(page);
told.history = {
  rows: await storage.locator(".storage-history tbody tr").count(),
  text: await storage.locator(".storage-history").innerText(),
  expanded: await offers.getAttribute("aria-expanded"),
  isFocused: await offers.evaluate((it) => it === document.activeElement),
};
await storage.getByRole("button", { name: "Show older changes" }).click();
await until("older changes are there", async () => await storage.locator(".storage-history tbody tr").count() > told.history.rows);
const rules = axe();
if (rules !== null) {
  await page.evaluate(rules);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  told.violations = found.violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 160)}`);
}
await measure(storage, "contract");
await offers.press("Enter");
await until("it is closed", async () => await storage.locator(".storage-history").count() === 0);

// The name and the ledger are in the address.
await storage.getByLabel("Name").fill("Account");
await storage.getByLabel("At the end of ledger").fill(String(given.earlier));
await page.keyboard.press("Enter");
await until("it is looked up", async () => (await storage.innerText()).includes(`end of ledger ${given.earlier}`));
told.chosen = { query: Object.fromEntries(new URL(page.url()).searchParams), names: await storage.locator("h3").allInnerTexts() };
await open(page, `contract/${contract}?at=${given.earlier}&name=Nothing`);
told.states.none = await storage.innerText();
const refusals = notes.refusals.length;
await open(page, `contract/${contract}?at=1`);
told.states.not_stored = await storage.innerText();
told.refusals = notes.refusals.slice(refusals).map((it) => it.split(" ")[0]);

// What other services may say.
const route = new RegExp(`/rest/contracts/${contract}/storage\\?`);
const whole = await ask(`rest/contracts/${contract}/storage?decoded=true&limit=1`);
const [entry] = whole.entries;
const answers = {
  archived: { ...whole, complete: false, cursor: null, entries: [{ ...entry, archived: true },
    { ...entry, name: "Wide", args: [], value: "f".repeat(4000), live_until_ledger: null, archived: null, durability: "temporary" },
    { ...entry, name: null, args: null, key: "k".repeat(200), value: null, tx: null, updated_at: null }] },
  unknown: { ...whole, complete: false, instance: null, entries: [], cursor: null, known_in: [3, 7] },
  failed: null,
};
for (const [name, answer] of Object.entries(answers)) {
  await page.route(route, (request) => answer === null
    ? request.fulfill({ status: 503, json: { error: "the index contract_data is not ready: ask again later", code: "not_ready" } })
    : request.fulfill({ json: answer }));
  await open(page, `contract/${contract}`);
  told.states[name] = await storage.innerText();
  if (name === "archived") {
    await storage.locator("summary").first().click();
    await measure(storage, name);
  }
  await page.unroute(route);
}
const held = [];
let isHeld = true;
await page.route(route, (request) => isHeld ? held.push(request) : request.continue());
const opening = open(page, `contract/${contract}`);
told.states.loading = await until("it is being read", async () => {
  const text = held.length > 0 && await storage.count() > 0 ? await storage.innerText() : "";
  return text.includes("Reading") ? text : null;
});
isHeld = false;
await Promise.all(held.map((request) => request.continue().catch(() => {})));
await opening;
await page.unroute(route);

// What a transaction changed.
const changes = await ask(`rest/contracts/${contract}/storage/changes?name=Account&limit=1`);
const { tx } = changes.changes[0];
await open(page, `tx/${tx}`);
const changed = part("Changes of what contracts hold");
told.changed = { text: await changed.innerText(), rows: await changed.locator("tbody tr").count() };
await measure(changed, "transaction");

await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
