// Opens every page with answers that hold hostile texts, until `texts` of them were shown, and looks for what must
// not come of it.

import { Notes, axe, base, context, given, launch, open, overflow, tell } from "./common.mjs";
import { subjects } from "./subjects.mjs";
import { numbers, poisoned, texts } from "./texts.mjs";

const browser = await launch();
const notes = new Notes();
const { pages } = await subjects();
const seed = given.seed ?? 1;
const [below, text] = [numbers(seed + 7), texts(seed)];
const told = { texts: 0, delivered: 0, loads: 0, found: [], failed: [], wide: [], per_page: {}, seconds: 0 };
const began = Date.now();
/** A statement of which both the values and the names of columns become hostile. */
const STATEMENT = "select 1 as a, x as b from (values ('x'), ('y'), ('z')) as t(x)";

/** What is in the page that the site does not make. */
const strangers = (page) => page.evaluate((home) => {
  const found = [];
  const say = (element, why) => found.push(`${why}: ${element.outerHTML.slice(0, 200)}`);
  for (const it of document.querySelectorAll("[data-hostile], img, iframe, object, embed, base, video, audio, frame, portal, math")) say(it, "stranger");
  for (const it of document.querySelectorAll("script")) if (!it.src.endsWith("/app.js")) say(it, "script");
  for (const it of document.querySelectorAll("style")) say(it, "style");
  for (const it of document.querySelectorAll("*")) {
    for (const { name, value } of it.attributes) {
      if (name.startsWith("on")) say(it, "handler");
      if (!["href", "src", "action", "formaction", "xlink:href", "data", "poster"].includes(name) || (it.tagName === "LINK" && value === "data:,")) continue;
      const address = new URL(value, document.baseURI);
      const isFile = address.protocol === "blob:" && it.hasAttribute("download");
      if (!["http:", "https:"].includes(address.protocol) && !isFile) say(it, "scheme");
      else if (!address.href.startsWith(home) && !isFile) say(it, "elsewhere");
    }
  }
  if (Object.keys(Object.prototype).length > 0 || {}.polluted !== undefined) found.push("Object.prototype was changed");
  return found;
}, base);

/** How many of these texts the page shows. Short ones are not looked for, because the site's own texts may have them. */
const shown = (page, used) => page.evaluate((all) => {
  const text = document.body.textContent;
  return all.filter((it) => text.includes(it)).length;
}, [...new Set(used.map((it) => it.trim().slice(0, 40)).filter((it) => it.length > 3))]);

function stream(answer) {
  const event = Array.isArray(answer) ? answer[0] : null;
  return event ? `id: 1\ndata: ${event}\n\n` : ": nothing\n\n";
}

