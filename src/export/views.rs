//! SQL files with a view of every table over the files that have its rows now. In the destination, they
//! alone have the names of projects and tables: files of rows have none, so what is written anew, or
//! belongs to another version of a project, moves nothing. They are DuckDB's SQL, and name every file.
//!
//! Files of earlier versions have integers of 128 bits as texts; the views have them as newer files do.

use std::collections::BTreeMap;
use std::fmt::Write;

use orrery_iceberg::KnownColumn;
use orrery_tables::{CHAIN, folded, in_shown_order, may_be_schema};

use super::columns::quoted;
use super::layout::{EVENTS, TRANSACTIONS};
use super::manifest::{DataFile, ExportedProgram, ExportedTable, Manifest};

/// Name of the file with the views of a schema, in the directory of the schema's name.
pub const NAME: &str = "views.sql";
/// Directory of the schemas.
pub const SCHEMAS: &str = "tables";

const COMMENT: &str =
    "-- The files that have the rows of these tables, as of the last export. Written by Orrery.\n";

/// Returns the text of each file with views, by its path below the destination, which is `root` to those
/// who read it.
pub fn texts(manifest: &Manifest, root: &str) -> BTreeMap<String, String> {
    let root = root.trim_end_matches('/');
    let mut schemas = BTreeMap::from([(CHAIN.to_owned(), of_chain(manifest, root))]);
    for (schema, program) in shown(&manifest.programs) {
        let views = of_program(&schema, program, root);
        schemas.insert(schema, views);
    }
    let all: String = schemas.values().map(String::as_str).collect();
    let file = |schema: &str, views: &str| {
        (format!("{SCHEMAS}/{schema}/{NAME}"), format!("{COMMENT}{views}"))
    };
    let mut texts: BTreeMap<_, _> =
        schemas.iter().map(|(schema, views)| file(schema, views)).collect();
    texts.insert(NAME.to_owned(), format!("{COMMENT}{all}"));
    texts
}

/// Returns the programs that have views, by the name of their schema. Of several with one project name,
/// it is the one that has the name now; if all were deleted, the newest.
pub fn shown(programs: &[ExportedProgram]) -> BTreeMap<String, &ExportedProgram> {
    let mut shown = BTreeMap::<String, &ExportedProgram>::new();
    for program in programs {
        let project = folded(&program.project);
        let schema = match may_be_schema(&project) {
            true => project,
            false => format!("program_{}", program.id),
        };
        let rank = |program: &ExportedProgram| (!program.deleted, program.id);
        let before = shown.entry(schema).or_insert(program);
        if rank(program) > rank(before) {
            *before = program;
        }
    }
    shown
}

fn of_chain(manifest: &Manifest, root: &str) -> String {
    let mut views = begin(CHAIN);
    let (tables, identities) = (&manifest.tables, &manifest.chain);
    for (name, identity, files) in [
        (EVENTS, &identities.events.identity, &tables.events),
        (TRANSACTIONS, &identities.transactions.identity, &tables.transactions),
    ] {
        let columns: Vec<_> = identity.current().collect();
        add_view(&mut views, CHAIN, name, select(&columns, files, root));
    }
    views
}

fn of_program(schema: &str, program: &ExportedProgram, root: &str) -> String {
    let mut views = begin(schema);
    let versions_of = |table: &ExportedTable| {
        program.versions.iter().find(|all| all.first() == Some(&table.name))
    };
    for table in &program.tables {
        let columns = columns_of(program, table);
        let select = select(&columns, &table.files, root);
        add_view(&mut views, schema, &name_of(program, table), select);
    }
    for table in &program.tables {
        let Some(all) = versions_of(table) else { continue };
        let tables: Vec<_> = all
            .iter()
            .filter_map(|name| program.tables.iter().find(|it| it.name == *name))
            .collect();
        add_view(&mut views, schema, &table.name, together(schema, program, &tables));
    }
    views
}

/// Returns the name of a table: that of the first of several versions is another one, because a view with the
/// rows of all has its name.
pub fn name_of(program: &ExportedProgram, table: &ExportedTable) -> String {
    match program.versions.iter().any(|all| all.first() == Some(&table.name)) {
        true => first_version(program, table),
        false => table.name.clone(),
    }
}

/// Returns the name of the first of several versions of a table.
fn first_version(program: &ExportedProgram, table: &ExportedTable) -> String {
    orrery_tables::first_version(&table.name, |name| {
        program.tables.iter().any(|it| it.name == name)
    })
}

