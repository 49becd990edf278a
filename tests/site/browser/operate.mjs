// Does in the pages what the command line can do to programs and webhooks, each once, and what is refused. Further
// members of the argument: `module`, a file with a module; `contract` and `further`, contracts that have events; `other`,
// a token of another owner; `reading`, a token with the scope `read`.

import { createHmac } from "node:crypto";
import http from "node:http";
import { acting } from "./acting.mjs";
import { Notes, base, context, given, latestLedger, launch, open, settled, tell, until } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes)).newPage();
const told = { done: {}, refused: {}, hidden: [], focus: {} };
/** The text of what has the focus. */
const focused = () => page.evaluate(() => document.activeElement.innerText.split("\n")[0]);

const received = [];
let status = 200;
const receiver = http.createServer((request, answer) => {
  let body = "";
  request.on("data", (piece) => { body += piece; });
  request.on("end", () => {
    received.push({ path: request.url, body, headers: request.headers });
    answer.writeHead(status).end("the receiver says so");
  });
});
await new Promise((done) => { receiver.listen(0, "127.0.0.1", done); });
const endpoint = `http://127.0.0.1:${receiver.address().port}/hook`;

const { as, part, box, unfold, says, problemOf, step, refusal } = acting(page, told);

// Programs.

async function fillDeploy(name, file = given.module, contracts = given.contract) {
  await unfold("Deploy a program");
  const form = box("Deploy a program");
  await form.getByLabel("Name of the project").fill(name);
  await form.getByLabel("Module (.wasm)").setInputFiles(file);
  await form.getByLabel("Contracts on whose transactions it runs").fill(contracts);
  return form;
}

const programs = async () => await as(given.token, "rest/retroshade/list");
const named = async (name) => (await programs()).find((it) => it.project_name === name);

await open(page, "programs");
await step("try", async () => {
  const form = await fillDeploy("browser");
  await form.getByRole("button", { name: "Try" }).click();
  return says(form, /: \d+ rows?\b/);
});
await step("deploy", async () => {
  const form = await fillDeploy("browser");
  await form.getByRole("button", { name: "Deploy" }).click();
  const said = await says(form, /browser \(program \d+\)/);
  await until("it is listed", async () => (await part("Yours").innerText()).includes("browser"));
  return said;
});
await refusal("deploy twice", async () => {
  const form = await fillDeploy("browser");
  await form.getByRole("button", { name: "Deploy" }).click();
  return problemOf(form);
});
await refusal("deploy no module", async () => {
  const form = await fillDeploy("no_module", { name: "none.wasm", mimeType: "application/wasm", buffer: Buffer.from("\0asm nonsense") });
  await form.getByRole("button", { name: "Deploy" }).click();
  return problemOf(form);
});
await step("watch", async () => {
  await unfold("Watch the events of contracts");
  const form = box("Watch the events of contracts");
  await form.getByLabel("Name of the project").fill("watched");
  await form.getByLabel("Contracts whose events become rows").fill(given.contract);
  await form.getByRole("button", { name: "Watch" }).click();
  return says(form, /watched \(program \d+\)/);
});
await refusal("watch no contract", async () => {
  const form = box("Watch the events of contracts");
  await form.getByLabel("Name of the project").fill("watched_wrongly");
  await form.getByLabel("Contracts whose events become rows").fill("<b>no contract");
  await form.getByRole("button", { name: "Watch" }).click();
  return problemOf(form);
});
await refusal("subscribe to nobody", async () => {
  await unfold("Subscribe to another owner's project");
  const form = box("Subscribe to another owner's project");
  await form.getByLabel("Name of the project").fill("nobody_has_this");
  await form.getByRole("button", { name: "Subscribe" }).click();
  return problemOf(form);
});
const shared = await as(given.other, "rest/retroshade/watch", { project_name: "shared_events", contracts: [given.contract], public: true });
await step("subscribe", async () => {
  const form = box("Subscribe to another owner's project");
  await form.getByLabel("Name of the project").fill("shared_events");
  await form.getByRole("button", { name: "Subscribe" }).click();
  return says(form, /You read the tables of shared_events/);
});
await step("unsubscribe", async () => {
  await page.getByRole("button", { name: "Unsubscribe from shared_events" }).click();
  return says(part("Tables of others"), /You no longer read the tables of shared_events/);
});

