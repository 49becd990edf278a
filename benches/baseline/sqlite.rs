//! SQLite with the tables and indexes of stellar-rpc (its migrations 01 to 06): events with four
//! topic columns, transactions by hash, whole ledgers. WAL, `synchronous=FULL`, one transaction per
//! ledger, prepared statements.
//!
//! Does what stellar-rpc does (`cmd/stellar-rpc/internal/db`, `event.go` and `transaction.go`):
//! stores a row for the hash of every transaction, including inner hashes, and reads an event by
//! decoding its XDR and encoding its topics and data again. Where there was a choice, writing is in
//! the baseline's favour: it receives ledgers from this project's decoder, not fully decoded ones.

use std::path::Path;

use orrery::decode::{EventType, EventView, LedgerView, Placement};
use orrery::domain::{CloseTime, ContractId, EventId, LedgerSeq, RpcEventId};
use orrery::store::EventRecord;
use rusqlite::{CachedStatement, Connection, Result, Row, params};
use stellar_xdr::{ContractEventBody, DiagnosticEvent, Limits, ReadXdr, ScVal, WriteXdr};

const SCHEMA: &str = "
    CREATE TABLE ledger_close_meta (sequence INTEGER NOT NULL PRIMARY KEY, meta BLOB NOT NULL);
    CREATE TABLE transactions (
        hash BLOB PRIMARY KEY,
        ledger_sequence INTEGER NOT NULL,
        application_order INTEGER NOT NULL
    );
    CREATE INDEX transactions_by_ledger ON transactions (ledger_sequence);
    CREATE TABLE events (
        id TEXT PRIMARY KEY,
        contract_id BLOB,
        event_type INTEGER NOT NULL,
        event_data BLOB NOT NULL,
        ledger_close_time INTEGER NOT NULL,
        transaction_hash BLOB,
        topic1 BLOB, topic2 BLOB, topic3 BLOB, topic4 BLOB
    );
    CREATE INDEX events_by_contract ON events (contract_id, id);
    CREATE INDEX events_by_topic1 ON events (topic1, id);
";
const INSERT_LEDGER: &str = "INSERT INTO ledger_close_meta VALUES (?, ?)";
const INSERT_TRANSACTION: &str = "INSERT OR IGNORE INTO transactions VALUES (?, ?, ?)";
const INSERT_EVENT: &str = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const BY_CONTRACT: &str = "SELECT id, event_type, event_data, ledger_close_time, transaction_hash
    FROM events WHERE contract_id = ? ORDER BY id DESC LIMIT ?";
/// The query of stellar-rpc for getEvents with a contract and a first topic: a range of ids, and
/// both conditions.
const BY_CONTRACT_AND_TOPIC: &str =
    "SELECT id, event_type, event_data, ledger_close_time, transaction_hash
    FROM events WHERE id >= ? AND id < ? AND contract_id = ? AND topic1 = ? ORDER BY id LIMIT ?";
