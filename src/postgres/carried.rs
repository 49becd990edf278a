//! What the table that takes the place of another one gets from it: indexes and constraints are made on it before,
//! the rest when it has the name. The server writes the definitions itself.

use super::connection::{Connection, Purpose, text, truth};
use super::error::{Result, SinkError};
use super::names::{self, qualified, quoted};

/// Indexes without a constraint: name, and the definition behind the table's name.
const INDEXES: &str = "\
SELECT x.relname::text AS name, i.indisunique AS is_unique, pg_get_indexdef(i.indexrelid) AS definition, 'INDEX ' || \
quote_ident(x.relname) || ' ON ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname) || ' USING ' AS begin \
FROM pg_index AS i JOIN pg_class AS x ON x.oid = i.indexrelid JOIN pg_class AS c ON c.oid = i.indrelid JOIN \
pg_namespace AS n ON n.oid = c.relnamespace WHERE i.indrelid = to_regclass($1) AND i.indisvalid AND NOT EXISTS \
(SELECT 1 FROM pg_constraint AS k WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid) ORDER BY 1";

/// Constraints of a table but for its key.
const CONSTRAINTS: &str = "\
SELECT conname::text AS name, contype::text AS kind, pg_get_constraintdef(oid) AS definition FROM pg_constraint WHERE \
conrelid = to_regclass($1) AND contype IN ('c', 'u', 'x') ORDER BY 1";

/// Statements that give a table, which has the name of the one before (`$1`) by now, what that has: `$2` is the name
/// for SQL, `$3` the schema and `$4` the name as texts.
const STATEMENTS: &str = "\
WITH o AS (SELECT * FROM pg_class WHERE oid = to_regclass($1)) \
SELECT 1 AS place, format('GRANT %s ON %s TO %s%s', a.privilege_type, $2, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE \
quote_ident(pg_get_userbyid(a.grantee)) END, CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END) AS sql \
FROM o, aclexplode(o.relacl) AS a WHERE a.grantee <> o.relowner \
UNION ALL SELECT 1, format('GRANT %s (%I) ON %s TO %s%s', a.privilege_type, t.attname, $2, CASE WHEN a.grantee = 0 \
THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' \
ELSE '' END) FROM o JOIN pg_attribute AS t ON t.attrelid = o.oid, aclexplode(t.attacl) AS a WHERE NOT t.attisdropped \
AND a.grantee <> o.relowner \
UNION ALL SELECT 2, format('ALTER TABLE %s SET (%s)', $2, string_agg(format('%s = %L', split_part(p, '=', 1), substr(p, \
strpos(p, '=') + 1)), ', ' ORDER BY n)) FROM o, unnest(o.reloptions) WITH ORDINALITY AS u (p, n) HAVING count(*) > 0 \
UNION ALL SELECT 2, format('ALTER TABLE %s SET (%s)', $2, string_agg(format('toast.%s = %L', split_part(p, '=', 1), \
substr(p, strpos(p, '=') + 1)), ', ' ORDER BY n)) FROM o JOIN pg_class AS toast ON toast.oid = o.reltoastrelid, \
unnest(toast.reloptions) WITH ORDINALITY AS u (p, n) HAVING count(*) > 0 \
UNION ALL SELECT 2, format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', $2, t.attname, t.attstattarget) FROM o \
JOIN pg_attribute AS t ON t.attrelid = o.oid WHERE t.attnum > 0 AND NOT t.attisdropped AND t.attstattarget >= 0 \
UNION ALL SELECT 3, CASE o.relreplident WHEN 'f' THEN format('ALTER TABLE %s REPLICA IDENTITY FULL', $2) ELSE \
format('ALTER TABLE %s REPLICA IDENTITY NOTHING', $2) END FROM o WHERE o.relreplident IN ('f', 'n') \
UNION ALL SELECT 4, format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', $2) FROM o WHERE o.relrowsecurity \
UNION ALL SELECT 5, format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', p.polname, $2, CASE WHEN p.polpermissive \
THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END, CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN \
'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END, (SELECT string_agg(CASE WHEN r = 0 THEN 'PUBLIC' ELSE \
quote_ident(pg_get_userbyid(r)) END, ', ') FROM unnest(p.polroles) AS r), coalesce(' USING (' || \
pg_get_expr(p.polqual, p.polrelid) || ')', ''), coalesce(' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || \
')', '')) FROM o JOIN pg_policy AS p ON p.polrelid = o.oid \
UNION ALL SELECT 6, pg_get_triggerdef(g.oid) FROM o JOIN pg_trigger AS g ON g.tgrelid = o.oid WHERE NOT g.tgisinternal \
UNION ALL SELECT 7, format('ALTER TABLE %s %s TRIGGER %I', $2, CASE g.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN \
'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, g.tgname) FROM o JOIN pg_trigger AS g ON g.tgrelid = o.oid WHERE NOT \
g.tgisinternal AND g.tgenabled <> 'O' \
UNION ALL SELECT 9, format('COMMENT ON TABLE %s IS %L', $2, obj_description(o.oid, 'pg_class')) FROM o JOIN \
orrery.objects AS b ON b.schema_name = $3 AND b.object_name = $4 WHERE b.comment <> coalesce(obj_description(o.oid, \
'pg_class'), '') \
UNION ALL SELECT 9, format('COMMENT ON COLUMN %s.%I IS %L', $2, t.attname, col_description(o.oid, t.attnum)) FROM o \
JOIN pg_attribute AS t ON t.attrelid = o.oid JOIN orrery.columns AS b ON b.schema_name = $3 AND b.table_name = $4 AND \
b.column_name = t.attname WHERE b.comment <> coalesce(col_description(o.oid, t.attnum), '') \
ORDER BY 1, 2";

