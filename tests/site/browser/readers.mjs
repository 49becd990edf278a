// What readers paste, aim at, come back to, and are sent: the search field, lists that move, the way back, and links.
// Further members of the argument: `seed`, a secret seed.

import { Notes, ask, base, context, given, latestLedger, launch, open, settled, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const made = await context(browser, notes);
const page = await made.newPage();
const told = { searched: {}, secrets: {}, lists: {} };
const [event] = await ask("rest/events/by-ledger?limit=1");
const { tx } = event;
const [{ contracts: [contract] }] = await ask("rest/retroshade/list");
const at = () => page.url().slice(base.length);

async function search(text) {
  await page.evaluate((it) => { document.querySelector("#search-text").value = it; }, text);
  await page.press("#search-text", "Enter");
  await settled(page);
  return at();
}

await open(page, "");
const half = (text) => `${text.slice(0, 30)}\n  ${text.slice(30)}`;
for (const [name, text, place] of [
  ["zero width", `\u200b${contract}\u2060`, `contract/${contract}`], ["marks", `\u200e${tx}\u200f`, `tx/${tx}`],
  ["quotes", `"${contract}"`, `contract/${contract}`], ["brackets", `(${tx}).`, `tx/${tx}`],
  ["two lines", half(contract), `contract/${contract}`], ["lower case", contract.toLowerCase(), `contract/${contract}`],
  ["explorer", `https://stellar.expert/explorer/testnet/tx/${tx}?x=1`, `tx/${tx}`], ["own link", `${base}ledger/5`, "ledger/5"],
  ["number sign", "#5", "ledger/5"], ["word", "Ledger 5.", "ledger/5"], ["sentence", `see ${contract}, please`, `contract/${contract}`],
]) {
  const found = await search(text);
  told.searched[name] = found === place ? true : found;
}

// Secrets are in no address, on no page and in no request.
for (const [name, text] of [
  ["seed", given.seed], ["lower", ` ${given.seed.toLowerCase()}.`], ["wrapped", half(given.seed)], ["within", `my key: "${given.seed}"`],
  ["mistyped", `${given.seed.slice(0, -1)}Y`], ["a letter short", given.seed.slice(0, -1)],
]) {
  const requests = notes.requests.length;
  const where = await search(text);
  const seen = `${where} ${await page.content()} ${notes.requests.slice(requests).join(" ")} ${await page.inputValue("#search-text")}`;
  told.secrets[name] = {
    isSeen: seen.toLowerCase().includes(given.seed.slice(0, 20).toLowerCase()) || seen.includes(encodeURIComponent(half(given.seed))),
    text: await page.locator("main").innerText(),
  };
}
await page.goto("about:blank");
await page.goto(`${base}search?q=${given.seed}`);
await settled(page);
told.secrets.link = { isSeen: `${at()} ${await page.content()}`.includes(given.seed), text: await page.locator("main").innerText() };

// The way back leads to the same rows.
await open(page, `contract/${contract}`);
const scroller = page.locator("main .events .scroller").first();
await until("many events are read", async () => {
  await scroller.evaluate((it) => { it.scrollTop = it.scrollHeight; });
  return await scroller.evaluate((it) => it.scrollTop) > 600;
});
const firstRow = () => page.evaluate(() => {
  const place = document.querySelector("main .events .scroller");
  const { top } = place.getBoundingClientRect();
  return [...place.querySelectorAll(".row")].find((row) => row.getBoundingClientRect().top >= top - 1)?.innerText ?? null;
});
await settled(page);
const left = await firstRow();
await page.evaluate(() => {
  const place = document.querySelector("main .events .scroller");
  const { top } = place.getBoundingClientRect();
  [...place.querySelectorAll(".row")].find((row) => row.getBoundingClientRect().top >= top + 60).querySelector("a[href*='/tx/']").click();
});
await until("the transaction is open", () => at().startsWith("tx/"));
await settled(page);
await page.goBack();
await settled(page);
told.back = await until("the same rows are there", async () => await firstRow() === left, 20000).catch(async () => [left, await firstRow()]);
await page.goForward();
await settled(page);
await page.goBack();
told.back_again = await until("the same rows are there", async () => await firstRow() === left, 20000).catch(async () => [left, await firstRow()]);

// A list that moves waits while the reader points at it or has the focus there, and is not read out.
await open(page, "");
const ledgers = page.locator("main .home-columns section").first();
const newest = () => ledgers.locator("tbody a").first().innerText();
async function waits() {
  const before = await newest();
  const latest = await latestLedger();
  await until("ledgers are stored", async () => await latestLedger() > latest + 6);
  return await newest() === before;
}
await ledgers.locator("tbody tr").nth(3).hover();
told.lists.pointed = await waits();
await page.mouse.move(5, 5);
told.lists.goes_on = await until("the list goes on", async () => {
  const latest = await latestLedger();
  return Number(await newest()) >= latest - 4;
}, 20000).catch((error) => error.message);
await ledgers.locator("tbody a").nth(3).focus();
told.lists.focused = await waits();
told.lists.statuses = await page.evaluate(() => [...document.querySelectorAll("main [role=status]:not(.offscreen), main [aria-live]")].map((it) => it.outerHTML.slice(0, 200)));

// A statement in a link is filled in and not run; one of the site's own links is run.
const asked = [];
page.on("request", (request) => { if (request.url().endsWith("/rest/retroshade/query") && /4711/.test(request.postData())) asked.push(at()); });
await open(page, `sql?q=${encodeURIComponent("select 4711")}`);
told.filled_in = { text: await page.locator("main textarea").first().inputValue(), said: await page.locator("main").innerText(), asked: asked.length };
await page.getByRole("button", { name: "Run", exact: true }).click();
await until("it is run", () => asked.length === 1);
await settled(page);
await open(page, "programs");
await page.evaluate((href) => {
  const link = document.createElement("a");
  link.href = href;
  document.querySelector("main").append(link);
  link.click();
}, `${base}sql?q=select%204711`);
told.own = await until("it is run", () => asked.length === 2, 20000).catch((error) => error.message);

// A token in a link is used only when the reader says so.
await page.goto("about:blank");
const [bearers, before] = [[], notes.requests.length];
page.on("request", (request) => { if (request.headers().authorization) bearers.push(request.url()); });
await page.goto(`${base}programs#token=${given.token}`);
await settled(page);
told.token = { used: bearers.length, question: await page.locator("#refused").innerText(), at: at(), requests: notes.requests.length - before };
await page.locator("#refused").getByRole("button", { name: "Go on without" }).click();
told.token.focus = await page.evaluate(() => document.activeElement.tagName);
told.token.locked = await page.locator("main .locked").count();

// What the search of the site does not find is looked for in the documents.
await open(page, "search?q=webhooks%20listen");
await page.getByRole("link", { name: "Look for it in the documents" }).click();
told.documents = await until("places are listed", () => page.evaluate(() => {
  const count = document.querySelectorAll("#found li").length;
  return count > 0 ? { count, text: document.querySelector("#search-text").value } : null;
}));
await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
