// Pages while the service does not answer, while the network is lost, and when the token ends. Further members of the
// argument: `process`, the id of the service's process; `key`, the file of the key that signs its tokens; `revoked`,
// another token; `revoke`, a command with its arguments that revokes it.

import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { Notes, context, given, heading, launch, open, settled, tell, until } from "./common.mjs";
import { subjects } from "./subjects.mjs";

const browser = await launch();
const notes = new Notes();
const { pages } = await subjects();
const told = { seconds: {} };

const state = (page) => page.evaluate(() => ({
  title: document.title,
  badge: document.querySelector("#badge").className,
  outage: document.querySelector("#outage").hidden ? "" : document.querySelector("#outage").innerText,
  refused: document.querySelector("#refused").hidden ? "" : document.querySelector("#refused").innerText,
  main: document.querySelector("main").innerText.length,
  gone: [...document.querySelectorAll("main .locked, main .problem")].map((it) => it.innerText.slice(0, 300)).filter(Boolean),
}));

/** Waits until every page is in a state; notes how long the slowest took. */
async function all(tabs, what, is) {
  const began = Date.now();
  const ended = {};
  const states = await Promise.all(tabs.map(async ({ name, page }) => {
    const seen = await until(`${name}: ${what}`, async () => {
      const now = await state(page);
      return is(now) ? now : false;
    });
    ended[name] = (Date.now() - began) / 1000;
    return [name, seen];
  }));
  told.seconds[what] = ended;
  return Object.fromEntries(states);
}

let opening = 30;

async function tabs(made, token) {
  const began = Date.now();
  const opened = [];
  for (const [name, where] of pages) {
    const page = await made.newPage();
    await open(page, where, token);
    opened.push({ name, page });
  }
  opening = (Date.now() - began) / 1000;
  return opened;
}

const isLost = ({ title, badge, outage }) => title.startsWith("? ") && badge.includes("unknown") && outage !== "";
const isBack = ({ title, badge, outage }) => !title.startsWith("? ") && !badge.includes("unknown") && outage === "";

const isRefused = ({ refused, gone }) => [refused, ...gone].some((text) => /no longer accepted|expired|revoked/i.test(text));

if (given.process) {
  const made = await context(browser, notes);
  const opened = await tabs(made, given.token);
  const before = Object.fromEntries(await Promise.all(opened.map(async ({ name, page }) => [name, await state(page)])));
  process.kill(given.process, "SIGSTOP");
  try {
    told.stopped = await all(opened, "stopped", isLost);
  } finally {
    process.kill(given.process, "SIGCONT");
  }
  told.continued = await all(opened, "continued", isBack);
  await made.setOffline(true);
  told.offline = await all(opened, "offline", isLost);
  // Pages that are opened meanwhile, by links in three of the windows. They come when the service answers again.
  told.opened_offline = {};
  const links = { home: "SQL", ledger: "Trust", status: "Newest" };
  for (const { name, page } of opened.filter((it) => links[it.name])) {
    await page.bringToFront();
    await page.locator("header nav a", { hasText: links[name] }).click();
    await settled(page);
    told.opened_offline[links[name]] = { heading: await heading(page), text: (await page.locator("main").innerText()).slice(0, 1000) };
  }
  await made.setOffline(false);
  told.online = await all(opened, "online", isBack);
  told.never_came = [];
  for (const { name, page } of opened.filter((it) => links[it.name])) {
    await page.bringToFront();
    const came = () => page.evaluate(() => document.querySelector("main h1") !== null && !document.querySelector("main").innerText.includes("does not answer"));
    await until(`${links[name]} comes`, came, 20000).catch(() => told.never_came.push(links[name]));
  }
  // What a page says of the time before must still be there.
  told.emptied = opened.map(({ name }) => name).filter((name) => told.stopped[name].main < before[name].main / 2);
  told.said_wrong = opened.map(({ name }) => [name, told.stopped[name].gone.filter((text) => !before[name].gone.includes(text))]).filter(([, texts]) => texts.length > 0);
  await made.close();
}

/** How long after its end a token is still accepted, in seconds, because clocks differ. */
const LEEWAY = 60;

/** Returns a token like the given one that is accepted for so many seconds. */
function ending(seconds) {
  const [head, body] = given.token.split(".");
  const now = Math.floor(Date.now() / 1000);
  const claims = { ...JSON.parse(Buffer.from(body, "base64url")), iat: now - LEEWAY - 10, exp: now - LEEWAY + seconds };
  const signed = `${head}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}`;
  const key = Buffer.from(readFileSync(given.key, "utf8").trim().split(/\s+/)[0], "hex");
  return `${signed}.${createHmac("sha256", key).update(signed).digest("base64url")}`;
}

if (given.key) {
  const made = await context(browser, notes);
  // Long enough for opening all pages.
  const seconds = 15 + 2 * Math.ceil(opening);
  const ends = Date.now() + (seconds + 1) * 1000;
  const opened = await tabs(made, ending(seconds));
  told.before_end = Date.now() < ends;
  await until("the token has ended", () => Date.now() > ends, 600000);
  told.expired = await all(opened, "expired", isRefused);
  await made.close();
}
if (given.revoked) {
  const made = await context(browser, notes);
  const opened = await tabs(made, given.revoked);
  execFileSync(given.revoke[0], given.revoke.slice(1));
  told.revoked = await all(opened, "revoked", isRefused);
  // A new token in the form of the notice brings the pages back.
  const { page } = opened[0];
  await page.locator("#refused input[type=password]").fill(given.token);
  await page.locator("#refused button[type=submit]").click();
  await until("the notice is gone", () => page.evaluate(() => document.querySelector("#refused").hidden));
  // The page is opened anew, in place of the one that was refused.
  told.again = await until("the page is back", async () => {
    const now = await state(page);
    return now.gone.length === 0 ? now : Promise.reject(new Error(JSON.stringify(now)));
  });
  await made.close();
}
if (given.process) {
  const made = await context(browser, notes);
  const opened = await tabs(made, given.token);
  process.kill(given.process, "SIGKILL");
  told.killed = await all(opened, "killed", isLost);
  await made.close();
}
await tell(browser, { ...told, foreign: notes.foreign(), complaints: notes.complaints });
