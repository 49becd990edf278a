// What the scripts of this directory share: the browser, what is noted while pages are open, and when a page is settled.
//
// A script gets one argument, a JSON object. `modules` is a directory with playwright-core (and axe-core) in its
// node_modules, `base` the address of the service, `token` a token. It prints one JSON object.

import { createRequire } from "node:module";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

export const given = JSON.parse(process.argv[2]);
export const base = given.base.replace(/\/*$/, "/");
const require = createRequire(path.join(path.resolve(given.modules), "/"));

/** How long a condition may take to come true, in milliseconds. Only a hang takes longer. */
export const LIMIT = Number(process.env.LIMIT_MS ?? 60000);

/** Starts the browser: /usr/bin/chromium, or the executable that the environment variable CHROMIUM names. */
export async function launch() {
  const { chromium } = require("playwright-core");
  return chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    // Chromium's sandbox does not run as root.
    args: process.getuid() === 0 ? ["--no-sandbox"] : [],
  });
}

/** Text of axe-core; null where it is not installed. */
export function axe() {
  const file = path.join(path.resolve(given.modules), "node_modules/axe-core/axe.min.js");
  return existsSync(file) ? readFileSync(file, "utf8") : null;
}

/** Notes what pages do: complaints that must not be, requests, and answers with an error status. */
export class Notes {
  complaints = [];
  requests = [];
  refusals = [];

  /** Watches all pages of a context. */
  async watch(context) {
    await context.exposeBinding("noteViolation", (_, text) => this.complain(`violates the policy: ${text}`));
    await context.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) =>
        window.noteViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
    });
    context.on("page", (page) => this.watchPage(page));
  }

  watchPage(page) {
    page.pending = new Set();
    page.sent = 0;
    // Requests of a page that asks whether to use the token of its address, and is opened anew with it.
    page.isAsking = false;
    const early = new WeakSet();
    page.on("request", (request) => {
      this.requests.push(request.url());
      if (page.isAsking) early.add(request);
      page.sent += 1;
      // A stream does not end.
      if (!request.url().includes("/events/stream")) page.pending.add(request);
    });
    for (const name of ["requestfinished", "requestfailed"]) page.on(name, (request) => page.pending.delete(request));
    page.on("response", (answer) => {
      if (answer.status() >= 400 && !early.has(answer.request())) this.refusals.push(`${answer.status()} ${answer.request().method()} ${answer.url()}`);
    });
    page.on("pageerror", (error) => this.complain(`fails: ${error.stack ?? error}`, page));
    page.on("dialog", async (dialog) => {
      this.complain(`opens a dialog: ${dialog.message().slice(0, 200)}`, page);
      await dialog.dismiss();
    });
    page.on("popup", () => this.complain("opens a window", page));
    page.on("console", (line) => {
      // The browser itself notes answers with an error status and requests without an answer. `refusals` has those.
      const isOfNetwork = /^Failed to load resource: /.test(line.text());
      if (["error", "warning"].includes(line.type()) && !isOfNetwork) this.complain(`says: ${line.text()}`, page);
    });
  }

  complain(text, page) {
    if (this.complaints.length < 50) this.complaints.push(`${page === undefined ? "" : `${page.url().slice(0, 200)} `}${text.slice(0, 1000)}`);
  }

  /** Addresses outside of the service to which requests were sent. */
  foreign() {
    return [...new Set(this.requests.filter((url) => !url.startsWith(base) && !url.startsWith("data:")))];
  }
}

/** Opens a context whose pages are watched. */
export async function context(browser, notes, options = {}) {
  const made = await browser.newContext({ viewport: { width: 1280, height: 900 }, timezoneId: "Europe/Berlin", ...options });
  made.setDefaultTimeout(LIMIT);
  await notes.watch(made);
  return made;
}

/** Waits until a page has its heading, no request without an answer, and nothing left to draw. */
export async function settled(page) {
  await page.waitForSelector("main h1, main .problem");
  const end = Date.now() + LIMIT;
  for (let quiet = 0; quiet < 3;) {
    const before = page.sent;
    // Pages that are not in front draw no frames.
    await page.evaluate(() => new Promise((done) => {
      requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20)));
      setTimeout(done, 200);
    }));
    quiet = page.pending.size === 0 && page.sent === before ? quiet + 1 : 0;
    if (Date.now() > end) throw new Error(`${page.url()} does not settle: ${[...page.pending].map((it) => it.url())}`);
  }
}

/** Opens a page by its address, with the token, as a reader who was sent a link with one. */
export async function open(page, where, token = given.token) {
  // Another address first, because one that differs only behind `#` does not load the page anew.
  if (page.url() !== "about:blank") await page.goto("about:blank");
  page.isAsking = Boolean(token);
  await page.goto(base + where + (token ? `#token=${token}` : ""));
  if (token) await page.locator("#refused").getByRole("button", { name: "Use it" }).click();
  page.isAsking = false;
  await settled(page);
}

/** Asks the service. Returns the JSON; null for an error status. */
export async function ask(route, options = {}) {
  const answer = await fetch(base + route, { ...options, headers: { Authorization: `Bearer ${given.token}`, ...options.headers } });
  return answer.ok ? answer.json() : null;
}

/** The newest ledger that the service has stored. */
export async function latestLedger() {
  const answer = await fetch(`${base}rest/health`);
  return (await answer.json()).service_latest_ledger;
}

/** The heading of the page; null if it has none. */
export const heading = (page) => page.evaluate(() => document.querySelector("main h1")?.textContent ?? null);

/** How far the page is wider than its window. */
export const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);

/** Waits until a condition holds; throws with what was seen last. */
export async function until(what, attempt, limit = LIMIT) {
  const end = Date.now() + limit;
  let seen;
  for (;;) {
    try {
      seen = await attempt();
      if (seen) return seen;
    } catch (error) {
      seen = error.message;
    }
    if (Date.now() > end) throw new Error(`waited until ${what}; last seen: ${JSON.stringify(seen)}`);
    await new Promise((done) => { setTimeout(done, 50); });
  }
}

/** Prints the result and ends the browser. */
export async function tell(browser, told) {
  await browser.close();
  process.stdout.write(JSON.stringify(told));
}
