// What somebody may do on purpose to a reader of the site: links and answers that take a browser's time, names that
// claim to be something else, and tokens in addresses. Tells what the pages made of each.

import { readFileSync } from "node:fs";
import { Notes, ask, base, context, given, launch, open, settled, tell, until } from "./common.mjs";
import { subjects } from "./subjects.mjs";

const browser = await launch();
const notes = new Notes();
const { event, transaction } = await subjects();
const told = { seconds: {}, tasks: {}, elements: {}, not_shown: [] };
const FOREIGN = "USDC:GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN";

const observe = () => {
  window.tasks = [];
  new PerformanceObserver((list) => { for (const it of list.getEntries()) window.tasks.push(it.duration); })
    .observe({ type: "longtask", buffered: true });
};

/** A page in a context of its own. */
async function fresh() {
  const made = await context(browser, notes);
  await made.addInitScript(observe);
  return made.newPage();
}

const text = (page, place = "main") => page.evaluate((selector) => document.querySelector(selector).textContent, place);

/** Opens a page; notes how long it took, its longest task, and how many elements it has. */
async function measured(name, where, prepare = async () => {}) {
  const page = await fresh();
  await prepare(page);
  const began = Date.now();
  await open(page, where);
  if (where.startsWith("sql?q=")) {
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await settled(page);
  }
  told.seconds[name] = (Date.now() - began) / 1000;
  told.tasks[name] = await page.evaluate(() => Math.max(0, ...window.tasks));
  told.elements[name] = await page.evaluate(() => document.querySelectorAll("*").length);
  return page;
}

const close = (page) => page.context().close();

/** Notes those of the texts that a page does not show. */
async function shows(name, page, ...texts) {
  const seen = await text(page);
  for (const it of texts) if (!seen.includes(it)) told.not_shown.push(`${name}: ${it}`);
}

const answers = (page, path, json) => page.route(`${base}${path}`, (route) => route.fulfill({ json }));

// Statements in links, whose words are looked at for the tables that they name.
for (const [name, statement] of [
  ["comments", `select 1 from ${"/**/".repeat(32)}`], ["selects", `select 1 from ${"(select 1 as a) ".repeat(32)}`],
  ["parentheses", `select ${"(".repeat(500)}`], ["quotes", `select ${'"a".'.repeat(300)}`],
]) {
  const page = await measured(name, `sql?q=${encodeURIComponent(statement)}`);
  await page.locator("main textarea").first().press("End");
  await close(page);
}

// Answers to statements: a plot of neighbours, and a deep value.
const deep = `${"[".repeat(9000)}${"]".repeat(9000)}`;
for (const [name, columns] of [
  ["neighbours", '{"ledger":[1,2,3],"x":["100000000000000000","100000000000000016","100000000000000032"]}'],
  ["extremes", '{"ledger":[1,2,3],"x":[1.7e308,-1.7e308,5e-324]}'],
  ["deep", `{"x":[${deep},1]}`],
]) {
  const page = await measured(name, "sql?q=select%201", (made) => made.route(`${base}rest/retroshade/query`,
    (route) => /"select 1"/.test(route.request().postData()) ? route.fulfill({ contentType: "application/json", body: columns }) : route.continue()));
  await shows(name, page, name === "deep" ? "2 rows" : "3 rows");
  await close(page);
}

// Events of thousands of parts, in a list and by themselves.
const parts = (value, count) => ({ vec: Array(count).fill(value) });
for (const [name, value, plain] of [["bools", { bool: true }, true], ["addresses", { address: event.contract_id }, event.contract_id]]) {
  const count = name === "bools" ? 4000 : 400;
  const made = { ...event, decoded: { name: "big", params: { all: Array(count).fill(plain) }, topics: [{ symbol: "big" }], data: parts(value, count) } };
  const list = Array.from({ length: 100 }, (_, index) => ({ ...made, id: event.id - index }));
  await close(await measured(`${name} alone`, `event/${event.id}`, (page) => answers(page, `rest/events/by-id/${event.id}?**`, [made])));
  await close(await measured(`${name} in a list`, `contract/${event.contract_id}`, (page) => page.route(`${base}rest/events/by-contract/**`,
    (route) => route.fulfill({ json: route.request().url().includes("cursor") ? [] : list }))));
}

// An asset's name in an event of a contract that is not the asset's.
{
  const params = { from: event.contract_id, to: event.contract_id, amount: "10000000000000", sep0011_asset: FOREIGN };
  const foreign = { ...event, decoded: { name: "transfer", params, topics: [], data: { i128: "10000000000000" } } };
  const page = await measured("foreign asset", `event/${event.id}`, (it) => answers(it, `rest/events/by-id/${event.id}?**`, [foreign]));
  told.foreign_asset = await text(page);
  await close(page);
}

// Files for spreadsheets.
{
  const formulas = ["=HYPERLINK(\"http://x\")", "@a", "-1.5", "-Infinity", "-1+1", " =1", "a,b"];
  const events = formulas.map((it, index) => ({ ...event, id: event.id - index, decoded: { name: "x", params: { it }, topics: [], data: "void" } }));
  const page = await measured("a file", `contract/${event.contract_id}`, (it) => it.route(`${base}rest/events/by-contract/**`,
    (route) => route.fulfill({ json: route.request().url().includes("cursor") ? [] : events })));
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export as CSV" }).click()]);
  told.csv = readFileSync(await file.path(), "utf8").trim().split("\r\n").slice(1).map((line) => line.split(",\"x\",")[1]);
  await close(page);
}

