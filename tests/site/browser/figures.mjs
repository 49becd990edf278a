// Figures: when the first text of two pages is seen, and the long tasks while a ledger of many events is read.
// `repetitions`, `events`: how often, and how many events the newest ledger has.

import { Notes, base, context, given, launch, open, settled, tell, until } from "./common.mjs";
import { subjects } from "./subjects.mjs";

const browser = await launch();
const notes = new Notes();
const { pages } = await subjects();
const where = Object.fromEntries(pages);
const told = { first_contentful_paint: {}, largest_contentful_paint: {}, first_rows: {}, tasks: {} };
const middle = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

const observe = () => {
  window.seen = { paints: {}, tasks: [] };
  new PerformanceObserver((list) => { for (const it of list.getEntries()) window.seen.paints[it.name || it.entryType] = it.startTime; })
    .observe({ type: "paint", buffered: true });
  new PerformanceObserver((list) => { for (const it of list.getEntries()) window.seen.paints.largest = it.startTime; })
    .observe({ type: "largest-contentful-paint", buffered: true });
  new PerformanceObserver((list) => { for (const it of list.getEntries()) window.seen.tasks.push(it.duration); })
    .observe({ type: "longtask", buffered: true });
};

for (const name of ["home", "contract"]) {
  const times = { first: [], largest: [], rows: [] };
  for (let round = 0; round < given.repetitions; round += 1) {
    // A new context: nothing is cached.
    const made = await context(browser, notes);
    await made.addInitScript(observe);
    // The token is there already, as after a reload.
    await made.addInitScript((token) => {
      // The empty page before it has no storage.
      if (location.protocol !== "about:") sessionStorage.setItem("orrery-token", token);
    }, given.token);
    const page = await made.newPage();
    await page.goto(`${base}${where[name]}`);
    await page.waitForSelector("main .spacer .row");
    times.rows.push(await page.evaluate(() => performance.now()));
    await settled(page);
    const { paints } = await page.evaluate(() => window.seen);
    times.first.push(paints["first-contentful-paint"]);
    times.largest.push(paints.largest);
    await made.close();
  }
  told.first_contentful_paint[name] = middle(times.first);
  told.largest_contentful_paint[name] = middle(times.largest);
  told.first_rows[name] = middle(times.rows);
}

// The newest ledger has many events; it is read to its end by scrolling.
const made = await context(browser, notes);
await made.addInitScript(observe);
const page = await made.newPage();
const began = Date.now();
await open(page, where.ledger);
const rows = page.locator("main .events .rows").first();
const counted = () => page.evaluate(() => document.querySelector("main .events .spacer .row:last-child")?.getAttribute("aria-rowindex"));
await until("all events are read", async () => {
  await rows.locator(".scroller").evaluate((it) => { it.scrollTop = it.scrollHeight; });
  return Number(await counted()) >= given.events + 1;
}, 120000);
// And back, as with the wheel.
await rows.hover();
for (let turn = 0; turn < 60; turn += 1) await page.mouse.wheel(0, -900);
await settled(page);
const { tasks } = await page.evaluate(() => window.seen);
told.tasks = {
  events: given.events, seconds: (Date.now() - began) / 1000, long: tasks.length, longest: Math.max(0, ...tasks),
  elements: await page.evaluate(() => document.querySelectorAll("*").length),
  heap: await page.evaluate(() => performance.memory?.usedJSHeapSize ?? null),
};
await tell(browser, { ...told, complaints: notes.complaints });
