// Names of tables and columns in SQL.

/** Words that DuckDB does not take as a plain name: as the name of a table or column they need quotes. */
export const RESERVED = new Set(`all analyse analyze and anti any array as asc asof asymmetric at authorization
  binary both by case cast check collate collation column concurrently constraint create cross default deferrable
  desc describe distinct do else end except false fetch for foreign freeze from full glob group having ilike in
  initially inner intersect into is isnull join lambda lateral leading left like limit natural not notnull null
  offset on only or order outer overlaps pivot pivot_longer pivot_wider placing positional primary qualify
  references returning right select semi show similar some summarize symmetric table tablesample then to trailing
  true union unique unpack unpivot using variadic verbose when where window with`.split(/\s+/));

/** Writes a name as SQL: with quotes where it needs them. */
export const quoted = (name) => /^[a-z_][a-z0-9_]*$/i.test(name) && !RESERVED.has(name.toLowerCase()) ? name
  : `"${name.replaceAll('"', '""')}"`;

/** Writes the name of a table with its schema. */
export const nameOf = ({ schema, table }) => `${quoted(schema)}.${quoted(table)}`;

/** Schema of the tables of the chain itself, which every reader has. */
export const CHAIN = "chain";

/** Projects whose tables have no schema of their own. */
const WITHOUT_SCHEMA = /^(retroshade|chain|orrery|main|information_schema|system|temp|memory|tables|pg_.*)$/i;

const textOf = (text) => `'${text.replaceAll("'", "''")}'`;

/**
 * Returns the names of a table, which the service calls `program_ID_TARGET`: its target, how SQL names it, and a query
 * for its newest rows, of one contract or of all.
 */
export function tableOf(name, project) {
  const target = name.replace(/^program_[0-9]+_/, "");
  const shown = project === "" ? quoted(name)
    : WITHOUT_SCHEMA.test(project) ? quoted(`${project}_${target}`) : nameOf({ schema: project, table: target });
  const query = (contract) => {
    const of = contract ? `\nwhere contract_id = ${textOf(contract)}` : "";
    // The view of the members of a project has no ledger of a row, and that of all events no such key.
    if (target === "members") return `select *\nfrom ${shown}${of}\nlimit 100`;
    const columns = target === "events" ? "*" : "* exclude (_service_event_id)";
    return `select ${columns}\nfrom ${shown}${of}\norder by _ledger desc\nlimit 100`;
  };
  return { target, shown, query };
}
