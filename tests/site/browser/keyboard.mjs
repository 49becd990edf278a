// With the keyboard alone: a token, a search, a transaction, its contract, a statement of SQL, and the replay of a
// webhook's delivery. Only `page.keyboard` acts.

import { Notes, ask, base, context, given, launch, settled, tell, until } from "./common.mjs";
import { subjects } from "./subjects.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes)).newPage();
const { event } = await subjects();
const [hook] = await ask("rest/webhooks/list");
const told = { presses: 0, unseen: [] };

/** What has the focus: its text or name, its address, and whether that can be seen. */
const focused = () => page.evaluate(() => {
  const it = document.activeElement;
  if (it === null || it === document.body) return { text: "", tag: "", href: "", isSeen: true };
  // The mark may be around what stands directly around it, such as an editor around its text.
  const marks = [it, it.parentElement, it.parentElement?.parentElement].filter(Boolean).map((one) => getComputedStyle(one));
  const { top, bottom, width } = it.getBoundingClientRect();
  return {
    tag: it.tagName, href: it.href ?? "", id: it.id, type: it.type ?? "", title: it.title, role: it.getAttribute("role") ?? "",
    text: (it.getAttribute("aria-label") ?? it.labels?.[0]?.innerText ?? it.innerText ?? "").trim(),
    isMarked: marks.some((style, index) => (style.outlineStyle !== "none" && style.outlineWidth !== "0px") || (index === 0 && style.boxShadow !== "none")),
    isSeen: width > 0 && bottom > 0 && top < innerHeight,
  };
});

async function press(key) {
  told.presses += 1;
  await page.keyboard.press(key);
}

/** Presses Tab until something has the focus, as a reader does who cannot use a mouse. */
async function tab(what, is, key = "Tab") {
  const passed = [];
  for (let presses = 0; presses < 300; presses += 1) {
    await press(key);
    const now = await focused();
    if (now.tag !== "" && !(now.isMarked && now.isSeen)) told.unseen.push(`${page.url().slice(base.length)}: ${now.tag} ${now.text.slice(0, 40)} marked ${now.isMarked} seen ${now.isSeen}`);
    passed.push(now.text.slice(0, 20) || now.tag);
    if (is(now)) return now;
  }
  throw new Error(`Tab does not reach ${what} on ${page.url()}: ${passed.slice(0, 120).join(" · ")}`);
}

const arrived = (path) => until(`${path} is open`, () => page.url().slice(base.length).startsWith(path)).then(() => settled(page));

await page.goto(base);
await settled(page);
await tab("the link to the content", ({ text }) => text === "Skip to the content");
await tab("the token", ({ id }) => id === "token-toggle");
await press("Enter");
await until("the field of the token has the focus", async () => (await focused()).type === "password");
await page.keyboard.insertText(given.token);
await press("Enter");
await until("the token is in use", () => page.evaluate(() => document.querySelector("#token-toggle").textContent.startsWith("Token:")));
await settled(page);

// A list is one stop of Tab, also when the units of its amounts have come, with links to their issuers.
told.stops = await until("the units are there", () => page.evaluate(() => {
  const links = [...document.querySelectorAll("main .scroller a")];
  return links.some((it) => it.closest(".unit")) ? { stops: links.filter((it) => it.tabIndex >= 0).length } : null;
}));

await press("/");
await until("the search field has the focus", async () => (await focused()).id === "search-text");
await page.keyboard.type(event.tx);
await press("Enter");
await arrived(`tx/${event.tx}`);
told.focus_after = (await focused()).tag;

await tab("the contract", ({ href }) => href.startsWith(`${base}contract/`));
await press("Enter");
await arrived("contract/");
told.contract = page.url().slice(base.length);
await tab("the filter", ({ text }) => text === "Show");
await press("Enter");
await until("what the filter finds is said", () => page.evaluate(() =>
  [...document.querySelectorAll("main [role=status]")].some((it) => /event|All|One/.test(it.textContent))));
told.kept = (await focused()).text;

await press("/");
await tab("SQL", ({ text, href }) => text === "SQL" && href === `${base}sql`);
await press("Enter");
await arrived("sql");
await tab("the editor", ({ tag }) => tag === "TEXTAREA");
await page.keyboard.type("select 6 * 7 as answer");
await press("Control+Enter");
await until("the statement is answered", () => page.evaluate(() => document.querySelector("main").innerText.includes("42")));
// Out of the editor: Tab completes words there only where a completion is offered.
told.left_editor = (await tab("Run", ({ text }) => text.startsWith("Run"))).text;
await press("Enter");
await settled(page);

await press("/");
await tab("the webhooks", ({ text, href }) => text === "Webhooks" && href === `${base}webhooks`);
await press("Enter");
await arrived("webhooks");
await tab("the webhook", ({ href }) => href === `${base}webhooks/${hook.id}`);
await press("Enter");
await arrived(`webhooks/${hook.id}`);
const before = await ask(`rest/webhooks/${hook.id}/deliveries?limit=100`);
// The list is one stop; arrows move through its rows.
await tab("the deliveries", ({ text }) => text === "Deliveries");
await press("ArrowDown");
const found = await focused();
if (found.title !== "Shows this delivery") throw new Error(`the arrow leads to ${JSON.stringify(found)}`);
told.delivery = found.text;
await press("Enter");
await until("a delivery is open", () => new URL(page.url()).searchParams.has("delivery"));
const chosen = new URL(page.url()).searchParams.get("delivery");
await settled(page);
const again = await tab("sending it again", ({ tag, text }) => tag === "BUTTON" && text === "Send it again");
told.replay = again.text;
const sent = page.waitForResponse((answer) => answer.url().includes(`/webhooks/${hook.id}/replay`));
await press("Enter");
const answer = await sent;
told.replayed = { status: answer.status(), asked: answer.request().postDataJSON() };
told.chosen = chosen;
await until("it was sent again", async () => {
  const [now] = await ask(`rest/webhooks/${hook.id}/deliveries?delivery_id=${encodeURIComponent(chosen)}`);
  const old = before.find((it) => it.delivery_id === chosen);
  return now.attempts.length > (old?.attempts.length ?? 0);
});
await until("the page says so", () => page.evaluate(() => document.querySelector("main").innerText.includes("It is sent again")));
await tell(browser, { ...told, unseen: [...new Set(told.unseen)], complaints: notes.complaints });
