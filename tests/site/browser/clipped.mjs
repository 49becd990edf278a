// Measures on every page, in both colour schemes and several widths, what is cut off of that which bears meaning: numbers,
// parties and addresses. Names and units give way, and end with an ellipsis. Then the first page stays open while
// ledgers come, and each change of a live region is noted. Further members of the argument: `widths`, `listens`, the
// seconds for which that goes on, and `pictures`, a directory, or null.

import { mkdirSync } from "node:fs";
import path from "node:path";
import { LIMIT, Notes, ask, context, given, launch, open, settled, tell, until } from "./common.mjs";
import { subjects } from "./subjects.mjs";

const browser = await launch();
const notes = new Notes();
const { pages } = await subjects();
const told = { clipped: [], measured: {}, spoken: {} };

/** Returns what is cut off, and how many elements were measured. */
const measure = () => {
  const WHOLE = [
    "td.number", ".row .number:not(.sql-result *)", ".figure", ".figures dd", ".address > a", "a[href*='/ledger/']", "time",
    ".party > i", ".tag", ".facts dd > a",
  ];
  // What follows the values of an event is cut at the end of the line, with an ellipsis.
  const GIVES_WAY = ".rest, .alias, .unit, .sql-result";
  const found = [];
  let measured = 0;
  const shown = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility === "visible";
  // A place that scrolls sideways shows that it does.
  const isScrolled = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  for (const element of document.querySelectorAll(`main :is(${WHOLE.join(", ")})`)) {
    if (element.closest(GIVES_WAY) || !shown(element)) continue;
    measured += 1;
    const box = element.getBoundingClientRect();
    const say = (what) => found.push(`${what}: ${element.tagName.toLowerCase()}.${element.className} "${element.textContent.slice(0, 60)}" in ${element.closest("section, .row")?.getAttribute("aria-label") ?? element.parentElement.className}`);
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible" && !isScrolled(element)) say("cut inside");
    for (let around = element.parentElement; around !== document.body; around = around.parentElement) {
      const style = getComputedStyle(around);
      if (isScrolled(around)) break;
      if (style.overflowX === "visible" || style.display === "contents") continue;
      const outer = around.getBoundingClientRect();
      if (box.left < outer.left - 1 || box.right > outer.right + 1) {
        say(`cut by .${around.className || around.tagName} (${Math.round(box.left)}–${Math.round(box.right)} of ${Math.round(outer.left)}–${Math.round(outer.right)})`);
        break;
      }
      // A row of a long list has one height.
      if (around.matches(".row") && (box.top < outer.top - 2 || box.bottom > outer.bottom + 2)) {
        say("outside of its row");
        break;
      }
    }
  }
  return { found: [...new Set(found)].slice(0, 12), measured };
};

async function look(page, label) {
  const { found, measured } = await page.evaluate(measure);
  told.clipped.push(...found.map((it) => `${label}: ${it}`));
  told.measured[label] = measured;
  if (given.pictures === null) return;
  mkdirSync(given.pictures, { recursive: true });
  await page.screenshot({ path: path.join(given.pictures, `${label}.png`), fullPage: true });
}

const sized = await (await context(browser, notes)).newPage();
for (const [name, where] of pages) {
  await open(sized, where);
  if (name === "sql") {
    const newest = sized.locator(".sql-table button", { hasText: "newest" }).first();
    if (await newest.count() > 0) await newest.click();
  }
  for (const width of given.widths) {
    await sized.setViewportSize({ width, height: width < 600 ? 780 : 900 });
    await settled(sized);
    for (const colorScheme of ["light", "dark"]) {
      await sized.emulateMedia({ colorScheme });
      await look(sized, `${name}-${width}-${colorScheme}`);
    }
  }
}
await sized.close();

// What is read out while ledgers come.
if (given.listens > 0) {
  const page = await (await context(browser, notes)).newPage();
  await page.addInitScript(() => {
    window.spoken = [];
    new MutationObserver((changes) => {
      for (const { target } of changes) {
        const region = (target.nodeType === 1 ? target : target.parentElement)?.closest("[role=status], [role=alert], [aria-live]");
        if (region?.closest("main")) window.spoken.push([performance.now(), region.textContent.slice(0, 100)]);
      }
    }).observe(document, { subtree: true, childList: true, characterData: true });
  });
  const [{ contracts: [contract] }] = await ask("rest/retroshade/list");
  for (const [name, where] of [["home", ""], ["contract", `contract/${contract}`], ["webhook", "webhooks/1"]]) {
    await open(page, where);
    await page.evaluate(() => { window.spoken = []; });
    const end = Date.now() + given.listens * 1000;
    await until("it was listened long enough", () => Date.now() > end, given.listens * 1000 + LIMIT);
    told.spoken[name] = await page.evaluate(() => window.spoken);
  }
}

await tell(browser, { ...told, complaints: notes.complaints });
