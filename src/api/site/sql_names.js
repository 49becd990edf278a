// Names of tables in SQL.

import { quoted } from "./sql_words.js";

/** Projects whose tables have no schema of their own. */
const WITHOUT_SCHEMA = /^(retroshade|orrery|main|information_schema|system|temp|memory|tables|pg_.*)$/i;

const textOf = (text) => `'${text.replaceAll("'", "''")}'`;

/**
 * Returns the names of a table, which the service calls `program_ID_TARGET`: its target, how SQL names it, and a query
 * for its newest rows, of one contract or of all.
 */
export function tableOf(name, project) {
  const target = name.replace(/^program_[0-9]+_/, "");
  const shown = project === "" ? quoted(name)
    : WITHOUT_SCHEMA.test(project) ? quoted(`${project}_${target}`) : `${quoted(project)}.${quoted(target)}`;
  const query = (contract) =>
    `SELECT * FROM ${shown}${contract ? ` WHERE contract_id = ${textOf(contract)}` : ""} ORDER BY _ledger DESC LIMIT 100`;
  return { target, shown, query };
}
