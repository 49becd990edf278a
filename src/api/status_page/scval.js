// Formats contract values (ScVal, base64 XDR) as readable text. Follows Stellar-contract.x of Stellar's XDR
// definitions; addresses are strkeys (SEP-23).

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.depth = 0;
  }

  take(length) {
    if (length > this.bytes.length - this.at) throw new Error("it ends early");
    this.at += length;
    return this.at - length;
  }

  u32() { return this.view.getUint32(this.take(4)); }
  i32() { return this.view.getInt32(this.take(4)); }
  u64() { return this.view.getBigUint64(this.take(8)); }
  i64() { return this.view.getBigInt64(this.take(8)); }

  /** Reads an integer of this many 64-bit parts, most significant first. */
  wide(parts, signed) {
    let value = signed ? this.i64() : this.u64();
    for (let part = 1; part < parts; part += 1) value = (value << 64n) | this.u64();
    return value;
  }

  opaque(length) {
    const from = this.take(length);
    this.take((4 - length % 4) % 4);
    return this.bytes.subarray(from, from + length);
  }

  /** Reads variable-length opaque data: a 32-bit length and that many bytes. */
  text() { return this.opaque(this.u32()); }
}

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

function readable(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** Encodes a strkey: version byte, payload, CRC16/XMODEM with the low byte first, in base32 without padding. */
export function strkey(version, ...payload) {
  const body = [version, ...payload.flatMap((part) => Array.from(part))];
  let crc = 0;
  for (const byte of body) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff;
  }
  body.push(crc & 0xff, crc >> 8);
  let [text, held, bits] = ["", 0, 0];
  for (const byte of body) {
    held = (held << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += BASE32[(held >> bits) & 31];
    }
    held &= (1 << bits) - 1;
  }
  return bits > 0 ? text + BASE32[(held << (5 - bits)) & 31] : text;
}

const [ACCOUNT, CONTRACT, MUXED, CLAIMABLE, POOL] = [6 << 3, 2 << 3, 12 << 3, 1 << 3, 11 << 3];

function address(reader) {
  const kind = reader.u32();
  switch (kind) {
    case 0:
      if (reader.u32() !== 0) throw new Error("a key of an unknown kind");
      return strkey(ACCOUNT, reader.opaque(32));
    case 1: return strkey(CONTRACT, reader.opaque(32));
    case 2: {
      // In XDR, the id precedes the key; in a strkey, it follows.
      const id = reader.opaque(8);
      return strkey(MUXED, reader.opaque(32), id);
    }
    case 3: return strkey(CLAIMABLE, [reader.u32()], reader.opaque(32));
    case 4: return strkey(POOL, reader.opaque(32));
    default: throw new Error(`an address of kind ${kind}`);
  }
}

const ERRORS = ["contract", "wasm_vm", "context", "storage", "object", "crypto", "events", "budget", "value", "auth"];
const CODES = ["arith_domain", "index_bounds", "invalid_input", "missing_value", "existing_value", "exceeded_limit",
  "invalid_action", "internal_error", "unexpected_type", "unexpected_size"];

function failure(reader) {
  const [kind, code] = [reader.u32(), reader.u32()];
  return `error(${ERRORS[kind] ?? kind}, ${kind === 0 ? code : CODES[code] ?? code})`;
}

function list(reader, read) {
  const count = reader.u32();
  // Each element takes at least four bytes.
  if (count > reader.bytes.length / 4) throw new Error("a list that is longer than its bytes");
  return Array.from({ length: count }, () => read(reader));
}

const entry = (reader) => {
  const key = value(reader);
  return `${key}: ${value(reader)}`;
};

const map = (reader) => `{${list(reader, entry).join(", ")}}`;

function instance(reader) {
  const code = reader.u32() === 0 ? `wasm ${hex(reader.opaque(32))}` : "stellar asset";
  return `instance(${code}${reader.u32() ? `, ${map(reader)}` : ""})`;
}

function value(reader) {
  reader.depth += 1;
  if (reader.depth > 200) throw new Error("it is too deep");
  const kind = reader.u32();
  const text = ofKind(reader, kind);
  reader.depth -= 1;
  return text;
}

function ofKind(reader, kind) {
  switch (kind) {
    case 0: return reader.u32() ? "true" : "false";
    case 1: return "void";
    case 2: return failure(reader);
    case 3: return String(reader.u32());
    case 4: return String(reader.i32());
    case 5: return String(reader.u64());
    case 6: return String(reader.i64());
    case 7: return time(reader.u64());
    case 8: return `${reader.u64()} s`;
    case 9: return String(reader.wide(2, false));
    case 10: return String(reader.wide(2, true));
    case 11: return String(reader.wide(4, false));
    case 12: return String(reader.wide(4, true));
    case 13: return `0x${hex(reader.text())}`;
    case 14: {
      const bytes = reader.text();
      const text = readable(bytes);
      return text === null ? `0x${hex(bytes)}` : JSON.stringify(text);
    }
    case 15: return readable(reader.text()) ?? "(no text)";
    case 16: return reader.u32() ? `[${list(reader, value).join(", ")}]` : "[]";
    case 17: return reader.u32() ? map(reader) : "{}";
    case 18: return address(reader);
    case 19: return instance(reader);
    case 20: return "ledger_key_contract_instance";
    case 21: return `nonce(${reader.i64()})`;
    default: throw new Error(`a value of kind ${kind}`);
  }
}

/** Formats UNIX seconds, followed by the date and time if `Date` can represent them. */
function time(seconds) {
  const date = new Date(Number(seconds) * 1000);
  return Number.isNaN(date.getTime()) ? String(seconds) : `${seconds} (${date.toISOString().slice(0, 19)}Z)`;
}

/** Formats a base64 value as text. Returns the base64 itself if it cannot be decoded. */
export function decoded(base64) {
  try {
    const reader = new Reader(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
    const text = value(reader);
    if (reader.at !== reader.bytes.length) throw new Error("it goes on");
    return text;
  } catch {
    return base64;
  }
}

/** Returns the base64 XDR of the symbol with this name, or null if the name is not a valid symbol. */
export function symbol(name) {
  if (!/^[A-Za-z0-9_]{1,32}$/.test(name)) return null;
  const bytes = new Uint8Array(8 + Math.ceil(name.length / 4) * 4);
  new DataView(bytes.buffer).setUint32(0, 15);
  new DataView(bytes.buffer).setUint32(4, name.length);
  bytes.set(new TextEncoder().encode(name), 8);
  return btoa(String.fromCharCode(...bytes));
}

/** Returns the base64 XDR of the address of an account (G…) or a contract (C…), or null if the text is neither. */
export function addressValue(text) {
  if (!/^[GC][A-Z2-7]{55}$/.test(text)) return null;
  const bits = Array.from(text, (letter) => BASE32.indexOf(letter).toString(2).padStart(5, "0")).join("");
  const [version, ...rest] = bits.match(/.{8}/g).map((byte) => parseInt(byte, 2));
  const payload = rest.slice(0, 32);
  if (strkey(version, payload) !== text) return null;
  // SCV_ADDRESS, then an account with an ed25519 key, or a contract.
  const kinds = version === ACCOUNT ? [18, 0, 0] : [18, 1];
  return btoa(String.fromCharCode(...kinds.flatMap((kind) => [0, 0, 0, kind]), ...payload));
}
