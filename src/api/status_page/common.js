// Helpers for all parts of the page: creating elements, formatting numbers and times, and sending requests to the
// service. Data from the network is inserted as text and attribute values, never as HTML.

/** The API token in use, empty if there is none. It is stored nowhere else. */
export const session = { token: "" };

/** A response with an error status, with the service's error message, or a response whose body is not JSON. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** A response to a request whose token has been replaced or forgotten in the meantime. */
export class Stale extends Error {}

/** Returns the element with this id. */
export const at = (id) => document.getElementById(id);

/** Creates an element with a class and children. Children that are not nodes become text. */
export function make(tag, kind, ...children) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...children.map((child) => child instanceof Node ? child : String(child)));
  return made;
}

/** Creates a paragraph in which text between backticks becomes a `code` element. */
export const prose = (kind, text) => make("p", kind, ...text.split("`").map((part, index) =>
  index % 2 === 1 ? make("code", "", part) : part));

/** Creates an SVG element. Children that are not nodes become text. */
export function draw(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children.map((child) => child instanceof Node ? child : String(child)));
  return made;
}

/**
 * Sends a request and returns the parsed JSON body; with `body`, the request is a POST. Throws `Refused` or `Stale`.
 * Paths are relative, so that they work behind a proxy that adds a path prefix.
 */
export async function ask(path, { body, withToken = false } = {}) {
  const headers = {};
  const { token } = session;
  if (withToken) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  const text = await answer.text();
  if (withToken && token !== session.token) throw new Stale();
  let told;
  try {
    told = JSON.parse(text);
  } catch {
    throw new Refused(answer.status, `the answer (status ${answer.status}) is not JSON`);
  }
  if (!answer.ok) throw new Refused(answer.status, told.error || `status ${answer.status}`);
  return told;
}

/** Replaces the contents of `place` with an error message. Ignores `Stale`. */
export function complain(place, error) {
  if (error instanceof Stale) return;
  const sentence = error instanceof Refused ? error.message : "the service cannot be reached";
  place.replaceChildren(make("p", "problem", sentence));
}

export const number = (value) => value.toLocaleString("en-US");

/** Formats a count with its noun, whose plural ends in `s`. */
export const count = (of, thing) => `${number(of)} ${thing}${of === 1 ? "" : "s"}`;

export function bytes(count) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds) {
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  return minutes > 0 ? `${minutes} min ${Math.floor(seconds) % 60} s` : `${Math.floor(seconds)} s`;
}

/** Formats a UNIX time in milliseconds as UTC, like the close times of ledgers. */
export const moment = (milliseconds) => `${new Date(milliseconds).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** Shortens a long name to its first and last `kept` characters. The title attribute has the whole name. */
export function short(name, kept = 6) {
  const shown = make("span", "mono", name.length > 2 * kept + 3 ? `${name.slice(0, kept)}…${name.slice(-kept)}` : name);
  shown.title = name;
  return shown;
}

/**
 * Creates a table. A cell or column head is an element or text, or an array of that and a class. Where the table is
 * wider than its place, the keyboard can scroll it.
 */
export function table(heads, rows) {
  const cell = (tag) => (value) => {
    const [content, kind] = Array.isArray(value) ? value : [value, ""];
    return make(tag, kind, content);
  };
  const head = make("thead", "", make("tr", "", ...heads.map(cell("th"))));
  const body = make("tbody", "", ...rows.map((row) => make("tr", "", ...row.map(cell("td")))));
  const scrolled = make("div", "scrolled", make("table", "", head, body));
  const names = heads.map((value) => Array.isArray(value) ? value[0] : value);
  scrolled.tabIndex = 0;
  scrolled.setAttribute("role", "group");
  scrolled.setAttribute("aria-label", `Table: ${names.join(", ")}`);
  return scrolled;
}
