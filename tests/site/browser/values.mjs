// What pages show of things whose API answers the test has, too: facts, tables, and lists of rows. Shortened names are
// told as a whole. `addresses` are the pages, by names; `statements` are run in the page for SQL.

import { Notes, context, given, launch, open, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes, { viewport: { width: 1280, height: 2000 }, timezoneId: "UTC" })).newPage();
const told = { pages: {}, statements: [] };

/** Reads what the page shows. Of long lists, these are the rows near those in sight. */
const read = () => page.evaluate(() => {
  const whole = (element) => {
    const copy = element.cloneNode(true);
    // The name of an address stands beside it.
    for (const it of copy.querySelectorAll(".alias")) it.remove();
    for (const it of copy.querySelectorAll(".mono[title]")) it.textContent = it.title;
    for (const it of copy.querySelectorAll("button, .copy")) if (/^Copy/.test(it.textContent)) it.remove();
    return (copy.matches(".mono[title]") ? copy.title : copy.textContent).trim();
  };
  const main = document.querySelector("main");
  return {
    heading: main.querySelector("h1")?.textContent,
    text: whole(main),
    facts: [...main.querySelectorAll("dl > div")].map((it) => [whole(it.querySelector("dt")), whole(it.querySelector("dd"))]),
    tables: [...main.querySelectorAll("table")].map((it) => ({
      label: it.closest("[aria-label]")?.getAttribute("aria-label") ?? "",
      heads: [...it.querySelectorAll("thead th")].map(whole),
      rows: [...it.querySelectorAll("tbody tr")].map((row) => [...row.cells].map(whole)),
    })),
    grid: [...main.querySelectorAll(".sql-body [role=row]")].map((row) => [...row.children].map(whole)),
    problems: [...main.querySelectorAll(".problem")].map((it) => it.textContent).filter(Boolean),
    lists: [...main.querySelectorAll(".rows")].map((it) => ({
      label: it.getAttribute("aria-label"),
      heads: [...it.querySelectorAll(".head > span")].map(whole),
      rows: [...it.querySelectorAll(".spacer .row")].map((row) => [...row.children].map(whole)),
      links: [...it.querySelectorAll(".spacer .row")].map((row) => [...row.querySelectorAll("a")].map((link) => link.href)),
    })),
  };
});

for (const [name, where] of Object.entries(given.addresses)) {
  await open(page, where);
  told.pages[name] = await read();
}
for (const statement of given.statements) {
  await open(page, "sql");
  const area = page.locator("main textarea").first();
  await area.fill(statement);
  const answered = page.waitForResponse((answer) => (answer.request().postData() ?? "").includes(JSON.stringify(statement).slice(1, -1)));
  await area.press("Control+Enter");
  await answered;
  // A result is said in one line, an error is a problem.
  const shown = () => page.evaluate(() => document.querySelectorAll(".sql-body [role=row]").length > 0 || /Error/.test(document.querySelector("main").innerText));
  await until("it is shown", shown);
  told.statements.push(await read());
}
await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
