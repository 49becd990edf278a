// Addresses and what they consist of (SEP-23).

import { ALPHABET, strkey } from "./topics.js";

/** First byte of the addresses of accounts. */
const ACCOUNT = 6 << 3;
/** Bytes between the first one and the checksum: a key, and of a muxed account an id. */
const SIZES = { C: 32, G: 32, M: 40, S: 32 };

function bytesOf(text) {
  const bytes = [];
  let [rest, bits] = [0, 0];
  for (const letter of text) {
    rest = (rest << 5 | ALPHABET.indexOf(letter)) & 0xfff;
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      bytes.push(rest >> bits & 0xff);
    }
  }
  return bytes;
}

/** Returns the bytes of the key in an address (C…, G…, M…). */
export const keyOf = (address) => bytesOf(address).slice(1, 33);

/** Returns whether the checksum of an address (C…, G…, M…) or a seed (S…) is right: otherwise it has a mistake. */
export function isRight(address) {
  const bytes = bytesOf(address);
  return strkey(bytes[0], bytes.slice(1, 1 + SIZES[address[0]])) === address;
}

/** Returns the account and the id, as decimal text, of a muxed account (M…). */
export function baseOf(muxed) {
  const bytes = bytesOf(muxed);
  const id = bytes.slice(33, 41).reduce((value, byte) => value << 8n | BigInt(byte), 0n);
  return { base: strkey(ACCOUNT, bytes.slice(1, 33)), id: String(id) };
}
