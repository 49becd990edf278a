// Completion of SQL: what the word before the caret may become.

import { RESERVED, nameOf, quoted } from "./names.js";

const WORDS = `select from where group by order limit with as join left asof on using having distinct union all except
  intersect case when then else end and or not in is null between like exists asc desc offset over partition qualify
  filter exclude values interval describe summarize explain pivot unpivot window
  count( sum( avg( min( max( median( arg_min( arg_max( first( list( string_agg( quantile_cont( histogram( count_if(
  abs( round( greatest( least( coalesce( nullif( try_cast( date_trunc( date_diff( strftime( to_timestamp( time_bucket(
  lower( substring( starts_with( contains( regexp_matches( regexp_extract( regexp_replace( json_extract_string(
  list_contains( list_transform( list_filter( unnest( row_number( rank( lag( lead( generate_series( typeof(`
  .split(/\s+/).map((word) => ({ insert: word, label: word, detail: "" }));

const OWN = new Set(WORDS.map(({ label }) => label.replace("(", "")));

/** Whether a name is a word of SQL. */
export const isWord = (name) => RESERVED.has(name.toLowerCase()) || OWN.has(name.toLowerCase());

/** Number of candidates that are offered. */
const MOST = 60;

/** Letters before the caret among which its word is looked for. */
const LONGEST = 200;

/** Texts and comments, of which the last one may have no end: nothing is completed in them. */
const NOT_CODE = /'[^']*(?:'|$)|--[^\n]*|\/\*[^]*?(?:\*\/|$)/g;
/** The word before the caret, and the name before its dot. */
const BEFORE = /(?:([\p{L}_][\p{L}\p{N}_]*)"?\.)?"?([\p{L}_][\p{L}\p{N}_]*)?$/u;

const tableEntry = (table) => ({ insert: nameOf(table), label: `${table.schema}.${table.table}`, detail: "table" });
const columnEntries = ({ table, columns }) =>
  columns.map(({ name, type }) => ({ insert: quoted(name), label: name, detail: `${type} · ${table}` }));

/** Returns what may stand behind a name and a dot: tables of a schema, columns of a table, or of all for an alias. */
function behind(owner, tables, named) {
  const inSchema = tables.filter(({ schema }) => schema.toLowerCase() === owner);
  const entry = ({ table }) => ({ insert: quoted(table), label: table, detail: "table" });
  if (inSchema.length > 0) return inSchema.map(entry);
  const meant = named.filter(({ table }) => table.toLowerCase() === owner);
  return (meant.length > 0 ? meant : named).flatMap(columnEntries);
}

/**
 * Returns what the word before the caret may become: `start`, and a `list` of `insert`, `label` and `detail`. The
 * columns of the tables that the text names come first. Without a word, something is offered only if `isAsked`.
 */
export function complete(text, caret, tables, isAsked = false) {
  const before = text.slice(0, caret);
  const isText = [...before.matchAll(NOT_CODE)].some((found) => found.index + found[0].length === caret);
  const [, owner, word = ""] = BEFORE.exec(before.slice(-LONGEST));
  const start = caret - word.length - (before.at(-word.length - 1) === '"' ? 1 : 0);
  if (isText || (word === "" && owner === undefined && !isAsked)) return { start: caret, list: [] };
  const words = new Set(text.toLowerCase().match(/[\p{L}\p{N}_]+/gu));
  const named = tables.filter(({ schema, table }) =>
    [table, `${schema}_${table}`].some((name) => words.has(name.toLowerCase())));
  const candidates = owner !== undefined ? behind(owner.toLowerCase(), tables, named)
    : [...named.flatMap(columnEntries), ...tables.map(tableEntry), ...WORDS];
  const begun = word.toLowerCase();
  // A part of a name fits, too, but comes later: columns begin with underscores, tables with a schema.
  const placeIn = ({ label }) => `.${label.toLowerCase()}`.search(`[._]${begun}`);
  const rank = (one) => ["none", "first", "later"][Math.sign(placeIn(one)) + 1];
  const { first = [], later = [] } = Object.groupBy(candidates, rank);
  const list = [...new Map([...first, ...later].map((one) => [one.insert, one])).values()].slice(0, MOST);
  // A word that is complete is not offered: Enter after it begins a new line.
  const isComplete = !isAsked && list.some(({ insert }) => insert.replace(/\($/, "").toLowerCase() === begun);
  return { start, list: isComplete ? [] : list };
}
