// What all parts of the page use: elements, numbers and times as people read them, and questions to the service.
// Whatever comes from the network becomes text of an element and nothing else.

/** The token is here and nowhere else. */
export const session = { token: "" };

/** An answer that is no success, with the service's sentence. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** An answer to a question that was asked with a token which is not in use any more. */
export class Stale extends Error {}

/** The element of the page with this id. */
export const at = (id) => document.getElementById(id);

/** Makes an element with a class and children; texts become text. */
export function make(tag, kind, ...children) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...children.map((child) => child instanceof Node ? child : String(child)));
  return made;
}

/** A paragraph in which what stands between backticks is code. */
export const prose = (kind, text) => make("p", kind, ...text.split("`").map((part, index) =>
  index % 2 === 1 ? make("code", "", part) : part));

/** Makes an element of a drawing. */
export function draw(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children.map((child) => child instanceof Node ? child : String(child)));
  return made;
}

/** Asks the service; `body` makes it a POST. A path is relative, so that it works behind a proxy that adds to it. */
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

/** Shows what is wrong in place of a panel's contents. */
export function complain(place, error) {
  if (error instanceof Stale) return;
  const sentence = error instanceof Refused ? error.message : "the service cannot be reached";
  place.replaceChildren(make("p", "problem", sentence));
}

export const number = (value) => value.toLocaleString("en-US");

/** A number of things that take an `s`. */
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

/** UTC, because ledgers are. */
export const moment = (milliseconds) => `${new Date(milliseconds).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** The beginning and the end of a long name, which as a whole is its title. */
export function short(name, kept = 6) {
  const shown = make("span", "mono", name.length > 2 * kept + 3 ? `${name.slice(0, kept)}…${name.slice(-kept)}` : name);
  shown.title = name;
  return shown;
}

/** A table with these heads; a cell is text, or a list of an element or text and its class. */
export function table(heads, rows) {
  const cell = (tag) => (value) => {
    const [content, kind] = Array.isArray(value) ? value : [value, ""];
    return make(tag, kind, content);
  };
  const head = make("thead", "", make("tr", "", ...heads.map(cell("th"))));
  const body = make("tbody", "", ...rows.map((row) => make("tr", "", ...row.map(cell("td")))));
  return make("div", "scrolled", make("table", "", head, body));
}