// Names of arguments that look like those of arguments without a name.
{
  const args = { "": "first of two", "argument 1": "second of two" };
  const made = { ...transaction[0] ?? transaction, decoded: { contract: event.contract_id, function: "f", args, returned: null, error: null, auth: [] } };
  const page = await measured("arguments", `tx/${event.tx}`, (it) => answers(it, `rest/txs/by-hash/${event.tx}?**`, Array.isArray(transaction) ? [made] : made));
  await shows("arguments", page, ...Object.values(args));
  await close(page);
}

// More events at once than a page has.
{
  const last = { ...event, id: event.id + 1000 };
  const stored = Array.from({ length: 600 }, (_, index) => ({ ...event, id: last.id + 450 - index }));
  let hasStreamed = false;
  const page = await measured("many at once", `contract/${event.contract_id}`, async (it) => {
    await it.route(`${base}rest/events/by-contract/**`, (route) => {
      const query = new URL(route.request().url()).searchParams;
      const newest = query.has("cursor") ? Number(query.get("cursor")) - 1 : hasStreamed ? last.id + 450 : last.id;
      return route.fulfill({ json: stored.filter(({ id }) => id <= newest).slice(0, Number(query.get("limit") ?? 100)) });
    });
    await it.route(`${base}rest/events/stream?**`, (route) => {
      const from = Number(new URL(route.request().url()).searchParams.get("last_event_id"));
      hasStreamed = true;
      const arrived = stored.filter(({ id }) => id > from).reverse();
      return route.fulfill({ contentType: "text/event-stream", body: arrived.map((one) => `id: ${one.id}\ndata: ${JSON.stringify(one)}\n\n`).join("") || ": none\n\n" });
    });
  });
  const list = page.locator("main .events").first();
  await until("the newest is shown", () => page.evaluate((id) => document.querySelector(`main .spacer a[href$="event/${id}"]`) !== null, last.id + 450), 20000);
  told.many_at_once = await list.locator("> .note").textContent();
  await until("all are read", async () => {
    await list.locator(".scroller").evaluate((it) => { it.scrollTop = it.scrollHeight; });
    return /^All 600\./.test(await list.locator("> .note").textContent());
  }, 20000).catch((error) => { told.not_shown.push(`many at once: ${error.message}`); });
  await close(page);
}

// An event that is stored between the empty first page of a list and the beginning of the stream.
{
  let asked = 0;
  const page = await measured("empty at first", `contract/${event.contract_id}`, async (it) => {
    await it.route(`${base}rest/events/by-contract/**`, (route) => {
      const isLater = route.request().url().includes("cursor");
      asked += isLater ? 0 : 1;
      return route.fulfill({ json: asked > 1 && !isLater ? [event] : [] });
    });
    await it.route(`${base}rest/events/stream?**`, (route) =>
      route.fulfill({ contentType: "text/event-stream", body: ": none\n\n" }));
  });
  await until("the event is shown", () => page.locator(`main .spacer a[href$="event/${event.id}"]`).first().isVisible(), 20000)
    .catch((error) => { told.not_shown.push(`empty at first: ${error.message}`); });
  await close(page);
}

// Tokens in addresses.
{
  const page = await measured("tokens", "programs/1");
  const used = [];
  page.on("request", (request) => { if (request.url().startsWith(`${base}rest/`)) used.push([request.url(), request.headers().authorization?.slice(7)]); });
  const refused = [];
  page.on("response", (answer) => { if (answer.status() === 401) refused.push(answer.url()); });
  const [head, , signature] = given.token.split(".");
  const other = `${head}.${Buffer.from(JSON.stringify({ sub: "mallory" })).toString("base64url")}.${signature}`;
  const bring = (token) => page.evaluate((it) => { location.hash = `token=${it}`; }, token);
  await bring(other);
  await until("it is asked", () => page.evaluate(() => !document.querySelector("#refused").hidden));
  told.question = await text(page, "#refused");
  await until("the page has asked the service again", () => used.some(([url]) => url.includes("/rest/retroshade/")), 30000);
  told.other_was_used = used.some(([, token]) => token === other);
  await page.locator("#refused").getByRole("button", { name: /^Stay / }).click();
  // One of the same owner that the service refuses.
  used.length = 0;
  const wrong = `${given.token.slice(0, -6)}AAAAAA`;
  const use = () => page.locator("#refused").getByRole("button", { name: "Use it" }).click();
  await bring(wrong);
  await use();
  await until("it is refused", async () => /cannot be used/.test(await text(page, "#refused")));
  await until("the page has asked the service again", () => used.some(([url, token]) => url.includes("/rest/retroshade/") && token === given.token), 30000);
  told.refused = refused.filter((url) => !url.includes("/rest/events/by-ledger?limit=1"));
  await bring("☃");
  await use();
  await until("it is refused", async () => /letters, digits and signs/.test(await text(page, "#refused")));
  await settled(page);
  told.hash = await page.evaluate(() => location.hash);
  await close(page);
}

told.still = (await ask("rest/retroshade/list")) !== null;
await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
