// Opens every page in both colour schemes and several widths: complaints, requests to others, violations of
// accessibility, the width, the title, and pictures. Further members of the argument: `widths`, and `pictures`, a
// directory, or null.

import { mkdirSync } from "node:fs";
import path from "node:path";
import { Notes, axe, context, given, heading, launch, open, overflow, settled, tell } from "./common.mjs";
import { subjects } from "./subjects.mjs";

const browser = await launch();
const notes = new Notes();
const rules = axe();
const { pages } = await subjects();
const told = { pages: {}, axe: rules !== null, violations: [], wide: [], titles: {} };

async function violations(page, where) {
  if (rules === null) return;
  await page.evaluate(rules);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, nodes } of found.violations) {
    told.violations.push(`${where}: ${id}: ${nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.html.slice(0, 160)}`).join(" | ")}`);
  }
}

async function look(page, name, where, label) {
  await open(page, where);
  const extra = await overflow(page);
  if (extra !== 0) told.wide.push(`${label}: ${extra} px`);
  told.titles[name] = await page.title();
  told.pages[name] = {
    heading: await heading(page),
    address: page.url(),
    problems: await page.locator("main .problem, main .locked").allInnerTexts(),
  };
  if (given.pictures) {
    mkdirSync(given.pictures, { recursive: true });
    await page.screenshot({ path: path.join(given.pictures, `${label}.png`) });
  }
  await violations(page, label);
}

for (const colorScheme of ["light", "dark"]) {
  for (const width of given.widths) {
    const made = await context(browser, notes, { colorScheme, viewport: { width, height: width < 600 ? 780 : 900 } });
    const page = await made.newPage();
    for (const [name, where] of pages) await look(page, name, where, `${name}-${width}-${colorScheme}`);
    await made.close();
  }
}

const unique = () => [...new Set(notes.refusals.splice(0))];
told.refusals = unique();

// Without a token, every page opens, too, and says what needs one.
const plain = await context(browser, notes);
const page = await plain.newPage();
told.without_token = {};
for (const [name, where] of pages) {
  await open(page, where, "");
  told.without_token[name] = {
    heading: await heading(page),
    locked: await page.locator("main .locked").count(),
    failed: await page.locator("main .problem").allInnerTexts(),
  };
}
await violations(page, "without a token");

// Pages that ask again leave what is being written into the form for a token.
await page.clock.install();
told.half_written = {};
for (const [name, where] of pages.filter(([it]) => ["transaction", "contract", "programs", "webhook"].includes(it))) {
  await open(page, where, "");
  const field = page.locator("main input[type=password]").first();
  await field.fill("half a tok");
  await page.clock.runFor(20000);
  await settled(page);
  told.half_written[name] = await field.inputValue();
}

await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign(), requests: notes.requests.length, refusals_without_token: unique() });
