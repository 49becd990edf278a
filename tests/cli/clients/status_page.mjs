// Opens the status page in Chromium, uses its token field, event explorer and SQL console, and prints what the page
// shows as one JSON object. Arguments: a directory with playwright-core in its node_modules, the service's URL, a token,
// a contract. The browser is /usr/bin/chromium, or the executable that the environment variable CHROMIUM names.

import { createRequire } from "node:module";
import path from "node:path";

const [directory, base, token, contract] = process.argv.slice(2);
const { chromium } = createRequire(path.join(path.resolve(directory), "/"))("playwright-core");

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  // Chromium's sandbox does not run as root.
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});
const told = { requests: [], complaints: [] };

function watch(page) {
  page.on("request", (request) => told.requests.push(request.url()));
  page.on("pageerror", (error) => told.complaints.push(error.message));
  page.on("console", (line) => {
    // Responses with a 4xx status are expected below; errors from the content security policy are not.
    const isRefusal = /^Failed to load resource: the server responded with a status of 4\d\d/.test(line.text());
    if (["error", "warning"].includes(line.type()) && !isRefusal) told.complaints.push(line.text());
  });
}

const health = (page) => page.evaluate(() => ({
  state: document.querySelector("#state strong").textContent,
  figures: Object.fromEntries([...document.querySelectorAll("#health dd")].map((it) => [it.id, it.textContent])),
  components: [...document.querySelectorAll("#components li")].map((it) =>
    [...it.children].map((part) => part.textContent.trim())),
  network: document.querySelector("#network").textContent,
}));
const rows = (page, id) => page.$$eval(`#${id} tbody tr`, (lines) =>
  lines.map((line) => [...line.cells].map((cell) => cell.querySelector("[title]")?.title ?? cell.textContent)));
const text = (page, id) => page.textContent(`#${id}`);

// With JavaScript disabled.
const plain = await browser.newContext({ javaScriptEnabled: false });
const still = await plain.newPage();
watch(still);
await still.goto(base);
told.without_scripts = {
  text: await still.locator("#health").innerText(),
  hidden: await still.locator("#scripted").isHidden(),
  note: await still.locator("noscript").innerText(),
};
await plain.close();

const context = await browser.newContext({ viewport: { width: 390, height: 844 }, colorScheme: "dark" });
const page = await context.newPage();
watch(page);
await page.goto(base);
await page.waitForSelector("#disk table");
await page.waitForSelector("#ranges table");
await page.waitForSelector("#contracts table");
told.health = await health(page);
told.lag = await text(page, "lag");
told.ranges = await rows(page, "ranges");
told.bars = await page.locator("#density .bar0").count();
told.density = await text(page, "density");
told.consumers = await rows(page, "consumers");
told.disk = await page.$$eval("#disk dl div", (facts) => facts.map((it) => [...it.children].map((part) => part.textContent)));
told.contracts = {
  rows: await rows(page, "contracts"),
  note: await page.locator("#contracts .note").textContent(),
};
told.locked = [];
for (const id of ["programs", "webhooks", "events-said", "tables"]) told.locked.push(await text(page, id));

await page.fill("#token", token);
await page.click("#token-use");
await page.waitForSelector("#programs table");
await page.waitForSelector("#webhooks table");
await page.waitForSelector("#events .event");
told.programs = await rows(page, "programs");
told.webhooks = await rows(page, "webhooks");

const events = () => page.$$eval("#events .event", (all) => all.map((event) => ({
  topics: [...event.querySelectorAll(".topics span")].map((it) => it.textContent),
  data: event.querySelector("pre").textContent,
})));
told.newest = await events();
await page.click("#event-older");
await page.waitForFunction((count) => document.querySelectorAll("#events .event").length > count, told.newest.length);
told.older = await events();
const find = async (place, topic) => {
  await page.fill("#event-place", place);
  await page.fill("#event-topic", topic);
  const answered = page.waitForResponse((answer) => answer.url().includes("/rest/events/"));
  await page.click("#event-find");
  await answered;
  await page.waitForSelector("#event-find:not([disabled])");
  return events();
};
told.of_topic = await find(contract, "filled");
told.of_nobody = [await find(contract, "no_such_topic"), await text(page, "events-said")];
await page.fill("#event-topic", "");
await page.fill("#event-place", "<b>nonsense");
await page.click("#event-find");
told.nonsense = await text(page, "events-said");

const ask = async (sql) => {
  await page.fill("#sql", sql);
  await page.click("#sql-run");
  await page.waitForFunction(() => !document.querySelector("#sql-run").disabled);
  return { said: await text(page, "sql-said"), rows: await rows(page, "sql-rows"), drawn: await page.locator("#sql-plot path").count() };
};
told.by_ledger = await ask("select _ledger, count(*) as trades, sum(cost) as cash from market_trade group by _ledger order by _ledger limit 300");
told.by_time = await ask("select _ledger_closed_at, amount from market_trade order by _ledger_closed_at limit 50");
told.hostile = await ask("select '<img src=x onerror=alert(1)>' as \"<b>head</b>\", null as nothing, 12345678901234567890::hugeint as wide");
told.images = await page.locator("img, b:has-text('head')").count();
told.wrong = await ask("select nothing from nowhere");
told.wider_than_the_screen = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
told.kept = await page.evaluate(async () => ({
  local: localStorage.length, session: sessionStorage.length, cookies: document.cookie, url: location.href,
  databases: (await indexedDB.databases()).length, field: document.querySelector("#token").value,
  inPage: document.documentElement.outerHTML.length,
}));
told.token_in_page = (await page.content()).includes(token);
told.addresses_with_token = told.requests.filter((url) => url.includes(token)).length;

await page.click("#token-forget");
await page.waitForFunction(() => document.querySelector("#programs").textContent === "Needs a token.");
told.after = [await text(page, "programs"), await text(page, "webhooks"), await text(page, "events"), await text(page, "sql-rows")];
await page.fill("#token", "wrong");
await page.click("#token-use");
await page.waitForSelector("#token-said.problem");
told.refused = await text(page, "token-said");
await page.goto(`${base}/#token=${token}`);
await page.waitForFunction(() => document.querySelector("#token-said").textContent === "A token is in use.");
told.address_after = page.url();
await page.route("**/rest/health", (route) => route.abort());
await page.waitForSelector("#state.unknown", { timeout: 20000 });
told.stopped = { title: await page.title(), badge: await text(page, "state") };
await browser.close();
console.log(JSON.stringify(told));
