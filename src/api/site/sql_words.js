// Completion of SQL: which tables and columns a text names, and what a word that has been begun may become.

/** Words that DuckDB does not take as a plain name: as the name of a table or column they need quotes. */
const RESERVED = new Set(("all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create default "
  + "deferrable desc describe distinct do else end except false fetch for foreign from group having in initially intersect into lambda lateral "
  + "leading limit not null offset on only or order pivot pivot_longer pivot_wider placing primary qualify references returning select show "
  + "some summarize symmetric table then to trailing true union unique unpivot using variadic when where window with").split(" "));
const KEYWORDS = ("select|from|where|group by|order by|limit|with|as|join|left join|full join|cross join|asof join|on|using|having|distinct|"
  + "union|union all|except|intersect|case|when|then|else|end|and|or|not|in|is null|is not null|between|like|ilike|exists|asc|desc|nulls last|"
  + "nulls first|offset|over (|partition by|qualify|filter (where|exclude|replace|values|unnest|cast|interval|describe|summarize|explain|"
  + "explain analyze|pivot|unpivot|window|sample|true|false|null|date|timestamp").split("|");
const BEGINNINGS = new Set(KEYWORDS.map((word) => word.split(" ")[0]));
const FUNCTIONS = ("count sum avg min max median mode arg_min arg_max first last any_value list string_agg quantile_cont stddev approx_count_distinct "
  + "count_if bool_and bool_or histogram abs round floor ceil sqrt ln log10 power greatest least coalesce nullif if try_cast date_trunc date_part date_diff "
  + "extract epoch epoch_ms strftime strptime to_timestamp make_timestamp time_bucket now age lower upper length substring trim replace "
  + "split_part concat concat_ws starts_with ends_with contains regexp_matches regexp_extract regexp_replace format lpad hex unhex from_hex "
  + "json_extract json_extract_string json_keys json_array_length list_contains list_extract list_transform list_filter list_sort len map_keys "
  + "map_values element_at struct_extract row_number rank dense_rank lag lead first_value last_value ntile generate_series range typeof hash md5").split(" ");
/** Words after which a table is named. */
const BEFORE_TABLES = new Set(["from", "join", "describe", "summarize"]);
/** Number of candidates that are offered. */
const MOST = 60;