const own = await named("browser");
await open(page, `programs/${own?.id}`);
await step("pause", async () => {
  await page.getByRole("button", { name: "Pause" }).click();
  await says(part("State"), /It is paused/);
  told.focus.pause = await focused();
  return (await named("browser")).running === false;
});
await step("resume", async () => {
  await page.getByRole("button", { name: "Resume" }).click();
  await says(part("State"), /It goes on/);
  return (await named("browser")).running === true;
});
await refusal("append no contract", async () => {
  const place = part("Contracts");
  await place.getByLabel("Further contracts").fill("nonsense");
  await place.getByRole("button", { name: "Append" }).click();
  return problemOf(place);
});
await step("append", async () => {
  const place = part("Contracts");
  await place.getByLabel("Further contracts").fill(given.further);
  await place.getByRole("button", { name: "Append" }).click();
  await says(place, /Registered: it has 2 contracts/);
  return (await named("browser")).contracts.length === 2;
});
await refusal("backfill of the future", async () => {
  const place = part("Backfill");
  await place.getByLabel("From ledger").fill("4000000000");
  await place.getByRole("button", { name: "Run it on these ledgers" }).click();
  return problemOf(place);
});
await step("backfill", async () => {
  const latest = await latestLedger();
  const place = part("Backfill");
  await place.getByLabel("From ledger").fill(String(latest - 20));
  await place.getByRole("button", { name: "Run it on these ledgers" }).click();
  await says(place, /The backfill has begun|Done: it was run/);
  return says(place, /Done: it was run on all requested ledgers|Ended: it was run/);
});
await step("executions", () => says(page.locator("main"), /success/));
await step("query", async () => {
  await open(page, "sql");
  await page.locator("main textarea").first().fill("select count(*) as runs from browser_deposits");
  await page.locator("main textarea").first().press("Control+Enter");
  return says(page.locator("main"), /runs|does not exist|no table/i);
});
await step("the command in the page of a table leads to its rows", async () => {
  await open(page, `programs/${(await named("watched")).id}`);
  const link = part("Tables").locator("table a").first();
  await until("it has tables", () => link.count());
  const href = await link.getAttribute("href");
  await link.click();
  await settled(page);
  return until("the statement is in the editor", async () => await page.locator("main textarea").first().inputValue() || Promise.reject(new Error(href)));
});
await refusal("delete with another name", async () => {
  await open(page, `programs/${own?.id}`);
  const place = part("Delete");
  await place.locator("input").fill("brows");
  await place.getByRole("button", { name: "Delete" }).click();
  const said = await problemOf(place);
  return await named("browser") === undefined ? "it was deleted!" : said;
});
await step("delete a program", async () => {
  const place = part("Delete");
  await place.locator("input").fill("browser");
  await place.getByRole("button", { name: "Delete" }).click();
  await until("it is gone", async () => await named("browser") === undefined);
  await until("the list is open", () => page.url() === `${base}programs`);
});

// Tables from the page of a contract: pressed in two windows that were opened before there were any.

const windows = [page, await page.context().newPage()];
for (const it of windows) await open(it, `contract/${given.further}`, given.other);
const tablesIn = (window) => window.locator("main section")
  .filter({ has: window.getByRole("heading", { name: "Tables of its events", exact: true }) });
const making = async (window) => {
  const place = tablesIn(window);
  await place.getByLabel("Name of the project").fill("from_its_page");
  await place.getByRole("button", { name: "Make tables of its events" }).click();
  return place;
};
await step("make tables of a contract's events", async () => {
  const place = await making(windows[0]);
  const said = await says(place, /from_its_page\.\w+/);
  told.focus.tables = await focused();
  const list = await as(given.other, "rest/retroshade/list");
  const own = list.find((it) => it.project_name === "from_its_page");
  if (own?.contracts.join() !== given.further || own.kind !== "events") throw new Error(JSON.stringify(own));
  // That for events which fit no declaration is folded.
  const declared = own.tables.map((table) => table.replace(/^program_\d+/, "from_its_page").replace("_page_", "_page."))
    .filter((table) => table !== "from_its_page.undeclared");
  const shown = await place.locator("a[href*='sql?q=']").allInnerTexts();
  if (declared.length === 0 || declared.sort().join() !== shown.sort().join()) throw new Error(`${declared} and ${shown}`);
  if (await place.getByRole("button", { name: "Make tables of its events" }).count() > 0) throw new Error("the form is still there");
  return said;
});
await refusal("make the same tables again", async () => problemOf(await making(windows[1])));
await windows[1].close();
for (const it of await as(given.other, "rest/retroshade/list")) {
  if (it.project_name === "from_its_page") await as(given.other, `rest/retroshade/${it.id}`, undefined, "DELETE").catch(() => {});
}

// Webhooks.

