// Creating elements. Data from the network is inserted as text and attribute values, never as markup.

/** Returns the element with this id. */
export const at = (id) => document.getElementById(id);

const nodes = (children) => children.flat().filter((child) => child !== null && child !== undefined)
  .map((child) => child instanceof Node ? child : String(child));

/** Creates an element with a class and children. Children that are not nodes become text; null is left out. */
export function make(tag, kind, ...children) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...nodes(children));
  return made;
}

/** Replaces the children of an element. */
export function put(place, ...children) {
  place.replaceChildren(...nodes(children));
  return place;
}

/**
 * Like `put`, but keeps the elements that are there and changes only what differs, so that the focus, a selection and
 * the scroll position stay. For content that is drawn again and again. It must have no listeners and no open `details`.
 */
export function renew(place, ...children) {
  const wanted = nodes(children).map((child) => child instanceof Node ? child : document.createTextNode(child));
  wanted.forEach((node, index) => {
    const old = place.childNodes[index];
    if (old === undefined) place.append(node);
    else if (old.nodeType !== 1 || old.nodeName !== node.nodeName) old.replaceWith(node);
    else if (!old.isEqualNode(node)) {
      for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      renew(old, ...node.childNodes);
    }
  });
  while (place.childNodes.length > wanted.length) place.lastChild.remove();
  return place;
}

/** Sets attributes of an element and returns it. Null removes an attribute. */
export function having(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) element.removeAttribute(name);
    else element.setAttribute(name, String(value));
  }
  return element;
}

/** Creates an SVG element. */
export function draw(tag, attributes, ...children) {
  const made = having(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes);
  made.append(...nodes(children));
  return made;
}

/** Returns text in which parts between backticks are `code` elements. */
export const prose = (text) => text.split("`").map((part, index) => index % 2 === 1 ? make("code", "", part) : part);

/** Creates a paragraph of such text. */
export const paragraph = (kind, text) => make("p", kind, prose(text));

/** Creates a button that calls `act`. While a promise that it returned is pending, the button is disabled. */
export function button(text, kind, act) {
  const made = make("button", kind, text);
  made.type = "button";
  made.addEventListener("click", async (event) => {
    made.disabled = true;
    try {
      await act(event);
    } finally {
      made.disabled = false;
    }
  });
  return made;
}

/** Creates details whose content, which may be long, is made when they are first opened: `fill` returns it. */
export function folded(kind, summary, fill) {
  const body = make("div");
  const made = make("details", kind, make("summary", "", summary), body);
  made.addEventListener("toggle", () => { if (made.open && body.childNodes.length === 0) put(body, fill()); });
  return made;
}

/** Creates a labelled input, select or text area. */
export function field(label, input, kind = "") {
  return make("label", kind, make("span", "", label), input);
}

/** Creates an input with these attributes. */
export function input(attributes) {
  return having(make("input"), { type: "text", autocomplete: "off", spellcheck: "false", ...attributes });
}

/** Creates a drop-down list of pairs of a value and its text. */
export function choice(options, chosen) {
  const made = make("select", "", options.map(([value, text]) => having(make("option", "", text), { value })));
  if (chosen !== undefined) made.value = chosen;
  return made;
}

/** Creates a form with one submit button. `act` gets the event and may be asynchronous; the form is not sent. */
export function form(kind, act, ...children) {
  const made = make("form", kind, ...children);
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const submit = made.querySelector("[type=submit]");
    if (submit) submit.disabled = true;
    try {
      await act(event);
    } finally {
      if (submit) submit.disabled = false;
    }
  });
  return made;
}

/** Creates the submit button of a form. */
export const submit = (text, kind = "") => having(make("button", kind, text), { type: "submit" });