/// Publications that name a table. From version 15 on they can name columns and rows.
const PUBLICATIONS_14: &str = "\
SELECT format('ALTER PUBLICATION %I ADD TABLE %s', p.pubname, $2) AS sql FROM pg_publication_rel AS r JOIN \
pg_publication AS p ON p.oid = r.prpubid WHERE r.prrelid = to_regclass($1) AND pg_has_role(p.pubowner, 'USAGE')";
const PUBLICATIONS_15: &str = "\
SELECT format('ALTER PUBLICATION %I ADD TABLE %s%s%s', p.pubname, $2, ' (' || (SELECT string_agg(quote_ident(attname), \
', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = r.prrelid AND attnum = ANY (r.prattrs)) || ')', ' WHERE (' || \
pg_get_expr(r.prqual, r.prrelid) || ')') AS sql FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = \
r.prpubid WHERE r.prrelid = to_regclass($1) AND pg_has_role(p.pubowner, 'USAGE')";

/// What a table has from others, as statements for the table that takes its place.
#[derive(Debug, Clone, Default)]
pub(super) struct Carried {
    /// For the table with the name, while the one before is still there.
    pub before: Vec<String>,
    /// Once the one before is dropped: what its parts were called.
    pub after: Vec<String>,
}

/// An index or a constraint that is made before, under another name.
struct Made {
    name: String,
    waiting: String,
    /// The statement that makes it.
    making: String,
    /// The statement that gives it its name.
    naming: String,
}

/// Returns the indexes and constraints of a table as statements for another one, which is called `now` later.
async fn parts(
    connection: &Connection,
    (schema, old, new): (&str, &str, &str),
    now: &str,
) -> Result<Vec<Made>> {
    let (from, to, final_name) =
        (qualified(schema, old), qualified(schema, new), qualified(schema, now));
    let mut made = Vec::new();
    for row in connection.rows("looking at indexes", INDEXES, &[&from]).await? {
        let (name, definition, begin) =
            (text(&row, "name")?, text(&row, "definition")?, text(&row, "begin")?);
        let (_, rest) = definition.split_once(begin).ok_or_else(|| {
            SinkError::Refused(format!(
                "the index {schema}.{name} has a definition that is not understood: {definition}"
            ))
        })?;
        let unique = if truth(&row, "is_unique")? { "UNIQUE " } else { "" };
        let waiting = names::waiting(&[new, name, unique, rest]);
        let making = format!("CREATE {unique}INDEX {} ON {to} USING {rest}", quoted(&waiting));
        let naming =
            format!("ALTER INDEX {} RENAME TO {}", qualified(schema, &waiting), quoted(name));
        made.push(Made { name: name.to_owned(), waiting, making, naming });
    }
    for row in connection.rows("looking at constraints", CONSTRAINTS, &[&from]).await? {
        let (name, definition) = (text(&row, "name")?, text(&row, "definition")?);
        let waiting = names::waiting(&[new, name, definition]);
        let making = format!("ALTER TABLE {to} ADD CONSTRAINT {} {definition}", quoted(&waiting));
        let naming = format!(
            "ALTER TABLE {final_name} RENAME CONSTRAINT {} TO {}",
            quoted(&waiting),
            quoted(name)
        );
        made.push(Made { name: name.to_owned(), waiting, making, naming });
    }
    Ok(made)
}

/// Returns which of these names indexes or constraints of a table have.
async fn there(connection: &Connection, full: &str) -> Result<Vec<String>> {
    let sql = "SELECT x.relname::text AS name FROM pg_index AS i JOIN pg_class AS x ON x.oid = i.indexrelid WHERE \
               i.indrelid = to_regclass($1) UNION SELECT conname::text FROM pg_constraint WHERE conrelid = \
               to_regclass($1)";
    let rows = connection.rows("looking at indexes", sql, &[full]).await?;
    rows.iter().map(|row| text(row, "name").map(str::to_owned)).collect()
}

/// Makes the indexes and constraints of the table `old` on the table `new`, each in a transaction, without touching
/// what everybody sees. Those that are there already stay.
pub(super) async fn make_parts(connection: &Connection, names: (&str, &str, &str)) -> Result<()> {
    connection.begin(Purpose::Tables).await?;
    let done = async {
        let made = parts(connection, names, names.2).await?;
        Ok((made, there(connection, &qualified(names.0, names.2)).await?))
    };
    let (made, there) = connection.end(done.await).await?;
    for part in made.iter().filter(|part| !there.contains(&part.waiting)) {
        connection.begin(Purpose::Tables).await?;
        let done = connection.run_long(&format!("making {} again", part.name), &part.making).await;
        connection.end(done).await?;
    }
    Ok(())
}

