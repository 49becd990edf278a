// What a text in the search field names.

import { BASE, encoded, pathOf } from "./address.js";
import { meant, secretIn } from "./pasted.js";

/**
 * Returns the path of the page for a text: that of a ledger, a contract or an account, which its form tells; otherwise
 * that of the search, which looks where it is found. Null for an empty text. A secret is not in the path.
 */
export function searchFor(text) {
  const secret = secretIn(text);
  if (secret !== null) return `search?secret=${secret}`;
  const { path, name } = meant(text, BASE);
  if (path !== undefined) return path;
  return name === "" ? null : pathOf(name) ?? `search?q=${encoded(name)}`;
}

/** Returns a hash (64 hexadecimal digits, with or without `0x`) in lower case; null for another text. */
export const hashOf = (text) => /^(?:0x)?([0-9a-f]{64})$/i.exec(text.trim())?.[1].toLowerCase() ?? null;

/**
 * Returns the id of a credential in hexadecimal, which may be given so or in base64url, as browsers name it (WebAuthn,
 * section 5.8.3); null for another text.
 */
export function credentialOf(text) {
  const name = text.trim();
  if (/^(0x)?([0-9a-f]{2}){1,1023}$/i.test(name)) return name.replace(/^0x/i, "").toLowerCase();
  if (!/^[A-Za-z0-9_-]{16,1364}$/.test(name)) return null;
  try {
    const bytes = atob(name.replaceAll("-", "+").replaceAll("_", "/"));
    return Array.from(bytes, (letter) => letter.charCodeAt(0).toString(16).padStart(2, "0")).join("");
  } catch {
    return null;
  }
}