/// Returns the query for the rows of several versions of a table, with the columns that all have.
fn together(schema: &str, program: &ExportedProgram, tables: &[&ExportedTable]) -> Option<String> {
    let (first, rest) = tables.split_first()?;
    let has = |table: &ExportedTable, name: &str| {
        table.columns.iter().any(|(other, _)| folded(other) == folded(name))
    };
    let common = columns_of(program, first).into_iter().map(|field| &field.name);
    let common = common.filter(|name| rest.iter().all(|table| has(table, name)));
    let common = common.map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    if common.is_empty() {
        return None;
    }
    let select = |(at, table): (usize, &&ExportedTable)| {
        let name = if at == 0 { first_version(program, table) } else { table.name.clone() };
        format!("select {common} from {}.{}", quoted(schema), quoted(&name))
    };
    Some(tables.iter().enumerate().map(select).collect::<Vec<_>>().join("\nunion all by name\n"))
}

/// Returns the columns of a table in the order in which SQL shows them, and then those with digits; none
/// if an earlier version has written the table and it was not exported since.
fn columns_of<'a>(program: &ExportedProgram, table: &'a ExportedTable) -> Vec<&'a KnownColumn> {
    let field = |(name, _): &(String, String)| table.identity.current().find(|it| it.name == *name);
    let columns = table.columns.iter().filter_map(field);
    let (digits, columns): (Vec<_>, Vec<_>) = columns.partition(|it| it.exact_of.is_some());
    let mut columns = in_shown_order(columns, |it| &it.name, program.of_events);
    columns.extend(digits);
    columns
}

fn begin(schema: &str) -> String {
    format!("\ncreate schema if not exists {};\n", quoted(schema))
}

fn add_view(views: &mut String, schema: &str, name: &str, select: Option<String>) {
    let Some(select) = select else { return };
    let (schema, name) = (quoted(schema), quoted(name));
    // Writing to memory cannot fail.
    let _ = write!(views, "\ncreate or replace view {schema}.{name} as\n{select};\n");
}

/// Returns the query for the rows in these files; `None` if neither columns nor files are known.
fn select(columns: &[&KnownColumn], files: &[DataFile], root: &str) -> Option<String> {
    let earlier: Vec<_> = files.iter().filter(|file| file.columns.is_none()).collect();
    let mut alike = BTreeMap::<u32, Vec<&DataFile>>::new();
    for file in files {
        if let Some(columns) = file.columns {
            alike.entry(columns).or_default().push(file);
        }
    }
    let mut parts = Vec::new();
    if !columns.is_empty() {
        // Gives the view its columns, in their order, whatever files there are.
        let null =
            |field: &&KnownColumn| format!("null::{} as {}", field.sql_type, quoted(&field.name));
        let nulls = columns.iter().map(null).collect::<Vec<_>>().join(", ");
        parts.push(format!("select {nulls} where false"));
    }
    if !earlier.is_empty() {
        let list = list(&earlier, root);
        let values = values_of_earlier(columns);
        parts.push(format!("select {values} from read_parquet({list}, union_by_name = true)"));
    }
    for files in alike.values() {
        parts.push(format!("select * from read_parquet({})", list(files, root)));
    }
    (!parts.is_empty()).then(|| parts.join("\nunion all by name\n"))
}

/// Returns what is selected from files of earlier versions, in which integers of 128 bits are texts.
fn values_of_earlier(columns: &[&KnownColumn]) -> String {
    let texts = columns.iter().filter_map(|field| Some((*field, field.earlier_name.as_deref()?)));
    let (mut numbers, mut digits) = (Vec::new(), String::new());
    for (field, earlier) in texts {
        let earlier = quoted(earlier);
        numbers.push(format!("try_cast({earlier} as decimal(38, 0)) as {earlier}"));
        let _ = write!(digits, ", {earlier} as {}", quoted(&field.name));
    }
    match numbers.is_empty() {
        true => "*".to_owned(),
        false => format!("* replace ({}){digits}", numbers.join(", ")),
    }
}

