// What a text in the search field was meant to be: people paste from chats, documents, terminals and other explorers.

import { isRight } from "./strkey.js";

/** Signs around a name: quotes, brackets, marks of emphasis, and those that end a sentence. */
const AROUND = /^[\s"'`´“”„‘’‚«»‹›()[\]{}<>*|,;:!?.…]+|[\s"'`´“”„‘’‚«»‹›()[\]{}<>*|,;:!?.…]+$/gu;
const ADDRESS = /^(?:[CG][A-Z2-7]{55}|M[A-Z2-7]{68})$/;
const HASH = /^(?:0x)?[0-9a-f]{64}$/i;
const LINK = /^(?:https?:\/\/|[\w-]+(?:\.[\w-]+)+(?::\d+)?\/|localhost[:/])/i;
/** A number, also with signs between groups of three digits. */
const DIGITS = "(\\d{1,3}(?:[ ,.'’_]\\d{3})+|\\d{1,10})";
const LEDGER = new RegExp(`^(?:(?:ledger|block|sequence)s?)?[ :]*(?:no\\.?|nr\\.?|number)?[ :]*[#№]?[ ]*${DIGITS}$`, "iu");
const EVENT = /^event[ :]*(?:id)?[ :]*#?[ ]*(\d{1,16})$/i;

/** Returns a text without signs that nobody sees, and with single blanks. */
const seen = (text) => text.replace(/\p{Cf}/gu, "").replace(/[\s\p{Cc}]+/gu, " ").trim();

/** Returns the address or the hash that a word is; null for another word. An address may be in lower case. */
function nameOf(word) {
  if (ADDRESS.test(word) || HASH.test(word)) return word;
  const upper = word.toUpperCase();
  return ADDRESS.test(upper) && isRight(upper) ? upper : null;
}

const withoutSigns = (text) => text.replace(/[ ,.'’_]/g, "");

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Returns what a link of this site (which begins with `base`) or of another explorer names; null if nothing. */
function ofLink(text, base) {
  const url = URL.parse?.(/^https?:/i.test(text) ? text : `https://${text}`) ?? null;
  if (url === null) return null;
  if (url.href.startsWith(base) && url.pathname !== new URL(base).pathname) {
    return { path: url.href.slice(base.length).split("#")[0] };
  }
  const words = `${url.pathname}/${url.search}/${url.hash}`.split(/[/?&=#]/).map(decoded);
  const name = words.map(nameOf).filter(Boolean).at(-1);
  if (name !== undefined) return { name };
  const at = words.findIndex((word) => /^(?:ledger|block|event)s?$/i.test(word));
  const number = at < 0 ? null : /^\d{1,16}$/.exec(words[at + 1])?.[0];
  return number ? { path: `${/^event/i.test(words[at]) ? "event" : "ledger"}/${Number(number)}` } : null;
}

/**
 * Returns what a text was meant to be: the `path` of a page, or a `name`, which is empty for a text that holds nothing.
 * `base` is the address of this site.
 */
export function meant(text, base) {
  const whole = seen(text);
  const bare = whole.replace(AROUND, "");
  const link = LINK.test(bare) ? ofLink(bare.replaceAll(" ", ""), base) : null;
  if (link !== null) return link;
  const [, ledger] = LEDGER.exec(bare) ?? [];
  if (ledger !== undefined) return { path: `ledger/${Number(withoutSigns(ledger))}` };
  const [, event] = EVENT.exec(bare) ?? [];
  if (event !== undefined) return { path: `event/${Number(event)}` };
  // One name among other words, or one that was wrapped.
  const names = new Set(bare.split(" ").map((word) => nameOf(word.replace(/^\w+[:=]/, "").replace(AROUND, ""))));
  names.delete(null);
  const joined = bare.replaceAll(" ", "");
  if (names.size === 1) return { name: [...names][0] };
  const isHex = /^(?:0x)?[0-9a-f]+$/i.test(joined) && joined.length >= 32;
  return { name: nameOf(joined) ?? (isHex ? joined : bare) };
}

/** A word that is a secret seed or, with a letter that is wrong, missing or doubled, nearly one. */
const NEARLY = /^(?:S[A-D][A-Z2-7]{53,55}|s[a-d][a-z2-7]{53,55})$/;

/** Whether a secret seed (SEP-23, S…) is anywhere in a text, whatever is around or within it. */
function hasSeed(text) {
  if (seen(text).split(" ").some((word) => NEARLY.test(word.replace(AROUND, "")))) return true;
  const letters = seen(text).replaceAll(" ", "").toUpperCase();
  const candidates = letters.matchAll(/(?=(S[A-D][A-Z2-7]{54}))/g);
  return [...candidates].some(([, candidate]) => isRight(candidate));
}

/** Words of the phrases from which wallets derive seeds (BIP-39). */
const PHRASES = [12, 15, 18, 21, 24];

/** Returns which kind of secret is in a text; null if none is known in it. A secret must not get into an address. */
export function secretIn(text) {
  if (hasSeed(text)) return "seed";
  const whole = seen(text);
  if (/eyJ[\w-]{10,}\.eyJ[\w-]+\.[\w-]+/.test(whole.replaceAll(" ", ""))) return "token";
  if (/whsec_[\w+/=]{16,}/.test(whole)) return "webhook";
  const words = whole.split(" ");
  return PHRASES.includes(words.length) && words.every((word) => /^[a-z]{3,8}$/.test(word)) ? "phrase" : null;
}