await open(page, "webhooks");
const subscribe = part("Subscribe an endpoint");
await refusal("subscribe without an endpoint", async () => {
  await subscribe.getByRole("button", { name: "Subscribe" }).click();
  return problemOf(subscribe);
});
await refusal("subscribe with a wrong scheme", async () => {
  await subscribe.getByLabel("Endpoint, a URL").fill("javascript:alert(1)");
  await subscribe.getByLabel(/^Contracts, with spaces/).fill(given.contract);
  await subscribe.getByRole("button", { name: "Subscribe" }).click();
  return problemOf(subscribe);
});
await refusal("subscribe to no contract", async () => {
  await subscribe.getByLabel("Endpoint, a URL").fill(endpoint);
  await subscribe.getByLabel(/^Contracts, with spaces/).fill("CNOTACONTRACT");
  await subscribe.getByRole("button", { name: "Subscribe" }).click();
  return problemOf(subscribe);
});
const hooks = async () => await as(given.token, "rest/webhooks/list");
const before = (await hooks()).map(({ id }) => id);
const secrets = [];
await step("subscribe an endpoint", async () => {
  await subscribe.getByLabel(/^Contracts, with spaces/).fill(given.contract);
  await subscribe.getByRole("button", { name: "Subscribe" }).click();
  await says(subscribe, /It is subscribed/);
  secrets.push(await subscribe.locator(".webhooks-made code").innerText());
  return secrets[0].length > 20;
});
const hook = (await hooks()).find(({ id }) => !before.includes(id));
await open(page, `webhooks/${hook?.id}`);
await step("test", async () => {
  await page.getByRole("button", { name: "Send a test" }).click();
  const said = await says(part("Subscription"), /The test arrived/);
  told.focus.test = await focused();
  return received.length > 0 ? said : false;
});
await step("a test that fails", async () => {
  status = 500;
  await page.getByRole("button", { name: "Send a test" }).click();
  const said = await says(part("Subscription"), /The test did not arrive/);
  status = 200;
  return said;
});
await refusal("replay of no range", async () => {
  await part("Send stored events again").getByRole("button", { name: "Send the events" }).click();
  return problemOf(part("Send stored events again"));
});
await refusal("replay of a range that is not stored", async () => {
  const place = part("Send stored events again");
  await place.getByLabel("From ledger").fill("4000000000");
  await place.getByLabel("To ledger").fill("4000000001");
  await place.getByRole("button", { name: "Send the events" }).click();
  return says(place, /not stored|No stored event|problem|newest/);
});
await step("replay of a range", async () => {
  const latest = await latestLedger();
  const place = part("Send stored events again");
  await place.getByLabel("From ledger").fill(String(latest - 30));
  await place.getByLabel("To ledger").fill(String(latest));
  await place.getByRole("button", { name: "Send the events" }).click();
  const said = await says(place, /events? will be sent/);
  await until("they arrive", () => received.some(({ body }) => body.includes(given.contract)));
  return said;
});
await step("deliveries", async () => {
  await page.getByTitle("Shows this delivery").first().click();
  return says(page.getByRole("region", { name: "Delivery" }), /It arrived|It waits|It is dead/);
});
await refusal("a delivery that is gone", async () => {
  await page.route("**/deliveries?delivery_id=**", (route) => route.fulfill({ json: [] }));
  const said = await says(page.getByRole("region", { name: "Delivery" }), /no such delivery any more/);
  await page.unroute("**/deliveries?delivery_id=**");
  await says(page.getByRole("region", { name: "Delivery" }), /It arrived|It waits|It is dead/);
  return said;
});
await step("replay of a delivery", async () => {
  await page.getByRole("button", { name: "Send it again" }).click();
  return says(page.getByRole("region", { name: "Delivery" }), /It is sent again/);
});
// Attempts go on for days, so the page is told that a delivery that arrived is dead.
await step("replay of dead deliveries", async () => {
  const arrived = await as(given.token, `rest/webhooks/${hook.id}/deliveries?status=delivered`);
  const dead = { ...arrived.find(({ test }) => !test), status: "dead" };
  await page.route("**/deliveries?status=dead&**", (route) =>
    route.fulfill({ json: route.request().url().includes("cursor") ? [] : [dead] }));
  const place = part("Send stored events again");
  await place.getByRole("button", { name: "Send all dead ones again" }).click();
  const said = await says(place, /1 event will be sent again/);
  await page.unroute("**/deliveries?status=dead&**");
  return said;
});
// New secrets. A test tells which of them sign.
const present = async () => (await hooks()).find(({ id }) => id === hook.id);
const signed = async () => {
  const count = received.length;
  await page.getByRole("button", { name: "Send a test" }).click();
  const { body, headers } = await until("the test arrives", () => received.slice(count).find((it) => it.body.includes("\"test\"")));
  const of = (secret) => createHmac("sha256", secret).update(body).digest("hex");
  return { all: headers["webhook-signature"].split(" ").length, by: secrets.findIndex((it) => of(it) === headers["x-service-signature"]) };
};
const rotate = async (isLeaked) => {
  const place = part("Receiving");
  await place.getByRole("button", { name: "Make a new secret" }).click();
  if (isLeaked) await place.getByRole("checkbox", { name: "Earlier secrets end at once" }).check();
  await place.getByRole("button", { name: "Make it", exact: true }).click();
  const secret = await until("there is another secret", async () => {
    const [text] = await place.locator(".webhooks-made code").allInnerTexts();
    return text !== undefined && !secrets.includes(text) && text;
  });
  secrets.push(secret);
  return place;
};
await step("no new secret", async () => {
  const place = part("Receiving");
  await place.getByRole("button", { name: "Make a new secret" }).click();
  await says(place, /For 24 hours, both sign/);
  await place.getByRole("button", { name: "Keep the present one" }).click();
  return (await present()).previous_secrets_until === null;
});
await step("a new secret", async () => {
  const said = await says(await rotate(false), /goes on signing beside it until/);
  await says(part("Subscription"), /Earlier secrets sign until/);
  const { all, by } = await signed();
  if (all !== 2 || by !== 0 || (await present()).previous_secrets_until === null) throw new Error(`${all} signatures, secret ${by}`);
  return said;
});
await step("a new secret, and none before it", async () => {
  const said = await says(await rotate(true), /no longer sign/);
  const { all, by } = await signed();
  if (all !== 1 || by !== 2) throw new Error(`${all} signatures, secret ${by}`);
  return said;
});
await step("a secret is shown once", async () => {
  await open(page, `webhooks/${hook.id}`);
  const text = await page.locator("body").innerText();
  return !secrets.some((it) => text.includes(it));
});
// Disabled after five days without a success: the service says so only then, so the page is given such an answer.
await step("enable", async () => {
  let isEnabled = false;
  await page.route("**/rest/webhooks/list", async (route) => {
    const answer = await route.fetch();
    const list = (await answer.json()).map((it) => it.id === hook.id && !isEnabled ? { ...it, enabled: false, disabled_reason: "failed for five days" } : it);
    await route.fulfill({ json: list });
  });
  await open(page, `webhooks/${hook.id}`);
  const sent = page.waitForResponse((answer) => answer.url().endsWith(`/webhooks/${hook.id}/enable`));
  await page.getByRole("button", { name: "Enable it" }).click();
  isEnabled = true;
  const code = (await sent).status();
  await page.unroute("**/rest/webhooks/list");
  return code;
});

