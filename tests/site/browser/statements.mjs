// The editor of statements: what stands in it at first, its colours, and the place of an error. Further members of the
// argument: none.

import { Notes, context, given, launch, open, settled, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes)).newPage();
const told = { refused: {} };

await open(page, "sql");
const area = page.locator("main textarea").first();
told.proposed = await until("a table of one's own is named", async () => {
  const text = await area.getAttribute("placeholder");
  return !text.includes("project.table") && text;
});
told.examples = await page.locator(".command pre").allInnerTexts();
await page.getByRole("button", { name: "Run this" }).last().click();
told.ran = await until("it has rows", async () => (await page.locator(".sql-result .row").count()) > 1);

const painted = () => page.evaluate(() => ({
  text: document.querySelector(".sql-paint").textContent,
  value: `${document.querySelector("main textarea").value}\n`,
  kinds: Object.fromEntries([...document.querySelectorAll(".sql-paint span")].map((it) => [it.textContent, it.className.trim()])),
  invalid: document.querySelector("main textarea").getAttribute("aria-invalid"),
  colour: getComputedStyle(document.querySelector("main textarea")).color,
}));

await area.fill("select 'it''s', \"from\", 1.5e3, <b> -- of all\nfrom t");
told.painted = await painted();

for (const [name, statement] of Object.entries({
  parser: "select name,\n  from, to\nfrom demo.transfer",
  binder: "select\n  nosuchcolumn\nfrom demo.transfer",
})) {
  await area.fill(statement);
  await area.press("Control+Enter");
  await page.waitForSelector("main .sql-told");
  await settled(page);
  const { kinds, invalid } = await painted();
  const marked = Object.entries(kinds).filter(([, kind]) => kind.includes("sql-wrong")).map(([text]) => text);
  told.refused[name] = { marked, invalid, said: await page.locator(".sql-told").innerText(), excerpt: await page.locator(".sql-plan").innerText() };
  await area.press("End");
  await area.press("a");
  const after = await painted();
  told.refused[name].after = { invalid: after.invalid, marked: Object.values(after.kinds).filter((kind) => kind.includes("sql-wrong")).length };
  await area.fill("select 1");
  await area.press("Control+Enter");
  await until("the next statement has an answer", async () => await page.locator("main .sql-told").count() === 0);
}

// A long one is not painted, and is seen all the same.
await area.fill(`select 1 -- ${"x".repeat(30_000)}`);
told.long = await painted();
told.long = { text: told.long.text, colour: told.long.colour };

await tell(browser, { ...told, complaints: notes.complaints });