const PIECES = /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'[^']*(?:''[^']*)*(?:'|$)|"[^"]*(?:""[^"]*)*(?:"|$)|[\p{L}_][\p{L}\p{N}_$]*|\d[\w.]*|\s+|[\s\S]/gu;

/** Writes a name as SQL: with quotes where it needs them. */
export const quoted = (name) => /^[a-z_][a-z0-9_]*$/i.test(name) && !RESERVED.has(name.toLowerCase()) ? name : `"${name.replaceAll('"', '""')}"`;

/** Writes the name of a table with its schema. */
export const nameOf = ({ schema, table }) => `${quoted(schema)}.${quoted(table)}`;

const isName = (piece) => piece !== undefined && /^["\p{L}_]/u.test(piece.text);
const bare = (text) => (text.startsWith('"') ? text.slice(1).replace(/"$/, "").replaceAll('""', '"') : text).toLowerCase();

/** Splits a statement into its pieces; blanks are left out. */
export function pieces(text) {
  return Array.from(text.matchAll(PIECES), (found) => ({ text: found[0], start: found.index, end: found.index + found[0].length }))
    .filter((piece) => !/^\s/.test(piece.text));
}

/** Returns the first word of a statement in lower case; comments before it do not count. */
export const firstWord = (text) => pieces(text).find((piece) => !/^(--|\/\*)/.test(piece.text))?.text.toLowerCase();

/** Returns the tables that a statement names, each with its alias if it has one. */
function tablesIn(text, tables) {
  const all = pieces(text).filter((piece) => !/^(--|\/\*|')/.test(piece.text));
  const known = new Map(tables.flatMap((table) => [[`${table.schema}.${table.table}`, table], [`${table.schema}_${table.table}`, table]])
    .map(([name, table]) => [name.toLowerCase(), table]));
  const found = [];
  for (let index = 0; index < all.length; index += 1) {
    if (!isName(all[index]) || all[index - 1]?.text === ".") continue;
    const isPair = all[index + 1]?.text === "." && isName(all[index + 2]);
    let names = isPair ? [bare(all[index].text), bare(all[index + 2].text)] : [bare(all[index].text)];
    let after = index + (isPair ? 3 : 1);
    const table = known.get(names.join(".")) ?? (names[0] === "retroshade" ? known.get(names[1]) : undefined);
    if (table === undefined) continue;
    if (all[after]?.text.toLowerCase() === "as") after += 1;
    const next = all[after];
    const hasAlias = isName(next) && !RESERVED.has(next.text.toLowerCase()) && !BEGINNINGS.has(next.text.toLowerCase());
    found.push({ table, alias: hasAlias ? bare(next.text) : null });
  }
  return found;
}

/**
 * Returns the word before the caret, the name before its dot, and the piece before both. Null where nothing is completed:
 * in a text, a comment, a number or behind a name with quotes.
 */
function wordBefore(before) {
  const all = pieces(before);
  const last = all.at(-1);
  const touches = last?.end === before.length;
  if (touches && (/^(--|\d)/.test(last.text) || last.text.startsWith("/*") || /^'/.test(last.text) || /^".*"$/s.test(last.text))) return null;
  const word = touches && isName(last) ? all.pop().text : "";
  const isAfterDot = all.at(-1)?.text === "." && all.at(-1).end === before.length - word.length && isName(all.at(-2));
  const owner = isAfterDot ? bare(all.splice(-2)[0].text) : null;
  return { word, owner, last: all.at(-1)?.text.toLowerCase() };
}

/** Orders candidates: those that begin with the word, then those that have it after underscores, or after the schema. */
function fitting(list, word) {
  const fits = ({ match }) => match.startsWith(word) ? 0 : match.replace(/^_+/, "").startsWith(word) || match.includes(`.${word}`) ? 1 : 2;
  return [0, 1].flatMap((rank) => list.filter((one) => fits(one) === rank));
}

const column = (table) => ({ name, type }) => ({ insert: quoted(name), label: name, match: name.toLowerCase(), detail: `${type} · ${table.table}` });
const columnsOf = (tables) => tables.flatMap((table) => table.columns.map(column(table)));
const tableEntry = (table) => {
  const label = `${table.schema}.${table.table}`;
  return { insert: nameOf(table), label, match: label.toLowerCase(), detail: "table" };
};
const plain = (detail, end) => (word) => ({ insert: word + end, label: word, match: word, detail });
const KEYWORD_ENTRIES = KEYWORDS.map(plain("keyword", ""));
const FUNCTION_ENTRIES = FUNCTIONS.map(plain("function", "("));

/** Returns the candidates after the name of a table, an alias or a schema and a dot. */
function afterDot(owner, named, tables) {
  const isMeant = ({ table: { schema, table }, alias }) => alias === owner || [table, `${schema}_${table}`].some((name) => name.toLowerCase() === owner);
  const columns = named.filter(isMeant).slice(0, 1).flatMap(({ table }) => table.columns.map(column(table)));
  const inSchema = tables.filter(({ schema }) => schema.toLowerCase() === owner)
    .map((table) => ({ insert: quoted(table.table), label: table.table, match: table.table.toLowerCase(), detail: "table" }));
  return [...columns, ...inSchema];
}

/**
 * Returns what the word before the caret may become: `{ start, list }`, where `list` has `insert`, `label` and `detail`.
 * The columns of the tables that the text names come first. Without a word, something is offered only if `isAsked`.
 */
export function complete(text, caret, tables, isAsked = false) {
  const found = wordBefore(text.slice(0, caret));
  const none = { start: caret, list: [] };
  if (found === null || (found.word === "" && found.owner === null && !isAsked)) return none;
  const { word, owner, last } = found;
  const named = tablesIn(text, tables);
  const start = caret - word.length;
  const begun = word.replace(/^"/, "").toLowerCase();
  let list;
  if (owner !== null) list = fitting(afterDot(owner, named, tables), begun);
  else {
    const ofTables = tables.map(tableEntry);
    const own = columnsOf([...new Set(named.map(({ table }) => table))]);
    const words = word.startsWith('"') ? [] : [KEYWORD_ENTRIES, FUNCTION_ENTRIES];
    const others = named.length > 0 ? [] : columnsOf(tables);
    const groups = BEFORE_TABLES.has(last) ? [ofTables, ...words] : [own, ...words, ofTables, others];
    list = groups.flatMap((group) => fitting(group, begun));
  }
  const seen = new Set();
  list = list.filter(({ insert }) => !seen.has(insert) && seen.add(insert)).slice(0, MOST);
  // A word that is complete is not offered: Enter after it begins a new line.
  if (!isAsked && list.some(({ insert }) => insert.replace(/\($/, "").toLowerCase() === word.toLowerCase())) return none;
  const raised = (one) => ["keyword", "function"].includes(one.detail)
    ? { ...one, insert: one.insert.toUpperCase(), label: one.label.toUpperCase() } : one;
  if (/^[A-Z]{2,}$/.test(word)) list = list.map(raised);
  return { start, list };
}

/** Returns a name for files with the result of a statement: that of its first table. */
export function fileName(text, tables) {
  const [first] = tablesIn(text, tables);
  return first === undefined ? "orrery" : `${first.table.schema}_${first.table.table}`.replaceAll(/[^\w-]/g, "_");
}