fn list(files: &[&DataFile], root: &str) -> String {
    let path = |file: &&DataFile| {
        format!("\n  '{}/{}'", root.replace('\'', "''"), file.path.replace('\'', "''"))
    };
    format!("[{}\n]", files.iter().map(path).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_iceberg::{Columns, TableState};

    fn file(path: &str, columns: Option<u32>) -> DataFile {
        let path = path.to_owned();
        let (first_ledger, last_ledger, rows, bytes) = (2, 9, 1, 1);
        let sha256 = String::new();
        let (bounds, sorted, digest, place) = (None, false, None, None);
        DataFile {
            path,
            first_ledger,
            last_ledger,
            rows,
            bytes,
            sha256,
            columns,
            bounds,
            sorted,
            digest,
            place,
        }
    }

    fn field(id: u32, name: &str, sql_type: &str) -> KnownColumn {
        KnownColumn {
            id,
            name: name.to_owned(),
            text: String::new(),
            sql_type: sql_type.to_owned(),
            exact_of: None,
            earlier_name: None,
            dropped: false,
        }
    }

    fn table(name: &str, fields: Vec<KnownColumn>, files: Vec<DataFile>) -> ExportedTable {
        let columns = fields.iter().map(|it| (it.name.clone(), it.text.clone())).collect();
        let identity = Columns { fields, ..Columns::default() };
        let (name, state) = (name.to_owned(), TableState::default());
        ExportedTable { name, columns, next_file: 0, identity, state, files }
    }

    fn program(
        id: u32,
        project: &str,
        deleted: bool,
        tables: Vec<ExportedTable>,
    ) -> ExportedProgram {
        ExportedProgram {
            id,
            owner: "ana".to_owned(),
            project: project.to_owned(),
            deployed_at: 1,
            deleted,
            runs: 1,
            last_run: None,
            of_events: false,
            arrangement: 0,
            versions: Vec::new(),
            tables,
        }
    }

    #[test]
    fn a_view_names_all_files_and_has_numbers_of_earlier_ones() {
        let digits = KnownColumn {
            exact_of: Some("n".to_owned()),
            earlier_name: Some("n".to_owned()),
            ..field(2, "n_exact", "VARCHAR")
        };
        let gone = KnownColumn { dropped: true, ..field(3, "gone", "VARCHAR") };
        let mut sold = table(
            "sold",
            vec![
                field(4, "_service_event_id", "VARCHAR"),
                field(5, "_ledger", "BIGINT"),
                field(1, "n", "DECIMAL(38, 0)"),
                digits,
                gone,
            ],
            vec![
                file("programs/1-m/sold/0.parquet", None),
                file("data/programs/a.parquet", Some(2)),
                file("data/programs/b.parquet", Some(3)),
                file("data/programs/c.parquet", Some(2)),
            ],
        );
        sold.columns.pop();
        let mut manifest = Manifest::new("a passphrase");
        manifest.programs = vec![program(1, "M", false, vec![sold, table("none", vec![], vec![])])];
        let texts = texts(&manifest, "/it's/");
        assert_eq!(
            texts.keys().collect::<Vec<_>>(),
            ["tables/chain/views.sql", "tables/m/views.sql", "views.sql"]
        );
        let expected = format!(
            "{COMMENT}
create schema if not exists \"m\";

create or replace view \"m\".\"sold\" as
select null::DECIMAL(38, 0) as \"n\", null::BIGINT as \"_ledger\", null::VARCHAR as \"_service_event_id\", \
null::VARCHAR as \"n_exact\" where false
union all by name
select * replace (try_cast(\"n\" as decimal(38, 0)) as \"n\"), \"n\" as \"n_exact\" from read_parquet([
  '/it''s/programs/1-m/sold/0.parquet'
], union_by_name = true)
union all by name
select * from read_parquet([
  '/it''s/data/programs/a.parquet',
  '/it''s/data/programs/c.parquet'
])
union all by name
select * from read_parquet([
  '/it''s/data/programs/b.parquet'
]);
"
        );
        assert_eq!(texts["tables/m/views.sql"], expected);
        assert!(texts["views.sql"].ends_with(expected.strip_prefix(COMMENT).unwrap()));
    }

    #[test]
    fn a_name_belongs_to_the_program_that_has_it() {
        let of = |programs: &[(u32, &str, bool)]| -> Vec<(String, u32)> {
            let program = |it: &(u32, &str, bool)| program(it.0, it.1, it.2, Vec::new());
            let programs: Vec<_> = programs.iter().map(program).collect();
            shown(&programs).into_iter().map(|(name, it)| (name, it.id)).collect()
        };
        let named = |all: &[(&str, u32)]| -> Vec<(String, u32)> {
            all.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect()
        };
        assert_eq!(of(&[(1, "xlm", true), (2, "XLM", false)]), named(&[("xlm", 2)]));
        assert_eq!(of(&[(1, "xlm", false), (2, "xlm", true)]), named(&[("xlm", 1)]));
        assert_eq!(of(&[(1, "xlm", true), (2, "xlm", true)]), named(&[("xlm", 2)]));
        // Views of the chain and of DuckDB itself have these names.
        let reserved = of(&[(1, "Chain", false), (2, "main", false)]);
        assert_eq!(reserved, named(&[("program_1", 1), ("program_2", 2)]));
    }

    #[test]
    fn versions_of_a_table_are_one_view() {
        let column = |name| field(1, name, "VARCHAR");
        let mut it = program(
            1,
            "p",
            false,
            vec![
                table("t", vec![column("a"), column("b")], vec![]),
                table("t_v2", vec![column("c"), column("B")], vec![]),
                table("t_v1", vec![column("a")], vec![]),
            ],
        );
        it.versions = vec![vec!["t".to_owned(), "t_v2".to_owned()]];
        let mut manifest = Manifest::new("a passphrase");
        manifest.programs = vec![it];
        let views = &texts(&manifest, "/x")["tables/p/views.sql"];
        let end = "create or replace view \"p\".\"t\" as
select \"b\" from \"p\".\"t_v1_\"
union all by name
select \"b\" from \"p\".\"t_v2\";
";
        assert!(views.ends_with(end), "{views}");
        assert_eq!(views.matches("create or replace view").count(), 4, "{views}");
    }
}
