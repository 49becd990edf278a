// Topics as people write them: `transfer`, `G…`, `u64:5`. The service returns them as base64 XDR (ScVal).

/** The letters of base32, of five bits each. */
export const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** Returns an address as text (strkey, SEP-23): a version byte, the key, and a CRC-16 (XMODEM). */
export function strkey(version, key) {
  let crc = 0;
  for (const byte of [version, ...key]) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1) & 0xffff;
  }
  const bits = [version, ...key, crc & 0xff, crc >> 8].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  // The bits of a muxed address end within a letter.
  return bits.match(/.{1,5}/g).map((five) => ALPHABET[parseInt(five.padEnd(5, "0"), 2)]).join("");
}

function decoded(bytes) {
  const view = new DataView(bytes.buffer);
  const size = () => bytes.slice(8, 8 + view.getUint32(4));
  const text = () => new TextDecoder("utf-8", { fatal: true }).decode(size());
  switch (view.getUint32(0)) {
    case 0: return `bool:${view.getUint32(4) === 1}`;
    case 3: return `u32:${view.getUint32(4)}`;
    case 4: return `i32:${view.getInt32(4)}`;
    case 5: return `u64:${view.getBigUint64(4)}`;
    case 6: return `i64:${view.getBigInt64(4)}`;
    case 9: return `u128:${view.getBigUint64(4) << 64n | view.getBigUint64(12)}`;
    case 10: return `i128:${view.getBigInt64(4) << 64n | view.getBigUint64(12)}`;
    case 13: return `bytes:${Array.from(size(), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
    case 14: return `string:${text()}`;
    case 15: return text();
    case 18:
      if (view.getUint32(4) === 0) return strkey(6 << 3, bytes.slice(12, 44));
      return view.getUint32(4) === 1 ? strkey(2 << 3, bytes.slice(8, 40)) : null;
    case 20: return "instance";
    default: return null;
  }
}

/** Returns a topic as the service takes it; the base64 itself for lists, maps and others that have no such form. */
export function topicText(base64) {
  try {
    return decoded(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))) ?? base64;
  } catch {
    return base64;
  }
}
