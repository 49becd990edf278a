// Makes projects by what selects contracts, and tries and makes subscriptions to other things than events, under conditions
// and as messages. Further members of the argument: `contract`, one that has events; `widths`; `pictures`, a directory, or
// null.

import { mkdirSync } from "node:fs";
import path from "node:path";
import { acting } from "./acting.mjs";
import { Notes, axe, context, given, launch, open, overflow, settled, tell } from "./common.mjs";

const browser = await launch();
const notes = new Notes();
const page = await (await context(browser, notes)).newPage();
const told = { done: {}, refused: {}, focus: {}, clipped: [], violations: [], shown: {} };
const { as, part, box, unfold, says, problemOf, step, refusal } = acting(page, told);
const endpoint = "http://127.0.0.1:9/hook";

/** Notes what is cut off or breaks a rule in a part of the page, in three widths and both colours. */
async function measure(section, label) {
  for (const width of given.widths) {
    await page.setViewportSize({ width, height: 900 });
    await settled(page);
    const cut = await section.evaluate((it) => [...it.querySelectorAll("td, h3, p, label, button, li")]
      .filter((one) => one.getClientRects().length > 0 && one.scrollWidth > one.clientWidth + 1)
      .map((one) => one.textContent.slice(0, 60)));
    told.clipped.push(...cut.map((it) => `${label} ${width}: ${it}`));
    const extra = await overflow(page);
    if (extra > 0) told.clipped.push(`${label} ${width}: ${extra} px wider than the window`);
    if (given.pictures === null) continue;
    mkdirSync(given.pictures, { recursive: true });
    await section.screenshot({ path: path.join(given.pictures, `watching-${label}-${width}.png`) });
  }
  const rules = axe();
  for (const colorScheme of rules === null ? [] : ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.evaluate(rules);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    told.violations.push(...violations.map(({ id, nodes }) => `${label} ${colorScheme}: ${id} ${nodes[0].html.slice(0, 200)}`));
  }
}

const focused = () => page.evaluate(() => {
  const { name, value, selectionStart: start, selectionEnd: end } = document.activeElement;
  return [name, value?.slice(start, end) ?? ""].join(" ").trim();
});

// Projects.

await open(page, "programs");
await unfold("Watch the events of contracts");
const watch = box("Watch the events of contracts");
const factory = (number) => watch.getByRole("group", { name: `Factory ${number}` });
await refusal("a code that is none", async () => {
  await watch.getByLabel("Name of the project").fill("selected");
  await watch.getByLabel(/^While they run the code/).fill("abc");
  await watch.getByRole("button", { name: "Watch" }).click();
  const said = await problemOf(watch);
  told.focus.code = await focused();
  return said;
});
await refusal("a factory without an event", async () => {
  await watch.getByLabel(/^While they run the code/).fill("");
  await watch.getByRole("button", { name: "Another factory" }).click();
  await factory(2).getByLabel("Factory", { exact: true }).fill(given.contract);
  await watch.getByRole("button", { name: "Watch" }).click();
  const said = await says(watch, /Factory 2 needs/);
  told.focus.factory = await focused();
  return said;
});
await measure(watch, "watch");
await step("watch by selectors", async () => {
  await factory(2).getByRole("button", { name: "Remove this factory" }).click();
  if (await factory(2).count() > 0) throw new Error("the second factory is still there");
  await watch.getByLabel(/^All contracts, but only/).fill("filled, transfer");
  await watch.getByLabel(/^Created by these/).fill(given.contract);
  await watch.getByRole("button", { name: "Watch" }).click();
  return says(watch, /selected \(program \d+\)/);
});
const project = (await as(given.token, "rest/retroshade/list")).find(({ project_name: name }) => name === "selected");
told.shown.selectors = project?.selectors ?? null;
await step("its page", async () => {
  await open(page, `programs/${project.id}`);
  await says(part("Members"), /Nothing that it selects is stored yet|newest first/);
  await measure(page.locator("main"), "project");
  told.shown.contracts = await part("Contracts").innerText();
  told.shown.state = await part("State").innerText();
  await page.getByRole("link", { name: "Subscribe an endpoint to its contracts" }).click();
  await settled(page);
  return await page.locator("[name=project]").inputValue() === "selected";
});

// Subscriptions.

await open(page, `webhooks?contract=${given.contract}`);
const subscribe = part("Subscribe an endpoint");
const condition = subscribe.getByLabel("Condition, if it matters");
const preview = async (pattern) => {
  await subscribe.getByRole("button", { name: "Preview" }).click();
  return says(subscribe, pattern);
};
await step("fields of each kind", async () => {
  const fields = {};
  for (const on of ["upgrade", "storage", "ttl", "failed_call", "silence", "event"]) {
    await subscribe.locator("[name=on]").selectOption(on);
    const shown = await subscribe.locator("[name]:enabled").evaluateAll((all) => all
      .filter((it) => it.getClientRects().length > 0).map(({ name }) => name));
    const common = ["on", "format", "webhook_endpoint", "contract_ids", "webhook_secret"];
    fields[on] = [...new Set(shown)].filter((name) => !common.includes(name)).sort().join(" ");
  }
  told.shown.fields = fields;
});
await refusal("a condition with a mistake", async () => {
  await subscribe.getByLabel("Endpoint, a URL").fill(endpoint);
  await condition.fill("ledger == 5");
  await subscribe.getByRole("button", { name: "Subscribe" }).click();
  const said = await says(subscribe, /at character/);
  told.focus.condition = await focused();
  return said;
});
await step("preview", async () => {
  await condition.fill("ledger > 1");
  const said = await preview(/It would have sent [1-9][\d,]* in [\d,]+ ledgers?, [\d,]+ to [\d,]+\. The first:/);
  const body = JSON.parse(await subscribe.getByRole("region", { name: "Body 1" }).innerText());
  if (body.event.contract_id !== given.contract) throw new Error(JSON.stringify(body));
  return said;
});
await refusal("a message with a mistake", async () => {
  await subscribe.locator("[name=format]").selectOption("text");
  await subscribe.locator("[name=message]").fill("in {ledger");
  return preview(/at character/).finally(async () => { told.focus.message = await focused(); });
});
await step("preview of messages", async () => {
  await subscribe.locator("[name=message]").fill("<b>{name}</b> in ledger {ledger}");
  await preview(/in ledger \d+/);
  return subscribe.getByRole("region", { name: "Message 1" }).innerText();
});
await measure(subscribe, "message");
await step("subscribe to upgrades", async () => {
  await subscribe.locator("[name=format]").selectOption("service");
  await subscribe.locator("[name=on]").selectOption("upgrade");
  await subscribe.getByRole("button", { name: "Subscribe" }).click();
  await says(subscribe, /It is subscribed/);
  await says(part("Your subscriptions"), /upgrade/);
  return await subscribe.locator("[name=on]").inputValue() === "event";
});
told.shown.hooks = (await as(given.token, "rest/webhooks/list")).filter(({ on }) => on === "upgrade").map(({ where }) => where);

await tell(browser, { ...told, complaints: notes.complaints, foreign: notes.foreign() });
