// Creating elements. Data from the network is inserted as text and attribute values, never as markup.

/** Returns the element with this id. */
export const at = (id) => document.getElementById(id);

const given = (children) => children.flat().filter((child) => child !== null && child !== undefined);

/** Creates an element with a class and children. Children that are not nodes become text; null is left out. */
export function make(tag, kind, ...children) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...given(children));
  return made;
}

/** Replaces the children of an element. */
export function put(place, ...children) {
  place.replaceChildren(...given(children));
  return place;
}

const FOCUSABLE = "a[href], button, summary, input, select, [tabindex]";

const nameOf = (control) =>
  `${control.tagName} ${control.getAttribute("href")} ${control.getAttribute("aria-label") ?? control.textContent}`;

function isSelectedIn(place) {
  const selection = getSelection();
  return !selection.isCollapsed && place.contains(selection.anchorNode);
}

/** Timers of what is to be drawn, by place, and how often it is tried, in milliseconds. */
const waiting = new WeakMap();
const AGAIN = 300;

/** Whether the reader points at a list in which each row moves with each drawing (`data-moves`), or has the focus there. */
function isAimedAt(place) {
  const list = place.querySelector("[data-moves]");
  return list !== null && (list.matches(":focus-within")
    || matchMedia("(hover: hover)").matches && list.matches(":hover"));
}

/**
 * Like `put`, for what is drawn again and again while it is read: nothing is replaced by what looks the same, and while
 * text of the place is selected, or something in it is pressed or aimed at, the drawing waits. The focus goes to the
 * control of the same name, places stay scrolled, and details with a `data-key` stay open. The children are made anew
 * for each call.
 */
export function renew(place, ...children) {
  const next = put(place.cloneNode(), ...children);
  for (const made of next.querySelectorAll("details[data-key]")) {
    made.open = place.querySelector(`details[data-key="${CSS.escape(made.dataset.key)}"]`)?.open ?? made.open;
  }
  clearTimeout(waiting.get(place));
  if (next.isEqualNode(place)) return;
  if (isSelectedIn(place) || place.matches(":active") || isAimedAt(place)) {
    const drawn = [...next.childNodes];
    waiting.set(place, setTimeout(() => renew(place, ...drawn), AGAIN));
    return;
  }
  const before = [...place.querySelectorAll(FOCUSABLE)];
  const index = before.indexOf(document.activeElement);
  const scrolled = [...place.querySelectorAll(".scrolled")].map(({ scrollLeft, scrollTop }) => [scrollLeft, scrollTop]);
  place.replaceChildren(...next.childNodes);
  [...place.querySelectorAll(".scrolled")].forEach((it, of) => it.scrollTo(...scrolled[of] ?? [0, 0]));
  if (index < 0) return;
  const after = [...place.querySelectorAll(FOCUSABLE)];
  const name = nameOf(before[index]);
  (after.find((control) => nameOf(control) === name) ?? after[index] ?? after.at(-1))?.focus({ preventScroll: true });
}

/** Sets attributes of an element and returns it. Null removes an attribute. */
export function having(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) element.removeAttribute(name);
    else element.setAttribute(name, value);
  }
  return element;
}

/** Creates an SVG element. */
export function draw(tag, attributes, ...children) {
  const made = having(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes);
  made.append(...given(children));
  return made;
}

/** Returns nodes, or arrays of nodes, as one array with a text between each two. */
export const joined = (items, between = ", ") =>
  items.flatMap((item, index) => index === 0 ? item : [between, item].flat());

/** Creates a `code` element. Flags such as `--data-dir` are not divided at the end of a line. */
export const code = (text) => make("code", "",
  text.split(/(--[\w-]+)/).map((part, index) => index % 2 === 1 ? make("span", "flag", part) : part));

/** Returns text in which parts between backticks are `code` elements. */
export const prose = (text) => text.split("`").map((part, index) => index % 2 === 1 ? code(part) : part);

/** Creates a paragraph of such text. */
export const paragraph = (kind, text) => make("p", kind, prose(text));

/** Creates a paragraph that explains something. */
export const note = (...content) => make("p", "note", ...content);

/** Focuses the heading of a part of the page, or else that of the page, which no key of its own reaches. */
function focusHeading(part) {
  const heading = part?.isConnected ? part.querySelector("h2") : at("main").querySelector("h1");
  if (heading !== null) having(heading, { tabindex: -1 }).focus({ preventScroll: true });
}

/**
 * Calls `act` when an element gets an event, and not again while a promise that it returned is pending. Meanwhile what
 * was pressed is marked as disabled, and keeps the focus, which a disabled control would lose. If it is gone afterwards,
 * the heading of its part gets the focus.
 */
function whenever(element, type, act) {
  let isPending = false;
  element.addEventListener(type, async (event) => {
    event.preventDefault();
    if (isPending) return;
    isPending = true;
    const pressed = event.submitter ?? element;
    const part = pressed.closest("section");
    const isFocused = pressed === document.activeElement;
    having(pressed, { "aria-disabled": true });
    try {
      await act(event);
    } finally {
      isPending = false;
      having(pressed, { "aria-disabled": null });
      if (isFocused && !pressed.isConnected && document.activeElement === document.body) focusHeading(part);
    }
  });
  return element;
}

/** Creates a button that calls `act`. While a promise that it returned is pending, the button does nothing more. */
export const button = (text, kind, act) =>
  whenever(having(make("button", kind, text), { type: "button" }), "click", act);

/** Creates a form with one submit button. `act` gets the event and may be asynchronous; the form is not sent. */
export const form = (kind, act, ...children) => whenever(make("form", kind, ...children), "submit", act);

/** Creates the submit button of a form. */
export const submit = (text, kind = "") => having(make("button", kind, text), { type: "submit" });

/** Creates details whose content, which may be long, is made when they are first opened: `fill` returns it. */
export function folded(kind, summary, fill) {
  const body = make("div");
  const made = make("details", kind, make("summary", "", summary), body);
  made.addEventListener("toggle", () => { if (made.open && body.childNodes.length === 0) put(body, fill()); });
  return made;
}

/** Creates a labelled input, select or text area. */
export const field = (label, input, kind = "") => make("label", kind, make("span", "", label), input);

/** Creates an input with these attributes. */
export const input = (attributes) =>
  having(make("input"), { type: "text", autocomplete: "off", spellcheck: "false", ...attributes });

/** Creates a drop-down list of pairs of a value and its text. */
export function choice(options, chosen) {
  const made = make("select", "", options.map(([value, text]) => having(make("option", "", text), { value })));
  if (chosen !== undefined) made.value = chosen;
  return made;
}
