//! Tables and views of a project: creating them, and letting them grow in place. What is not ours is never touched.

use std::collections::{BTreeMap, BTreeSet};

use super::connection::{Connection, Purpose};
use super::cursor::Writer;
use super::error::{Result, SinkError};
use super::names::{self, ROW, literal, qualified, quoted, shortened};
use super::objects::{self, Kind, Object, Relation};
use super::places::{Place, Places};
use super::rows::RowsDigest;
use super::types::{Column, Project, Table};
use super::views;

/// Greatest number of characters of a comment.
const LONGEST_COMMENT: usize = 500;

/// Which views are created again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replace {
    /// Those with another query.
    WhatChanged,
    /// All, because they would go on showing tables that others have replaced.
    All,
}

/// Creates what is missing for a project in place: schemas, tables, columns, views and comments. Tables that follow
/// from the same events as before grow, and take other names; nothing is filled in.
///
/// # Errors
/// [`SinkError::Refused`] when something is not ours, or not as it was; [`SinkError::Blocked`] when a view of ours
/// has to change, and others depend on it; [`SinkError::Busy`] when somebody reads the tables: try again.
pub async fn ensure(connection: &Connection, writer: &Writer, project: &Project) -> Result<Places> {
    prepare(connection, project).await?;
    connection.begin(Purpose::Tables).await?;
    let done = ensure_in(connection, writer, project, &BTreeSet::new(), Replace::WhatChanged).await;
    connection.end(done).await
}

/// Creates the schemas and the tables of the schema `orrery`.
pub(super) async fn prepare(connection: &Connection, project: &Project) -> Result<()> {
    super::server::create_schemas(connection, &[&project.schema]).await?;
    connection.begin(Purpose::Tables).await?;
    let done = objects::install(connection).await;
    connection.end(done).await
}

/// Returns the targets of those tables of a project whose columns have other types now than when they were created: they
/// have to be filled again ([`Refill`](crate::Refill)), because a column cannot become one of another type in place.
///
/// # Errors
/// When the server cannot be asked.
pub async fn changed_tables(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
) -> Result<BTreeSet<String>> {
    let is_changed = |table: &Table, kinds: &BTreeMap<String, String>| {
        table.columns.iter().any(|column| {
            let created = kinds.get(&exact(column));
            created.is_some_and(|kind| *kind != column.kind.to_string())
        })
    };
    tables_that(connection, writer, project, &is_changed).await
}

/// Returns the targets of those tables of a project that were created with columns which it does not have any more, as
/// after its rows were derived anew.
///
/// # Errors
/// When the server cannot be asked.
pub async fn outgrown_tables(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
) -> Result<BTreeSet<String>> {
    let is_outgrown = |table: &Table, kinds: &BTreeMap<String, String>| {
        let columns: BTreeSet<String> = table.columns.iter().map(exact).collect();
        kinds.keys().any(|created| !columns.contains(created))
    };
    tables_that(connection, writer, project, &is_outgrown).await
}

/// The name of a column as it is recorded.
fn exact(column: &Column) -> String {
    column.name.replace('\0', "\\x00")
}

/// Returns the targets of those of our tables that are so: a table, and the types of the columns with which it was created.
async fn tables_that(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
    is_so: &(dyn Fn(&Table, &BTreeMap<String, String>) -> bool + Sync),
) -> Result<BTreeSet<String>> {
    connection.begin(Purpose::Rows).await?;
    let done = tables_that_in(connection, writer, project, is_so).await;
    connection.end(done).await
}

async fn tables_that_in(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
    is_so: &(dyn Fn(&Table, &BTreeMap<String, String>) -> bool + Sync),
) -> Result<BTreeSet<String>> {
    let mut changed = BTreeSet::new();
    if !objects::are_installed(connection).await? {
        return Ok(changed);
    }
    let schema = &project.schema;
    for object in objects::objects(connection, writer, schema, &project.name).await? {
        let table = project.table(&object.target);
        let Some(table) = table.filter(|_| object.is_own && object.kind == Kind::Table) else {
            continue;
        };
        let kinds = objects::kinds(connection, schema, &object.name).await?;
        if is_so(table, &kinds) {
            changed.insert(object.target);
        }
    }
    Ok(changed)
}

