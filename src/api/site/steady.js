// Redrawing what is live without disturbing the reader.

const FOCUSABLE = "a[href], button, summary, input, select, [tabindex]";

/** What each place shows: the data as text, and its first child, which tells whether something else was put there since. */
const known = new WeakMap();

const nameOf = (element) => `${element.tagName} ${element.getAttribute("href") ?? ""} ${element.getAttribute("aria-label") ?? element.textContent}`;

function isReadIn(place) {
  const selection = getSelection();
  return !selection.isCollapsed && place.contains(selection.anchorNode);
}

/**
 * Replaces the children of a place by those that `create()` returns, if `data` is not what is shown. The focus stays on
 * the element of the same name, places stay scrolled, and details with a `data-key` stay open. While text of the place
 * is selected, it is left as it is.
 */
export function steady(place, data, create) {
  const text = JSON.stringify(data);
  const shown = known.get(place);
  const isFirst = shown === undefined || shown.first !== place.firstChild;
  if (!isFirst && (shown.text === text || isReadIn(place))) return;
  const before = [...place.querySelectorAll(FOCUSABLE)];
  const index = before.indexOf(document.activeElement);
  const name = index < 0 ? null : nameOf(before[index]);
  const scrolled = [...place.querySelectorAll(".scrolled")].map(({ scrollLeft, scrollTop }) => [scrollLeft, scrollTop]);
  const open = new Map([...place.querySelectorAll("details[data-key]")].map((it) => [it.dataset.key, it.open]));
  place.replaceChildren(...[create()].flat().filter(Boolean));
  known.set(place, { text, first: place.firstChild });
  for (const it of place.querySelectorAll("details[data-key]")) it.open = open.get(it.dataset.key) ?? it.open;
  [...place.querySelectorAll(".scrolled")].forEach((it, at) => {
    if (scrolled[at]) [it.scrollLeft, it.scrollTop] = scrolled[at];
  });
  if (name === null) return;
  const after = [...place.querySelectorAll(FOCUSABLE)];
  (after.find((it) => nameOf(it) === name) ?? after[Math.min(index, after.length - 1)])?.focus({ preventScroll: true });
}
