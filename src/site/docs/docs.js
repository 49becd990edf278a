// Searches the documents: every place that has all words, those first that have them in a title.

import { copyButton } from "../copy.js";

/** Most places that are shown, and letters around the first word. */
const MOST = 20;
const AROUND = 70;
/** Milliseconds without a key after which the number of places is said. */
const PAUSE = 500;

const form = document.getElementById("search");
const field = document.getElementById("search-text");
const list = document.getElementById("found");
const said = document.getElementById("found-said");
const docs = new URL(form.dataset.docs, location.href).href;

let places;

/** Loads the index once: an array of address, title of the page, title of the section, and text. */
function index() {
  places ??= fetch(new URL("search.json", import.meta.url)).then((answer) => {
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  });
  return places;
}

/** Returns how well a place fits, 0 for not at all. */
function score([, page, section, text], words) {
  let total = 0;
  for (const word of words) {
    if (section.toLowerCase().includes(word)) total += 4;
    else if (page.toLowerCase().includes(word)) total += 2;
    else if (text.toLowerCase().includes(word)) total += 1;
    else return 0;
  }
  return total;
}

/** Returns the text around the first word. */
function excerpt(text, words) {
  const lower = text.toLowerCase();
  const at = Math.max(0, ...words.map((word) => lower.indexOf(word)).filter((found) => found >= 0).slice(0, 1));
  const begin = Math.max(0, at - AROUND);
  return `${begin > 0 ? "…" : ""}${text.slice(begin, at + 2 * AROUND)}…`;
}

function item([address, page, section, text], words) {
  const link = document.createElement("a");
  link.href = address === "" ? docs : `${docs}/${address}`;
  link.textContent = section === page ? page : `${page}: ${section}`;
  const around = document.createElement("p");
  around.className = "note";
  around.textContent = excerpt(text, words);
  const row = document.createElement("li");
  row.append(link, around);
  return row;
}

let saying;

/** Says aloud how many places there are, once the reader pauses. */
function say(text) {
  clearTimeout(saying);
  saying = setTimeout(() => { if (said.textContent !== text) said.textContent = text; }, PAUSE);
}

async function search() {
  const words = field.value.toLowerCase().split(/\s+/).filter((word) => word !== "").slice(0, 8);
  list.hidden = words.length === 0;
  if (words.length === 0) {
    say("");
    return;
  }
  let all;
  try {
    all = await index();
  } catch {
    places = undefined;
    say("The search could not be loaded.");
    return;
  }
  if (field.value.toLowerCase().trim() === "") return;
  const scored = all.map((place) => [score(place, words), place]).filter(([points]) => points > 0);
  const best = scored.sort(([a], [b]) => b - a).slice(0, MOST);
  list.replaceChildren(...best.map(([, place]) => item(place, words)));
  say(best.length === 0 ? "Nothing has all these words." : best.length === 1 ? "1 place" : `${best.length} places`);
}

/** Follows the item of a list that the address names: it has the id of the heading on another page that it leads to. */
function follow() {
  const named = document.getElementById(location.hash.slice(1));
  if (named?.matches("li[id]")) location.replace(named.querySelector("a").href);
}

const pages = [...document.querySelectorAll("header nav a")];
const current = pages.findLast(({ pathname }) => `${location.pathname}/`.startsWith(`${pathname}/`));
if (current !== undefined) {
  current.setAttribute("aria-current", "page");
  current.parentElement.scrollLeft = current.offsetLeft;
}
for (const block of document.querySelectorAll("article pre")) {
  const { textContent: text } = block;
  block.append(copyButton(() => text.trimEnd(), "these lines"));
}
addEventListener("hashchange", follow);
follow();
form.hidden = false;
// The search of the other pages leads here with what it did not find.
field.value = new URLSearchParams(location.search).get("q")?.slice(0, 200) ?? "";
if (field.value !== "") search();
field.addEventListener("focus", () => { index().catch(() => { places = undefined; }); });
field.addEventListener("input", search);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  list.querySelector("a")?.focus();
});
// The slash leads to the search field, as on the other pages.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest?.("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  field.focus();
});
