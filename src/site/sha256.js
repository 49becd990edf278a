// SHA-256 (FIPS 180-4) of short texts. Browsers have it only for pages over HTTPS and of the reader's own machine.

const primes = [];
for (let value = 2; primes.length < 64; value += 1) {
  if (primes.every((prime) => value % prime !== 0)) primes.push(value);
}
/** First 32 bits of the fractional part. */
const fraction = (value) => (value - Math.floor(value)) * 2 ** 32 | 0;
const ROUNDS = primes.map((prime) => fraction(Math.cbrt(prime)));
const START = primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));

const turned = (word, by) => word >>> by | word << 32 - by;

function block(state, view, at) {
  const words = Array.from({ length: 16 }, (_, index) => view.getInt32(at + 4 * index));
  for (let index = 16; index < 64; index += 1) {
    const [near, far] = [words[index - 2], words[index - 15]];
    words.push(words[index - 16] + words[index - 7] + (turned(far, 7) ^ turned(far, 18) ^ far >>> 3)
      + (turned(near, 17) ^ turned(near, 19) ^ near >>> 10) | 0);
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let index = 0; index < 64; index += 1) {
    const choice = e & f ^ ~e & g;
    const one = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + choice + ROUNDS[index] + words[index] | 0;
    const other = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + (a & b ^ a & c ^ b & c) | 0;
    [a, b, c, d, e, f, g, h] = [one + other | 0, a, b, c, d + one | 0, e, f, g];
  }
  return [a, b, c, d, e, f, g, h].map((word, index) => word + state[index] | 0);
}

/** Returns the 32 bytes of the hash of some bytes. */
export function sha256(bytes) {
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / 64) * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 4, bytes.length * 8);
  let state = START;
  for (let at = 0; at < padded.length; at += 64) state = block(state, view, at);
  return state.flatMap((word) => [24, 16, 8, 0].map((by) => word >>> by & 0xff));
}
