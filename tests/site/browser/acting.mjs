// What scripts share that act in pages: parts of a page, what is said there, and steps that are done or refused.

import { ask, until } from "./common.mjs";

/** Returns what acts in a page, and notes in `told` what was `done` and what was `refused`. */
export function acting(page, told) {
  const as = (token, route, body, method = body === undefined ? "GET" : "POST") => ask(route, {
    method, body: body === undefined ? undefined : JSON.stringify(body),
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
  });
  const part = (title) => page.locator("main section").filter({ has: page.getByRole("heading", { name: title, exact: true }) }).first();
  const box = (summary) => page.locator("main details").filter({ has: page.locator("summary", { hasText: summary }) });
  const unfold = (summary) => box(summary).evaluate((it) => { it.open = true; });
  /** The text of a place when it matches. */
  const says = (place, pattern) => until(`${pattern} is said`, async () => {
    const text = (await place.allInnerTexts()).join("\n");
    return pattern.test(text) ? text.match(new RegExp(`.*(?:${pattern.source}).*`, pattern.flags))[0].trim() : Promise.reject(new Error(text.slice(-600)));
  });
  const problemOf = (place) => until("a problem is told", async () => (await place.locator(".problem").allInnerTexts()).find((text) => text.trim() !== ""));

  async function step(name, act) {
    try {
      told.done[name] = await act() ?? true;
    } catch (error) {
      told.done[name] = { failed: error.message.split("\n").slice(0, 3).join(" ").slice(0, 700) };
    }
  }

  async function refusal(name, act) {
    try {
      told.refused[name] = await act();
    } catch (error) {
      told.refused[name] = { failed: error.message.split("\n").slice(0, 3).join(" ").slice(0, 700) };
    }
  }

  return { as, part, box, unfold, says, problemOf, step, refusal };
}
