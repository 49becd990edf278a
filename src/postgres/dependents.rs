//! What others have made on a table of ours, as `pg_depend` knows it: what can be kept when another table takes its
//! place, and what cannot.

use std::collections::BTreeMap;

use super::connection::{Connection, text, truth};
use super::error::Result;
use super::names::qualified;

/// What others have made on a table.
#[derive(Debug, Clone, Default)]
pub(super) struct Dependents {
    /// Views that show the table and can be replaced, by their names as the server writes them, with their owners.
    /// Ours are among them.
    pub views: BTreeMap<String, String>,
    /// What cannot be kept, each with what to do about it.
    pub blocked: Vec<String>,
}

/// The objects that depend on a table or on the type of its rows, each once, with what says whether it is part of
/// the table. <https://www.postgresql.org/docs/current/catalog-pg-depend.html>
const DEPENDENTS: &str = "\
WITH t AS (SELECT c.oid, c.reltype, y.typarray FROM pg_class AS c JOIN pg_type AS y ON y.oid = c.reltype \
WHERE c.oid = to_regclass($1)), \
d AS (SELECT DISTINCT d.classid, d.objid FROM pg_depend AS d, t WHERE d.classid <> 0 AND \
((d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid) OR \
(d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.reltype, t.typarray)))) \
SELECT d.classid::regclass::text AS class, pg_describe_object(d.classid, d.objid, 0) AS what, \
c.relkind::text AS kind, con.contype::text AS constraint_kind, coalesce(con.conrelid = t.oid, tg.tgrelid = t.oid, \
pol.polrelid = t.oid, sx.stxrelid = t.oid, ad.adrelid = t.oid, rw.ev_class = t.oid, pr.prrelid = t.oid, \
d.objid IN (t.reltype, t.typarray)) AS is_own, v.relkind::text AS view_kind, v.oid::regclass::text AS view, \
pg_has_role(v.relowner, 'USAGE') AS owns_view, pg_get_userbyid(v.relowner)::text AS view_owner, \
pg_has_role(pub.pubowner, 'USAGE') AS owns_publication \
FROM d CROSS JOIN t \
LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid \
LEFT JOIN pg_constraint AS con ON d.classid = 'pg_constraint'::regclass AND con.oid = d.objid \
LEFT JOIN pg_trigger AS tg ON d.classid = 'pg_trigger'::regclass AND tg.oid = d.objid \
LEFT JOIN pg_policy AS pol ON d.classid = 'pg_policy'::regclass AND pol.oid = d.objid \
LEFT JOIN pg_statistic_ext AS sx ON d.classid = 'pg_statistic_ext'::regclass AND sx.oid = d.objid \
LEFT JOIN pg_attrdef AS ad ON d.classid = 'pg_attrdef'::regclass AND ad.oid = d.objid \
LEFT JOIN pg_publication_rel AS pr ON d.classid = 'pg_publication_rel'::regclass AND pr.oid = d.objid \
LEFT JOIN pg_publication AS pub ON pub.oid = pr.prpubid \
LEFT JOIN pg_rewrite AS rw ON d.classid = 'pg_rewrite'::regclass AND rw.oid = d.objid \
LEFT JOIN pg_class AS v ON v.oid = rw.ev_class \
ORDER BY 2";

/// Columns of a table that are not ours.
const COLUMNS: &str = "\
SELECT a.attname::text AS name FROM pg_attribute AS a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT \
a.attisdropped AND a.attname <> '_row' AND NOT EXISTS (SELECT 1 FROM orrery.columns AS o WHERE o.schema_name = $2 AND \
o.table_name = $3 AND o.column_name = a.attname) ORDER BY a.attnum";

/// Returns what others have made on a table of ours. In a transaction.
pub(super) async fn dependents(
    connection: &Connection,
    schema: &str,
    table: &str,
) -> Result<Dependents> {
    let full = qualified(schema, table);
    let mut found = Dependents::default();
    for row in connection.rows("looking at what depends on a table", DEPENDENTS, &[&full]).await? {
        let (what, own) = (text(&row, "what")?, truth(&row, "is_own")?);
        let blocked = match (text(&row, "class")?, own) {
            ("pg_class", _) if ["i", "t"].contains(&text(&row, "kind")?) => None,
            ("pg_constraint", true) if text(&row, "constraint_kind")? != "f" => None,
            ("pg_trigger" | "pg_policy" | "pg_statistic_ext" | "pg_attrdef" | "pg_type", true) => None,
            ("pg_publication_rel", true) if truth(&row, "owns_publication")? => None,
            ("pg_publication_rel", true) => Some(
                "make the role of the sink the owner of the publication, or take the table out of it".to_owned(),
            ),
            // Rules of a table.
            ("pg_rewrite", true) => Some("drop the rule".to_owned()),
            ("pg_rewrite", false) if text(&row, "view_kind")? == "v" => {
                let (view, owner) = (text(&row, "view")?, text(&row, "view_owner")?);
                let owns = truth(&row, "owns_view")?;
                if owns {
                    found.views.insert(view.to_owned(), owner.to_owned());
                }
                (!owns).then(|| {
                    format!("GRANT {} TO the role of the sink, or drop the view", super::names::quoted(owner))
                })
            }
            ("pg_rewrite", false) => Some("drop the materialized view, and create it again".to_owned()),
            ("pg_proc", _) => Some("drop the function, or give it a body in quotes".to_owned()),
            ("pg_constraint", _) => Some("drop the foreign key".to_owned()),
            _ => Some("drop it".to_owned()),
        };
        if let Some(mend) = blocked {
            let text = format!("{what}, which depends on {schema}.{table}: {mend}");
            if !found.blocked.contains(&text) {
                found.blocked.push(text);
            }
        }
    }
    let rows = connection.rows("looking at columns", COLUMNS, &[&full, schema, table]).await?;
    for row in &rows {
        found.blocked.push(format!(
            "column {} of {schema}.{table}, which is not Orrery's: its values cannot be kept; drop it",
            text(row, "name")?
        ));
    }
    Ok(found)
}