/// Does what [`ensure`] does within a transaction, but for the tables of these targets.
pub(super) async fn ensure_in(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
    but: &BTreeSet<String>,
    replace: Replace,
) -> Result<Places> {
    let mut work = Work::new(connection, writer, project).await?;
    work.refuse_foreign()?;
    work.drop_views().await?;
    let mut places = Places::default();
    for table in project.tables.iter().filter(|table| !but.contains(&table.target)) {
        work.rename(table).await?;
    }
    for table in &project.tables {
        let place = match but.contains(&table.target) {
            true => work.place_of(table).await?,
            false => work.table(table).await?,
        };
        places.0.insert(table.target.clone(), place);
    }
    work.views(&places, replace).await?;
    Ok(places)
}

/// Refuses names of tables and views that something has which is not ours. In a transaction.
pub(super) async fn refuse_foreign(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
) -> Result<()> {
    Work::new(connection, writer, project).await?.refuse_foreign()
}

/// Creates or changes the tables of a project.
struct Work<'a> {
    connection: &'a Connection,
    writer: &'a Writer,
    project: &'a Project,
    ours: Vec<Object>,
    there: BTreeMap<String, Relation>,
}

impl<'a> Work<'a> {
    async fn new(
        connection: &'a Connection,
        writer: &'a Writer,
        project: &'a Project,
    ) -> Result<Self> {
        let ours = objects::objects(connection, writer, &project.schema, &project.name).await?;
        let there = objects::relations(connection, &project.schema).await?;
        Ok(Self { connection, writer, project, ours, there })
    }

    fn owner(&self) -> (&'a str, &'a str) {
        (&self.project.schema, &self.project.name)
    }