/// SQLite's `cache_size`: negative values are KiB. As large as the store's block cache.
const CACHE: i32 = -64 * 1024;
const CONTRACT_EVENT: i64 = 1;
/// An open database.
pub struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    /// Creates the database in a file.
    pub fn create(path: &Path) -> Result<Self> {
        let sqlite = Self::open(path)?;
        sqlite.connection.execute_batch(SCHEMA)?;
        Ok(sqlite)
    }

    /// Opens the database in a file.
    pub fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_size", CACHE)?;
        Ok(Self { connection })
    }

    /// Stops commits from waiting for the disk, for preparation that is not measured.
    pub fn never_sync(&self) -> Result<()> {
        self.connection.pragma_update(None, "synchronous", "OFF")
    }

    /// Stores a ledger in one transaction: its `LedgerCloseMeta` unless that is empty, the events
    /// of its operations, and the hashes of its transactions.
    pub fn insert(&mut self, ledger: &LedgerView<'_>) -> Result<()> {
        let transaction = self.connection.transaction()?;
        if !ledger.raw.is_empty() {
            let mut insert = transaction.prepare_cached(INSERT_LEDGER)?;
            insert.execute(params![ledger.header.sequence.0, ledger.raw])?;
        }
        insert_transactions(&mut transaction.prepare_cached(INSERT_TRANSACTION)?, ledger)?;
        let mut insert = transaction.prepare_cached(INSERT_EVENT)?;
        for event in &ledger.events {
            if matches!(event.placement, Placement::Operation { .. }) {
                insert_event(&mut insert, ledger, event)?;
            }
        }
        drop(insert);
        transaction.commit()
    }

    /// Visits the newest events of a contract.
    pub fn by_contract(
        &self,
        contract: &ContractId,
        limit: usize,
        mut visit: impl FnMut(&EventRecord<'_>),
    ) -> Result<()> {
        let mut select = self.connection.prepare_cached(BY_CONTRACT)?;
        let mut rows = select.query(params![contract.as_bytes(), limit as i64])?;
        while let Some(row) = rows.next()? {
            visit_row(row, contract, &mut visit)?;
        }
        Ok(())
    }

    /// Visits the oldest events of a contract with this first topic, starting at a ledger.
    pub fn by_contract_and_topic(
        &self,
        contract: &ContractId,
        topic: &[u8],
        from: LedgerSeq,
        limit: usize,
        mut visit: impl FnMut(&EventRecord<'_>),
    ) -> Result<()> {
        let mut select = self.connection.prepare_cached(BY_CONTRACT_AND_TOPIC)?;
        let [from, before] =
            [from.0, u32::MAX].map(|ledger| RpcEventId::new(ledger, 0, 0, 0).to_string());
        let given = params![from, before, contract.as_bytes(), topic, limit as i64];
        let mut rows = select.query(given)?;
        while let Some(row) = rows.next()? {
            visit_row(row, contract, &mut visit)?;
        }
        Ok(())
    }

    /// Returns the size of the database in bytes after VACUUM.
    pub fn vacuumed_bytes(&self) -> Result<u64> {
        self.connection.execute_batch("VACUUM")?;
        let pragma =
            |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok((pragma("page_count")? * pragma("page_size")?) as u64)
    }
}

fn insert_transactions(insert: &mut CachedStatement<'_>, ledger: &LedgerView<'_>) -> Result<()> {
    for transaction in &ledger.transactions {
        let order = transaction.application_order;
        for hash in std::iter::once(&transaction.hash).chain(&transaction.inner_hash) {
            insert.execute(params![hash.as_bytes(), ledger.header.sequence.0, order])?;
        }
    }
    Ok(())
}

fn insert_event(
    insert: &mut CachedStatement<'_>,
    ledger: &LedgerView<'_>,
    event: &EventView<'_>,
) -> Result<()> {
    let topics = ledger.topics(event);
    let topic = |position: usize| topics.get(position).copied();
    // `DiagnosticEvent`: whether the call succeeded, followed by the event.
    let mut diagnostic = Vec::with_capacity(4 + event.xdr.len());
    diagnostic.extend_from_slice(&1u32.to_be_bytes());
    diagnostic.extend_from_slice(event.xdr);
    insert.execute(params![
        event.rpc_id.to_string(),
        event.contract,
        CONTRACT_EVENT,
        diagnostic,
        ledger.header.close_time as i64,
        ledger.transactions[event.transaction].hash.as_bytes(),
        topic(0),
        topic(1),
        topic(2),
        topic(3),
    ])?;
    Ok(())
}

fn visit_row(
    row: &Row<'_>,
    contract: &ContractId,
    visit: &mut impl FnMut(&EventRecord<'_>),
) -> Result<()> {
    let id = row.get_ref(0)?.as_str()?;
    let (toid, index) = id.split_once('-').unwrap_or((id, "0"));
    let toid: u64 = toid.parse().unwrap_or_default();
    let event = DiagnosticEvent::from_xdr(row.get_ref(2)?.as_blob()?, Limits::none());
    let ContractEventBody::V0(body) = event.expect("what was stored").event.body;
    let encode = |value: &ScVal| value.to_xdr(Limits::none()).expect("what was decoded");
    let topics: Vec<Vec<u8>> = body.topics.iter().map(encode).collect();
    let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
    let data = encode(&body.data);
    let tx: [u8; 32] = row.get(4)?;
    visit(&EventRecord {
        id: EventId(toid),
        ledger: LedgerSeq((toid >> 32) as u32),
        closed_at: CloseTime::Seconds(row.get::<_, i64>(3)? as u64),
        tx: &tx,
        application_order: (toid >> 12 & 0xf_ffff) as u32,
        placement: Placement::Operation {
            operation: (toid & 0xfff) as u32,
            event_index: index.parse().unwrap_or_default(),
        },
        operation_begins: None,
        contract: Some(contract.as_bytes()),
        event_type: EventType::Contract,
        successful: None,
        topics: &topics,
        data: &data,
    });
    Ok(())
}
