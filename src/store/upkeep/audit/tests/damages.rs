//! Ways to damage a sound database.

use super::*;

/// Name of each damage, the function that causes it, and text that a reported problem must then
/// contain.
pub(super) const DAMAGES: &[(&str, Damage, &str)] = &[
    (
        "no row for a contract",
        |db, batch| remove(db, batch, Family::EventsByContract),
        "is missing",
    ),
    (
        "a row for a contract that has no event there",
        |db, batch| {
            let (key, value) = row(db, Family::EventsByContract);
            let stray = [[9; ContractTag::LEN].as_slice(), &key[ContractTag::LEN..]].concat();
            batch.put_raw(Family::EventsByContract, &stray, &value).unwrap();
        },
        "points to a record that is not stored",
    ),
    (
        "a row for events that were never stored",
        |_, batch| {
            let stray = key(&[9; ContractTag::LEN], &BlockKey(EventId(1 << 40)));
            batch.put_raw(Family::EventsByContract, &stray, &[0]).unwrap();
        },
        "points to a record that is not stored",
    ),
    (
        "another event for a topic",
        |db, batch| {
            let (key, value) = row(db, Family::EventsByTopic);
            let mut positions = Positions::decode(&value).unwrap();
            positions.0 ^= 1 << 63;
            let mut bytes = Vec::new();
            positions.encode(&mut bytes);
            batch.put_raw(Family::EventsByTopic, &key, &bytes).unwrap();
        },
        "points to the wrong record",
    ),
    ("no row for a topic", |db, batch| remove(db, batch, Family::EventsByTopic), "is missing"),
    (
        "a row of a topic that is none",
        |db, batch| {
            let (key, _) = row(db, Family::EventsByTopic);
            batch.put_raw(Family::EventsByTopic, &key, &[64]).unwrap();
        },
        "points to the wrong record",
    ),
    (
        "no row for a contract's transaction",
        |db, batch| remove(db, batch, Family::TxByContract),
        "is missing",
    ),
    (
        "a row for a transaction that is not stored",
        |_, batch| {
            let stray = key(&[9; ContractTag::LEN], &TransactionKey(position(9)));
            batch.put_raw(Family::TxByContract, &stray, &[]).unwrap();
        },
        "points to a record that is not stored",
    ),
    (
        "no row for a hash",
        |db, batch| change_hash(db, batch, |e| e.role == HashRole::Only && e.events > 0, |_| false),
        "is missing",
    ),
    (
        "no row for an inner hash",
        |db, batch| change_hash(db, batch, |e| matches!(e.role, HashRole::Inner(_)), |_| false),
        "tx_by_hash",
    ),
    (
        "no row for an outer hash",
        |db, batch| change_hash(db, batch, |e| matches!(e.role, HashRole::Outer { .. }), |_| false),
        "tx_by_hash",
    ),
    (
        "a hash whose events lie elsewhere",
        |db, batch| {
            let change = |entry: &mut HashEntry| {
                entry.first_event.0 += 1;
                true
            };
            change_hash(db, batch, |entry| entry.events > 0, change);
        },
        "points to the wrong record",
    ),
    (
        "a hash that forgot a fee event",
        |db, batch| {
            let change = |entry: &mut HashEntry| entry.fee_events.pop().is_some();
            change_hash(db, batch, |entry| !entry.fee_events.is_empty(), change);
        },
        "points to the wrong record",
    ),
    (
        "a hash of another transaction",
        |_, batch| {
            let key = tx_by_hash::key(&[1; 32].into(), position(9));
            let entry = HashEntry {
                role: HashRole::Only,
                first_event: EventId(1),
                position: 0,
                events: 1,
                fee_events: Vec::new(),
            };
            put_hash(batch, &key, &entry);
        },
        "points to a record that is not stored",
    ),
    ("no event block", |db, batch| remove(db, batch, Family::Events), "are missing"),
    (
        "another event",
        |db, batch| change_content(db, batch, Family::Events, Content::Events),
        "not those of the ledger's digest",
    ),
    (
        "events that no zstd wrote",
        |db, batch| {
            let (key, _) = row(db, Family::Events);
            batch.put_raw(Family::Events, &key, b"events").unwrap();
        },
        "could not be compressed or decompressed",
    ),
    (
        "events beyond the last",
        |db, batch| {
            let (_, value) = row(db, Family::Events);
            batch.put(Family::Events, &BlockKey(EventId(1 << 40)), value).unwrap();
        },
        "belongs to no ledger",
    ),
    ("no transaction", |db, batch| remove(db, batch, Family::Transactions), "were stored"),
    (
        "another transaction",
        |db, batch| {
            let (key, value) = transaction_block(db);
            let mut bytes = decompress(Content::Transactions, &value[1..]).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            let changed = compress(Content::Transactions, &bytes).unwrap();
            batch.put_raw(Family::Transactions, &key, &[&value[..1], &changed].concat()).unwrap();
        },
        "the stored transactions are not those",
    ),
    (
        "a transaction that is not in the block that it names",
        |db, batch| {
            let (key, _) = transaction_block(db);
            batch.put_raw(Family::Transactions, &key, &[1, 1]).unwrap();
        },
        "transactions",
    ),
    (
        "a transaction of a ledger that is not stored",
        |db, batch| {
            let (_, value) = row(db, Family::Transactions);
            batch.put(Family::Transactions, &TransactionKey(position(LEFT_OUT)), value).unwrap();
        },
        "belongs to no ledger",
    ),
    ("no ledger", |db, batch| remove(db, batch, Family::Ledgers), "covered range, but not stored"),
    (
        "a ledger that is not covered",
        |db, batch| {
            let (_, value) = row(db, Family::Ledgers);
            batch.put(Family::Ledgers, &LedgerKey(LedgerSeq(LEFT_OUT)), value).unwrap();
        },
        "in no covered range",
    ),
    (
        "another hash",
        |db, batch| {
            change_ledger(db, batch, |row| row.hash = Default::default());
        },
        "links to",
    ),
    (
        "another digest",
        |db, batch| change_ledger(db, batch, |row| row.digest = Digest::default()),
        "not the sum of ledgers",
    ),
    (
        "other ids",
        |db, batch| change_ledger(db, batch, |row| row.first_event.0 += 1),
        "and those before it end at",
    ),
    (
        "other kinds of events",
        |db, batch| {
            change_ledger(db, batch, |row| {
                row.counts.fee_events -= 1;
                row.counts.classic_events += 1;
            });
        },
        "the number of events of each kind differs",
    ),
    (
        "other counts of transactions",
        |db, batch| change_ledger(db, batch, |row| row.counts.failed += 1),
        "not the ledger that its row describes",
    ),
    (
        "other settings",
        |db, batch| change_ledger(db, batch, |row| row.indexed_as.fee_events = false),
        "its settings leave out",
    ),
    (
        "another close time",
        |db, batch| change_ledger(db, batch, |row| row.close_time = CloseTime::Seconds(1)),
        "close time",
    ),
    (
        "a range with another digest",
        |db, batch| {
            let (key, value) = row(db, Family::Ranges);
            let first = LedgerKey::decode(&key).unwrap().0;
            let mut range = CoveredRange::decode(first, &value).unwrap();
            range.sums.digest += Digest::from([1; 32]);
            batch.put_raw(Family::Ranges, &key, &range.encode()).unwrap();
        },
        "not the sum of ledgers",
    ),
    ("no range", |db, batch| remove(db, batch, Family::Ranges), "in no covered range"),
    (
        "a run that ends elsewhere",
        |db, batch| {
            let (key, value) = rows(db, Family::Runs).swap_remove(0);
            let mut run = IngestRun::decode(&value).unwrap();
            run.end_event.0 += 1;
            batch.put_raw(Family::Runs, &key, &run.encode()).unwrap();
        },
        "its events begin at",
    ),
    (
        "runs that share a ledger",
        |db, batch| {
            let (_, value) = rows(db, Family::Runs).swap_remove(0);
            let mut run = IngestRun::decode(&value).unwrap();
            let last = rows(db, Family::Runs).len() as u32;
            let end =
                IngestRun::decode(&rows(db, Family::Runs).pop().unwrap().1).unwrap().end_event;
            (run.first_event, run.end_event) = (end, end);
            batch.put(Family::Runs, &RunKey(last), run.encode()).unwrap();
        },
        "share ledgers",
    ),
    (
        "something that is never written",
        |_, batch| batch.put_raw(Family::Meta, b"colour", b"blue").unwrap(),
        "never writes a row with this key",
    ),
    ("an event too many", |db, batch| change_totals(db, batch, |it| it.events += 1), "events, and"),
    (
        "a transaction too few",
        |db, batch| change_totals(db, batch, |it| it.transactions -= 1),
        "transactions, and",
    ),
    (
        "the close time of another ledger",
        |db, batch| change_totals(db, batch, |it| it.latest_close_time = 7),
        "close time of the newest ledger",
    ),
    (
        "the raw form of another ledger",
        |db, batch| {
            let raw = rows(db, Family::LedgerXdr);
            batch.put_raw(Family::LedgerXdr, &raw[3].0, &raw[4].1).unwrap();
        },
        "not the ledger that its row describes",
    ),
    (
        "a raw form with another header",
        |db, batch| {
            let (key, value) = row(db, Family::LedgerXdr);
            let mut xdr = raw_form::unpack(&value).unwrap();
            // A byte of the transaction set hash, which only the header's hash covers.
            xdr[8 + 32 + 4 + 32 + 5] ^= 1;
            let value = raw_form::pack(&xdr, None).unwrap();
            batch.put_raw(Family::LedgerXdr, &key, &value).unwrap();
        },
        "hashes to",
    ),
    (
        "the raw form of a ledger that is not stored",
        |db, batch| {
            let (_, value) = row(db, Family::LedgerXdr);
            batch.put(Family::LedgerXdr, &LedgerKey(LedgerSeq(LEFT_OUT)), value).unwrap();
        },
        "belongs to no ledger",
    ),
];
