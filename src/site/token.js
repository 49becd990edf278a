// The token: checking it, keeping it, and the form in which it is given.

import { Refused, Unreachable, ask, session } from "./api.js";
import { DATA_DIR_FLAG } from "./data_dir.js";
import { field, form, having, input, make, note, paragraph, prose, submit } from "./dom.js";
import { time } from "./format.js";

/** Key in `sessionStorage`, which lasts as long as this tab. */
const KEY = "orrery-token";

const listeners = new Set();

/** Calls `listener` whenever another token is used, or none. */
export const onToken = (listener) => listeners.add(listener);

/** Returns what the token says of itself (RFC 7519): `sub`, `exp`, `scopes`. Empty if it cannot be read. */
export function claims(token = session.token) {
  try {
    const text = atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"));
    const told = JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    return Object(told) === told ? told : {};
  } catch {
    return {};
  }
}

function set(token, isKept) {
  session.token = token;
  try {
    if (isKept) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  } catch {
    // A browser may forbid storage; the token then lasts as long as the page.
  }
  for (const listener of listeners) listener();
}

/** Uses no token any more. */
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
  const passing = session.token === "" ? [403, 429, 503] : [403];
  let refusal;
  try {
    await ask("rest/events/by-ledger?limit=1", { token });
  } catch (error) {
    if (error instanceof Unreachable) refusal = "the service does not answer";
    // A token that the service knows may have other rights. While it is busy, it may not have looked at the token,
    // which therefore does not replace another one.
    else if (!(error instanceof Refused && passing.includes(error.status))) refusal = error.message;
  }
  if (checked !== token) return undefined;
  if (refusal === undefined) set(token, isKept);
  return refusal;
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

/** Describes the token in use: whose it is, what it may, and until when. */
export function describe() {
  const { sub, scopes, exp } = claims();
  const owner = typeof sub === "string" ? ` of ${sub}` : "";
  const may = scopes === undefined ? "everything" : [scopes].flat().join(", ");
  return note(`A token${owner} is in use; it permits ${may}`,
    exp === undefined ? "" : ["; valid until ", time(exp * 1000)], ".");
}

/** Creates the form that takes a token. */
export function tokenForm() {
  const said = having(make("p", "note"), { role: "status" });
  const token = input({ type: "password", required: "" });
  const keep = input({ type: "checkbox", spellcheck: null });
  const take = async () => {
    having(said, { class: "note" }).textContent = "Checking the token …";
    const refusal = await use(token.value.trim(), keep.checked);
    const text = refusal === undefined ? "" : `This token cannot be used: ${refusal}`;
    having(said, { class: "problem" }).textContent = text;
    // The token in use is only in `session`.
    if (refusal === undefined) token.value = "";
  };
  return make("div", "token",
    paragraph("note", `\`orrery token issue${DATA_DIR_FLAG} --sub NAME\` issues one on the service's machine; `
      + "`orrery demo` prints one when it starts. It stays in the memory of this page, or with the box in this tab, and is sent only to this "
      + "service."),
    form("row", take, field("Token", token, "grow"),
      make("label", "check", keep, " Keep it for this tab"), submit("Use")),
    said);
}

/** Creates the notice that is shown where something needs a token. */
export const needsToken = (reason = "This needs a token.") =>
  make("div", "locked", make("p", "", prose(reason)), tokenForm());
