//! A database of a test, and rows for it.

use std::ops::Deref;

use orrery_postgres::{
    Batch, Column, ColumnType, Connection, Cursor, Generation, Notify, Places, Position, Project,
    Refill, RowKey, ServerUrl, SinkError, Table, TableRows, Value, Writer, apply, apply_all,
    ensure,
};
use orrery_testkit::postgres::{self, Server, shared};
use tokio::net::UnixStream;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, NoTls};

/// A database with a role that owns nothing but what it makes.
pub struct Database<'a>(postgres::Database<'a>);

impl<'a> Deref for Database<'a> {
    type Target = postgres::Database<'a>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Database<'static> {
    pub fn new() -> Self {
        Self::on(shared())
    }
}

impl<'a> Database<'a> {
    pub fn on(server: &'a Server) -> Self {
        Self(postgres::Database::on(server, &["orrery", "xlm"]))
    }

    /// A database that was made before.
    pub fn named(server: &'a Server, name: &str) -> Self {
        Self(postgres::Database { server, name: name.to_owned() })
    }

    /// The address by the socket.
    pub fn url(&self) -> ServerUrl {
        ServerUrl::parse(&self.0.url()).unwrap()
    }

    /// The address by a port.
    pub fn at(&self, port: u16) -> ServerUrl {
        ServerUrl::parse(&self.0.at(port)).unwrap()
    }

    pub async fn connect(&self) -> Connection {
        self.url().connect().await.unwrap()
    }

    /// Returns a client of a superuser that is not the sink's.
    pub async fn client(&self) -> (Client, tokio_postgres::Connection<UnixStream, NoTlsStream>) {
        let socket = self.server.directory.join(format!(".s.PGSQL.{}", self.server.port));
        let stream = UnixStream::connect(socket).await.unwrap();
        let mut config = Config::new();
        config.user("root").dbname(&self.name);
        config.connect_raw(stream, NoTls).await.unwrap()
    }
}

pub fn writer() -> Writer {
    let [network, sink, id, name] =
        ["test network", "main", "writer-1", "host one"].map(str::to_owned);
    Writer { network, sink, id, name }
}

pub const GENERATION: Generation = Generation { program: 7, deployed: 3, arrangement: 1 };

pub fn table(target: &str, columns: &[(&str, ColumnType)]) -> Table {
    let columns = columns.iter().map(|(name, kind)| Column::new(name, kind.clone())).collect();
    let (target, name) = (target.to_owned(), target.to_owned());
    Table { target, name, columns, comment: "event".to_owned() }
}

/// A project with a table of transfers.
pub fn project() -> Project {
    let columns = [
        ("from", ColumnType::Text),
        ("amount", ColumnType::Int128),
        ("_ledger", ColumnType::UInt32),
    ];
    with_tables(vec![table("transfer", &columns)])
}

pub fn with_tables(tables: Vec<Table>) -> Project {
    let (name, schema) = ("xlm".to_owned(), "xlm".to_owned());
    Project { name, schema, tables, views: Vec::new() }
}

pub fn position(number: u64) -> Position {
    let ledger = u32::try_from(number).unwrap();
    Position { number, ledger, transaction: u32::from(number > 0) }
}

/// One transfer for each of these ledgers, whose log entries have the same numbers.
pub fn transfers(project: &Project, from: u64, to: u64) -> Batch {
    let mut rows = TableRows::new(project.table("transfer").unwrap());
    for number in from + 1..=to {
        let ledger = u32::try_from(number).unwrap();
        let key = RowKey { ledger, transaction: 1, number: 0 };
        let amount = Value::Integer(i128::from(number) * i128::from(u64::MAX));
        let values =
            [Value::Text(format!("G{number}")), amount, Value::Integer(i128::from(number))];
        rows.push(key, &values).unwrap();
    }
    let mut batch = Batch::new(GENERATION, position(from));
    batch.to = position(to);
    batch.ledger = u32::try_from(to).unwrap();
    batch.tables.push(rows);
    batch
}

/// Fills a project for the first time, with no rows but those of the batches.
pub async fn filled(connection: &Connection, project: &Project, batches: &[Batch]) -> Cursor {
    filled_as(connection, &writer(), project, GENERATION, batches).await
}

pub async fn filled_as(
    connection: &Connection,
    writer: &Writer,
    project: &Project,
    generation: Generation,
    batches: &[Batch],
) -> Cursor {
    let targets = project.tables.iter().map(|it| it.target.clone()).collect();
    let begun = Refill::begin(connection, writer, project, generation, targets).await;
    let (refill, mut cursor) = begun.unwrap();
    for batch in batches {
        let batch = Batch { generation, ..batch.clone() };
        cursor = refill.fill(connection, &batch).await.unwrap();
    }
    let wait = std::time::Duration::from_secs(2);
    let swapped =
        refill.swap_after(connection, orrery_postgres::OnBlocked::Wait, wait).await.unwrap();
    assert_eq!((swapped.position, swapped.rows), (cursor.position, cursor.rows));
    swapped
}

/// Ensures the tables, and adds rows.
pub async fn add(
    connection: &Connection,
    project: &Project,
    batch: &Batch,
) -> Result<Cursor, SinkError> {
    let places: Places = ensure(connection, &writer(), project).await?;
    let names = (&*project.name, &*project.schema);
    apply(connection, &writer(), &places, names, batch, Notify::Listeners).await
}

/// Adds transfers in one transaction, of which each is a part of its own.
pub async fn add_in_parts(
    connection: &Connection,
    project: &Project,
    from: u64,
    to: u64,
) -> Result<Cursor, SinkError> {
    let places: Places = ensure(connection, &writer(), project).await?;
    let names = (&*project.name, &*project.schema);
    let first = Batch { ledger: u32::try_from(to).unwrap(), ..transfers(project, from, from + 1) };
    let mut more = |after: Position| {
        Ok((after.number < to).then(|| transfers(project, after.number, after.number + 1)))
    };
    let notify = Notify::Listeners;
    apply_all(connection, &writer(), &places, names, &first, &mut more, notify).await
}