/** Answers all requests of the page with what the service answers, but with hostile texts. */
async function poison(page, state) {
  const kept = new Map();
  await page.route(`${base}rest/**`, async (route) => {
    const request = route.request();
    const url = request.url();
    try {
      if (url.includes("/events/stream")) {
        const { json } = state.event === null ? { json: null } : poisoned(state.event, text, { possible: state.possible, below });
        return await route.fulfill({ status: 200, contentType: "text/event-stream", body: stream(json === null ? null : [json]) });
      }
      const key = `${request.method()} ${url} ${request.postData() ?? ""}`;
      if (!kept.has(key)) {
        const answer = await route.fetch();
        kept.set(key, { status: answer.status(), text: await answer.text() });
      }
      const { status, text: genuine } = kept.get(key);
      // An address that is too long is refused without a body.
      if (!/^\s*[[{]/.test(genuine)) return await route.fulfill({ status, body: genuine });
      let code = status;
      let answer = JSON.parse(genuine);
      // The token check of the head of the page must go on.
      if (state.refused && !url.includes("limit=1") && !url.includes("/health")) [code, answer] = [[400, 404, 403, 500, 409, 422][below(6)], { error: "x", code: "y" }];
      if (url.endsWith("/health") && status === 200 && below(2) === 0) answer = { ...answer, warning: "x", components: { ...answer.components, "more of it": { status: "down", reason: "x", detail: "y" } } };
      if (Array.isArray(answer) && answer[0]?.decoded) state.event = { ...answer[0], id: answer[0].id + 1 };
      const { json, used } = poisoned(answer, text, { possible: state.possible, below, isTable: (request.postData() ?? "").includes(STATEMENT) });
      state.used.push(...used);
      await route.fulfill({ status: code, contentType: "application/json", body: json });
    } catch (error) {
      if (!/closed|disposed|handled/i.test(error.message)) told.failed.push(`the test: ${error.message.split("\n")[0]} ${url}`);
    }
  });
}

/** Opens what the page has to open: details, lists, tabs. */
async function unfold(page) {
  await page.evaluate(() => {
    for (const it of document.querySelectorAll("main details")) it.open = true;
    for (const it of document.querySelectorAll("main .scroller, main .scrolled")) it.scrollTop = it.scrollHeight;
  });
  for (const tab of await page.locator("main [role=tab]").all()) await tab.click({ timeout: 5000 }).catch(() => {});
}

async function attack(page, name, where, state) {
  state.used = [];
  await open(page, where);
  if (name === "sql") {
    const area = page.locator("main textarea").first();
    if (await area.count() > 0) {
      await area.fill(STATEMENT);
      await area.press("Control+Enter");
    }
  }
  await unfold(page);
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 800 });
    const extra = await overflow(page);
    if (extra !== 0) told.wide.push(`${name} at ${width} px by ${extra} px (possible ${state.possible}, refused ${state.refused}): ${await page.evaluate(() => {
      const wide = [...document.querySelectorAll("body *")].filter((it) => it.getBoundingClientRect().right > innerWidth + 1 && !it.closest(".scrolled, .scroller, .rows"));
      return wide.slice(0, 4).map((it) => `${it.tagName}.${it.className} ${it.textContent.slice(0, 60)}`).join(" | ");
    })}`);
  }
  for (const stranger of await strangers(page)) told.found.push(`${name}: ${stranger}`);
  // The search opens the only thing that it finds.
  const places = [where.split("?")[0], ...name === "search" ? ["sql?q=", "account/C", "tx/"] : []];
  if (!places.some((place) => page.url().startsWith(base + place))) told.found.push(`${name}: went to ${page.url()}`);
  if (state.possible) {
    for (const problem of await page.locator("main .problem").allInnerTexts()) if (problem.startsWith("This page has an error")) told.failed.push(`${name}: ${problem.slice(0, 300)}`);
  }
  const seen = await shown(page, state.used);
  told.delivered += state.used.length;
  told.texts += seen;
  told.loads += 1;
  told.per_page[name] = (told.per_page[name] ?? 0) + seen;
}

const modes = [{ possible: true, refused: false }, { possible: false, refused: false }, { possible: true, refused: true }];
const complaints = [];
for (let round = 0; told.texts < given.texts || round < modes.length; round += 1) {
  const mode = modes[round % modes.length];
  // One context for each round, with the token in the address.
  const own = new Notes();
  const made = await context(browser, own);
  const page = await made.newPage();
  const state = { ...mode, used: [], event: null };
  await poison(page, state);
  for (const [name, where] of pages) {
    if (given.only && !given.only.includes(name)) continue;
    try {
      await attack(page, name, where, state);
    } catch (error) {
      told.failed.push(`${name} (possible ${mode.possible}, refused ${mode.refused}): ${error.message.split("\n").slice(0, 3).join(" ")}`);
    }
  }
  await made.close();
  // Answers that the service cannot give may leave a page with an error that it tells; nothing else may come of them.
  complaints.push(...own.complaints.filter((text) => mode.possible || !/ (says|fails): /.test(text)));
  notes.requests.push(...own.requests);
}
told.seconds = (Date.now() - began) / 1000;
await tell(browser, { ...told, axe: axe() !== null, complaints: complaints.slice(0, 40), foreign: notes.foreign() });
