// The token: checking it, keeping it, and the form in which it is given.

import { Refused, Unreachable, ask, session } from "./api.js";
import { field, form, input, make, paragraph, prose, submit } from "./dom.js";
import { time } from "./format.js";

/** Key in `sessionStorage`, which lasts as long as this tab. */
const KEY = "orrery-token";

const listeners = new Set();

/** Calls `listener` whenever another token is used, or none. */
export const onToken = (listener) => listeners.add(listener);

/** Returns what the token says of itself (RFC 7519): `sub`, `exp`, `scopes`. Empty if it cannot be read. */
export function claims(token = session.token) {
  try {
    const bytes = Uint8Array.from(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")), (it) => it.charCodeAt(0));
    const told = JSON.parse(new TextDecoder().decode(bytes));
    return told !== null && typeof told === "object" ? told : {};
  } catch {
    return {};
  }
}

function set(token, isKept) {
  session.token = token;
  try {
    if (token !== "" && isKept) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  } catch {
    // A browser may forbid storage; the token then lasts as long as the page.
  }
  for (const listener of listeners) listener();
}

export const forget = () => set("", false);

/** The token that is checked: the last one that was given counts. */
let checked = "";

/**
 * Checks a token with a request that needs one, and uses it if the service accepts it. Returns why not as a sentence;
 * nothing if it is in use.
 */
export async function use(token, isKept) {
  // Others cannot be sent in a header.
  if (!/^[!-~]+$/.test(token)) return "a token has only letters, digits and signs of ASCII";
  checked = token;
  try {
    await ask("rest/events/by-ledger?limit=1", { token });
  } catch (error) {
    if (checked !== token) return undefined;
    if (error instanceof Unreachable) return "the service does not answer";
    // A token that the service knows may have other rights than this one, or too many requests.
    if (!(error instanceof Refused) || ![403, 429, 503].includes(error.status)) return error.message;
  }
  if (checked === token) set(token, isKept);
  return undefined;
}

/** Uses the token that was kept for this tab. */
export function resume() {
  try {
    session.token = sessionStorage.getItem(KEY) ?? "";
  } catch {
    // As above.
  }
}

/** Returns the token that the address has behind `#token=`, and removes it from the address and the history. */
export function given() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) history.replaceState(history.state, "", location.href.split("#")[0]);
  return found || null;
}

/** Returns whether a token is of another owner than the one in use: who sends a link chooses its token. */
export const isForeign = (token) => session.token !== "" && claims(token).sub !== claims().sub;

/** Describes the token in use: whose it is, what it may, and until when. */
export function describe() {
  const { sub, scopes, exp } = claims();
  const may = scopes === undefined ? "everything" : [scopes].flat().join(", ");
  const parts = [`A token${typeof sub === "string" ? ` of ${sub}` : ""} is in use; it permits ${may}`];
  return make("p", "note", ...parts, ...(Number.isFinite(exp) ? ["; valid until ", time(exp * 1000)] : []), ".");
}

let forms = 0;

/** Creates the form that takes a token. `done` is called when one is in use. */
export function tokenForm(done = () => {}) {
  forms += 1;
  const said = make("p", "note");
  said.setAttribute("role", "status");
  const token = input({ type: "password", id: `token-${forms}` });
  const keep = input({ type: "checkbox", spellcheck: null });
  const take = async () => {
    const text = token.value.trim();
    if (text === "") {
      said.textContent = "Paste a token into the field first.";
      return;
    }
    said.className = "note";
    said.textContent = "Checking the token …";
    const reason = await use(text, keep.checked);
    if (reason !== undefined) {
      said.className = "problem";
      said.textContent = `This token cannot be used: ${reason}`;
      return;
    }
    // The field is cleared, so that the token is only in `session`.
    token.value = "";
    said.textContent = "";
    done();
  };
  const kept = make("label", "check", keep, " Keep it for this tab");
  return make("div", "token",
    paragraph("note", "`orrery token issue --sub NAME` issues one on the service's machine; `orrery demo` prints one when it starts. It stays in the memory of this page, or with the box in this tab, and is sent only to this service."),
    form("row", take, field("Token", token, "grow"), kept, submit("Use")), said);
}

/** Creates the notice that is shown where something needs a token. */
export function needsToken(reason = "This needs a token.") {
  return make("div", "locked", make("p", "", prose(reason)), tokenForm());
}