/// Returns what the table `new`, which will be called `old`, gets from the one that is called so now. In the
/// transaction that puts it into its place.
///
/// # Errors
/// [`SinkError::Busy`] when an index was made meanwhile that the new table lacks.
pub(super) async fn carried(
    connection: &Connection,
    (schema, old, new): (&str, &str, &str),
) -> Result<Carried> {
    let (from, to) = (qualified(schema, old), qualified(schema, new));
    let mut carried = Carried::default();
    let there = there(connection, &to).await?;
    let parts = parts(connection, (schema, old, new), old).await?;
    for part in &parts {
        if !there.contains(&part.waiting) {
            return Err(SinkError::Busy(format!("{} was made meanwhile", part.name)));
        }
        carried.after.push(part.naming.clone());
    }
    // What somebody dropped after it was made again.
    let of_key = format!("{new}_pkey");
    let is_left = |name: &&String| {
        name.starts_with(names::WAITS)
            && !name.starts_with(&of_key)
            && !parts.iter().any(|part| part.waiting == **name)
    };
    for name in there.iter().filter(is_left) {
        let name = quoted(name);
        let index = format!("{}.{name}", quoted(schema));
        carried.before.push(format!(
            "ALTER TABLE {from} DROP CONSTRAINT IF EXISTS {name}; DROP INDEX IF EXISTS {index}"
        ));
    }
    carried.before.extend(taken_over(connection, (schema, old), (&from, &to)).await?);
    let what = "looking at what a table has";
    let sql = "SELECT pg_get_statisticsobjdef(oid) AS sql FROM pg_statistic_ext WHERE stxrelid = to_regclass($1)";
    for row in connection.rows(what, sql, &[&from]).await? {
        carried.after.push(text(&row, "sql")?.to_owned());
    }
    let sql = "SELECT x.relname::text AS name FROM pg_class AS c JOIN pg_index AS i ON i.indrelid = c.oid AND \
               i.indisreplident JOIN pg_class AS x ON x.oid = i.indexrelid WHERE c.oid = to_regclass($1) AND \
               c.relreplident = 'i'";
    for row in connection.rows(what, sql, &[&from]).await? {
        let index = quoted(text(&row, "name")?);
        carried.after.push(format!("ALTER TABLE {from} REPLICA IDENTITY USING INDEX {index}"));
    }
    Ok(carried)
}

/// Returns the statements that give a table what another one has, while both are there: privileges, options, policies,
/// triggers, comments, publications. `from` and `to` are the names of both for SQL.
async fn taken_over(
    connection: &Connection,
    (schema, old): (&str, &str),
    (from, to): (&str, &str),
) -> Result<Vec<String>> {
    let mut statements = Vec::new();
    // Defaults of the schema may have granted what was taken back from the table before.
    let sql = "SELECT DISTINCT format('REVOKE ALL ON %s FROM %s', $2, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE \
               quote_ident(pg_get_userbyid(a.grantee)) END) AS sql FROM pg_class AS n, aclexplode(n.relacl) AS a WHERE \
               n.oid = to_regclass($1) AND a.grantee <> n.relowner";
    for row in connection.rows("looking at privileges", sql, &[to, from]).await? {
        statements.push(text(&row, "sql")?.to_owned());
    }
    let what = "looking at what a table has";
    for row in connection.rows(what, STATEMENTS, &[from, from, schema, old]).await? {
        statements.push(text(&row, "sql")?.to_owned());
    }
    let version = connection
        .rows(what, "SELECT current_setting('server_version_num') AS number", &[])
        .await?;
    let version: u32 =
        version.first().map_or(Ok(0), |row| super::connection::number(row, "number"))?;
    let publications = if version < 150_000 { PUBLICATIONS_14 } else { PUBLICATIONS_15 };
    for row in connection.rows(what, publications, &[from, from]).await? {
        statements.push(text(&row, "sql")?.to_owned());
    }
    Ok(statements)
}

/// Returns the statement that has a view show the table with the name again. It keeps its identity and grants, and
/// gets its own options again, which the statement would take away.
pub(super) async fn view(connection: &Connection, view: &str) -> Result<String> {
    let sql = "SELECT pg_get_viewdef(oid) AS definition, (SELECT string_agg(format('%s = %L', split_part(o, '=', 1), \
               substr(o, strpos(o, '=') + 1)), ', ') FROM unnest(reloptions) AS o) AS options FROM pg_class WHERE oid = \
               to_regclass($1)";
    let rows = connection.rows("looking at a view", sql, &[view]).await?;
    let row = rows
        .first()
        .ok_or_else(|| SinkError::Busy(format!("the view {view} was dropped meanwhile")))?;
    let options = match text(row, "options")? {
        "" => String::new(),
        options => format!(" WITH ({options})"),
    };
    Ok(format!("CREATE OR REPLACE VIEW {view}{options} AS {}", text(row, "definition")?))
}