    /// Refuses names that something has which is not ours, before anything is changed.
    fn refuse_foreign(&self) -> Result<()> {
        let schema = &self.project.schema;
        let tables = self.project.tables.iter().map(|table| shortened(&table.name));
        for name in tables.chain(self.project.views.iter().map(|view| shortened(&view.name))) {
            let known = self.ours.iter().find(|object| object.name == name);
            match known {
                Some(object) if object.is_own => {}
                Some(object) => {
                    return Err(SinkError::Refused(format!(
                        "{schema}.{name} is of the project {} or of another sink: give each a schema of its own",
                        object.project
                    )));
                }
                None if self.there.contains_key(&name) => {
                    return Err(SinkError::Refused(format!(
                        "{schema}.{name} is there already, and not Orrery's: rename it, or give the sink \
                         another `schema`"
                    )));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Drops views of ours that the project does not have any more.
    async fn drop_views(&mut self) -> Result<()> {
        let is_wanted =
            |name: &str| self.project.views.iter().any(|it| shortened(&it.name) == name);
        let views = self.ours.iter().filter(|it| it.is_own && it.kind == Kind::View);
        let gone: Vec<String> =
            views.map(|it| it.name.clone()).filter(|name| !is_wanted(name)).collect();
        for name in gone {
            if self.there.remove(&name).is_some() {
                views::drop(self.connection, &self.project.schema, &name).await?;
            }
            objects::forget(self.connection, &self.project.schema, &name).await?;
            self.ours.retain(|it| it.name != name);
        }
        Ok(())
    }

    fn known(&self, table: &Table) -> Option<&Object> {
        let tables = self.ours.iter().filter(|it| it.is_own && it.kind == Kind::Table);
        tables.into_iter().find(|it| it.target == table.target)
    }

    /// Gives a table that is there its name of now.
    async fn rename(&mut self, table: &Table) -> Result<()> {
        let (schema, name) = (&self.project.schema, shortened(&table.name));
        let Some(known) = self.known(table).filter(|known| known.name != name) else {
            return Ok(());
        };
        let before = known.name.clone();
        objects::usable(self.there.get(&before), schema, &before)?;
        // A view of ours that had the name is created again below it.
        if self.ours.iter().any(|it| it.name == name && it.kind == Kind::View) {
            views::drop(self.connection, schema, &name).await?;
            objects::forget(self.connection, schema, &name).await?;
            self.ours.retain(|it| it.name != name);
        }
        let (from, to) = (qualified(schema, &before), quoted(&name));
        let sql = format!("ALTER TABLE {from} RENAME TO {to}");
        self.connection.run("renaming a table", &sql).await?;
        let sql = "UPDATE orrery.objects SET object_name = $3 WHERE schema_name = $1 AND object_name = $2";
        self.connection.rows("recording a name", sql, &[schema, &before, &name]).await?;
        if let Some(relation) = self.there.remove(&before) {
            self.there.insert(name.clone(), relation);
        }
        self.ours
            .iter_mut()
            .filter(|it| it.name == before)
            .for_each(|it| it.name.clone_from(&name));
        Ok(())
    }

    /// Creates a table, or adds the columns that it lacks.
    async fn table(&mut self, table: &Table) -> Result<Place> {
        let (schema, name) = (&self.project.schema, shortened(&table.name));
        if self.known(table).is_none() {
            let place =
                create(self.connection, self.writer, self.owner(), table, &name, Kind::Table);
            let place = place.await?;
            let sql = format!("ALTER TABLE {} ADD PRIMARY KEY ({ROW})", qualified(schema, &name));
            self.connection.run("creating a key", &sql).await?;
            return Ok(place);
        }
        objects::usable(self.there.get(&name), schema, &name)?;
        let place = self.place_of(table).await?;
        let known = objects::columns(self.connection, schema, &name).await?;
        let types = objects::types(self.connection, schema, &name).await?;
        let new = |column: &&Column| !known.contains_key(&column.name);
        let new: Vec<&Column> = table.columns.iter().filter(new).collect();
        check_types(schema, &name, table, &place, &known, &types)?;
        if new.is_empty() {
            return Ok(place);
        }
        let adding: Vec<String> = new
            .iter()
            .map(|column| {
                format!("ADD COLUMN {} {}", quoted(&place.columns[&column.name]), column.kind)
            })
            .collect();
        let sql = format!("ALTER TABLE {} {}", qualified(schema, &name), adding.join(", "));
        self.connection.run("adding columns", &sql).await?;
        describe(self.connection, schema, &name, &place, &new).await?;
        Ok(place)
    }

    /// Returns where the rows of a table go that is there, or will be.
    async fn place_of(&self, table: &Table) -> Result<Place> {
        let name = shortened(&table.name);
        let known = objects::columns(self.connection, &self.project.schema, &name).await?;
        Ok(Place { columns: assigned(table, &known), name })
    }

    /// Creates the views, or replaces them.
    async fn views(&self, places: &Places, replace: Replace) -> Result<()> {
        for view in &self.project.views {
            let name = shortened(&view.name);
            let definition = views::query(self.writer, self.project, view, places)?;
            let is_there = self.there.contains_key(&name);
            let known = self.ours.iter().find(|it| it.name == name);
            let is_same = is_there && known.is_some_and(|it| it.definition == definition);
            if is_same && replace == Replace::WhatChanged {
                continue;
            }
            views::replace(self.connection, &self.project.schema, &name, &definition).await?;
            let comment = cut(&view.comment);
            let sql = format!(
                "COMMENT ON VIEW {} IS{}",
                qualified(&self.project.schema, &name),
                literal(&comment)
            );
            self.connection.run("writing a comment", &sql).await?;
            let (kind, target, digest) = (Kind::View, name.clone(), RowsDigest::default());
            let (is_own, project) = (true, self.project.name.clone());
            let object = Object {
                name,
                kind,
                target,
                is_own,
                project,
                definition,
                digest,
                nuls: 0,
                comment,
            };
            objects::record(self.connection, self.writer, self.owner(), &object).await?;
        }
        Ok(())
    }
}

/// Compares the columns of a table that were created with those that it should have.
fn check_types(
    schema: &str,
    name: &str,
    table: &Table,
    place: &Place,
    known: &BTreeMap<String, String>,
    types: &BTreeMap<String, String>,
) -> Result<()> {
    let refused = |column: &str, text: &str| {
        Err(SinkError::Refused(format!(
            "the column {column} of the table {schema}.{name} {text}: `orrery sink replace` fills the table again"
        )))
    };
    if types.get(ROW).map(String::as_str) != Some("bytea") {
        return refused(ROW, "is missing, or not bytea");
    }
    for column in table.columns.iter().filter(|column| known.contains_key(&column.name)) {
        let own = &place.columns[&column.name];
        match types.get(own) {
            None => return refused(own, "was dropped or renamed"),
            Some(kind) if *kind != column.kind.to_string() => {
                return refused(own, &format!("is {kind}, and the rows have {}", column.kind));
            }
            Some(_) => {}
        }
    }
    // One of theirs may have a name that a new column of ours needs.
    for column in table.columns.iter().filter(|column| !known.contains_key(&column.name)) {
        let own = &place.columns[&column.name];
        if types.contains_key(own) {
            return Err(SinkError::Refused(format!(
                "the table {schema}.{name} has a column {own} that is not Orrery's, and needs one of that name: \
                 rename yours"
            )));
        }
    }
    Ok(())
}

/// Returns the names of the columns of a table: those that they have, else free ones.
fn assigned(table: &Table, known: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    // Those that exist come first, so that a new one cannot take the name of one of them.
    let (old, new): (Vec<&str>, Vec<&str>) = table
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .partition(|name| known.contains_key(*name));
    let taken: Vec<&str> = old.iter().map(|name| known[*name].as_str()).collect();
    let all = names::columns(taken.iter().copied().chain(new.iter().copied()));
    let found = all.into_iter().skip(taken.len());
    let mut names: BTreeMap<String, String> =
        old.into_iter().map(|name| (name.to_owned(), known[name].clone())).collect();
    names.extend(new.into_iter().map(str::to_owned).zip(found));
    names
}

/// Creates a table without a key, and records it.
pub(super) async fn create(
    connection: &Connection,
    writer: &Writer,
    (schema, project): (&str, &str),
    table: &Table,
    name: &str,
    kind: Kind,
) -> Result<Place> {
    let place = Place { name: name.to_owned(), columns: assigned(table, &BTreeMap::new()) };
    let mut columns = vec![format!("{ROW} bytea NOT NULL")];
    columns.extend(
        table.columns.iter().map(|it| format!("{} {}", quoted(&place.columns[&it.name]), it.kind)),
    );
    let comment = cut(&table.comment);
    let full = qualified(schema, name);
    let sql = format!(
        "CREATE TABLE {full} ({}); COMMENT ON TABLE {full} IS{}; COMMENT ON COLUMN {full}.{ROW} IS 'place in the \
         chain: ledger, transaction, number in it, four bytes each'",
        columns.join(", "),
        literal(&comment)
    );
    connection.run("creating a table", &sql).await?;
    let object = Object {
        name: name.to_owned(),
        kind,
        target: table.target.clone(),
        is_own: true,
        project: project.to_owned(),
        definition: String::new(),
        digest: RowsDigest::default(),
        nuls: 0,
        comment,
    };
    objects::record(connection, writer, (schema, project), &object).await?;
    describe(connection, schema, name, &place, &table.columns.iter().collect::<Vec<_>>()).await?;
    Ok(place)
}

/// Records columns, and writes their comments.
async fn describe(
    connection: &Connection,
    schema: &str,
    table: &str,
    place: &Place,
    columns: &[&Column],
) -> Result<()> {
    let mut comments = String::new();
    for column in columns {
        let name = &place.columns[&column.name];
        let parts = [column.declared.as_str(), column.doc.as_str()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let comment = cut(&parts.join(": "));
        let sql = "INSERT INTO orrery.columns (schema_name, table_name, column_name, exact_name, kind, declared_type, \
                   comment) VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let exact = column.name.replace('\0', "\\x00");
        let declared = column.declared.replace('\0', "\\x00");
        let kind = column.kind.to_string();
        let values = [schema, table, name, &*exact, &*kind, &*declared, &*comment];
        connection.rows("recording a column", sql, &values).await?;
        if !comment.is_empty() {
            let column = format!("{}.{}", qualified(schema, table), quoted(name));
            comments += &format!("COMMENT ON COLUMN {column} IS{};", literal(&comment));
        }
    }
    match comments.is_empty() {
        true => Ok(()),
        false => connection.run("writing comments", &comments).await,
    }
}

/// Returns the text of a comment.
fn cut(text: &str) -> String {
    text.replace('\0', "\\x00").chars().take(LONGEST_COMMENT).collect()
}