// With a token that may only read.
const changed = notes.requests.length;
await open(page, `programs/${(await programs())[0].id}`, given.reading);
await refusal("read only: pause", async () => {
  await page.getByRole("button", { name: "Pause" }).click();
  return problemOf(part("State"));
});
await open(page, `webhooks/${hook.id}`, given.reading);
await refusal("read only: a webhook", async () => problemOf(page.locator("main")));
await open(page, "webhooks", given.reading);
await refusal("read only: the webhooks", async () => problemOf(page.locator("main")));
await open(page, "programs", given.reading);
await refusal("read only: deploy", async () => {
  const form = await fillDeploy("read_only");
  await form.getByRole("button", { name: "Deploy" }).click();
  return problemOf(form);
});
told.requests_of_reader = notes.requests.length - changed;

// Another owner's.
await refusal("another owner's program", async () => {
  await open(page, `programs/${own?.id ?? 1}`, given.other);
  return problemOf(page.locator("main"));
});
await refusal("another owner's webhook", async () => {
  await open(page, `webhooks/${hook.id}`, given.other);
  return problemOf(page.locator("main"));
});

// Webhooks of a contract, for who has none.
await open(page, `contract/${given.further}`, given.other);
await step("subscribe to a contract", async () => {
  await part("Webhooks of it").getByRole("link", { name: "subscribe an endpoint to them" }).click();
  await settled(page);
  return await page.getByLabel(/^Contracts, with spaces/).inputValue() === given.further;
});
await refusal("subscribe an endpoint without a scheme", async () => {
  await subscribe.getByLabel("Endpoint, a URL").fill("example");
  await subscribe.getByRole("button", { name: "Subscribe" }).click();
  const said = await problemOf(subscribe);
  told.focus.mistake = await page.evaluate(() => document.activeElement.name);
  return said;
});
await open(page, `webhooks/${hook.id}`);
await step("delete a webhook", async () => {
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Keep it" }).click();
  if (!(await hooks()).some(({ id }) => id === hook.id)) throw new Error("it was deleted without the second button");
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Delete it for good" }).click();
  await until("it is gone", async () => !(await hooks()).some(({ id }) => id === hook.id));
  await until("the list is open", () => page.url() === `${base}webhooks`);
});
await as(given.other, `rest/retroshade/${shared?.id}`, undefined, "DELETE").catch(() => {});
const watched = await named("watched");
if (watched) await as(given.token, `rest/retroshade/${watched.id}`, undefined, "DELETE").catch(() => {});
receiver.close();
receiver.closeAllConnections();
await tell(browser, { ...told, complaints: notes.complaints });
