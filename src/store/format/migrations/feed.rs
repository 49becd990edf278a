//! 2.2 to 2.3: converts each program's position in the former program queue to a place in the feed.

use std::collections::HashMap;

use serde_json::Value;

use super::super::super::columns::{Family, Key, LedgerKey};
use super::super::super::database::{Database, corrupt};
use super::super::super::feed::{self, Consumer};
use super::super::super::programs::{consumer_name, needs};
use super::super::super::{StoreError, bytes::Malformed, load_coverage};
use super::super::FormatVersion;
use super::Migration;
use crate::domain::ProgramId;

pub(super) const MIGRATION: Migration = Migration {
    from: FormatVersion { major: 2, minor: 2 },
    to: FormatVersion { major: 2, minor: 3 },
    run: |database, _| run(database),
};

/// Member of a program's progress, and of the partly processed ledger in it: a number in the queue.
const NUMBER: &str = "queue";
const PART: &str = "part";
/// Member that replaces [`NUMBER`] in the partly processed ledger: its place in the feed.
const PLACE: &str = "place";

fn run(database: &Database) -> Result<(), StoreError> {
    let queued = Queued::load(database)?;
    let mut batch = database.batch();
    let mut consumers = Vec::new();
    database.scan(Family::Programs, |key, _| {
        let damaged = || corrupt(Family::Programs, key)(Malformed);
        let id = key.try_into().map(u32::from_be_bytes).map_err(|_| damaged())?;
        let Some(progress) = database.get(Family::ProgramProgress, key)? else {
            return Err(damaged());
        };
        let damaged = || corrupt(Family::ProgramProgress, key)(Malformed);
        let mut progress: Value = serde_json::from_slice(&progress).map_err(|_| damaged())?;
        // Without this member the row was migrated by an earlier attempt: the migration is one
        // write.
        let Some(number) = progress[NUMBER].as_u64() else { return Ok(()) };
        let members = progress.as_object_mut().ok_or_else(damaged)?;
        members.remove(NUMBER);
        if let Some(part) = members.get_mut(PART).and_then(Value::as_object_mut) {
            let number = part.remove(NUMBER).as_ref().and_then(Value::as_u64);
            let place = number.and_then(|number| queued.places.get(&number)).copied();
            match place {
                Some(place) => drop(part.insert(PLACE.to_owned(), place.into())),
                // The ledger is not in the queue: the program processes it from its beginning.
                None => drop(members.remove(PART)),
            }
        }
        let row = serde_json::to_vec(&progress).map_err(|_| damaged())?;
        batch.put_raw(Family::ProgramProgress, key, &row)?;
        let consumer = Consumer::new(needs(), queued.place_before_next_queued(number));
        consumers.push((consumer_name(ProgramId(id)), Some(consumer)));
        Ok(())
    })?;
    feed::put(&mut batch, &consumers)?;
    batch.delete_range(Family::ProgramQueue, &[0; 8], &[u8::MAX; 9])?;
    database.write_synced(batch)
}

/// Program queue of format 2.2.
struct Queued {
    /// Queued numbers, ascending.
    numbers: Vec<u64>,
    /// Places in the feed of their ledgers.
    places: HashMap<u64, u64>,
    /// Place of the ledger that was ingested last.
    last: u64,
}

impl Queued {
    fn load(database: &Database) -> Result<Self, StoreError> {
        let coverage = load_coverage(database)?;
        let (mut numbers, mut places) = (Vec::new(), HashMap::new());
        database.scan(Family::ProgramQueue, |key, value| {
            let damaged = || corrupt(Family::ProgramQueue, key)(Malformed);
            let number = key.try_into().map(u64::from_be_bytes).map_err(|_| damaged())?;
            let ledger = LedgerKey::decode(value).ok_or_else(damaged)?.0;
            numbers.push(number);
            places.insert(number, coverage.place_of(ledger).ok_or_else(damaged)?);
            Ok(())
        })?;
        Ok(Self { numbers, places, last: coverage.last_place() })
    }

    /// Returns the place before that of the first ledger queued after `number`; the program has
    /// seen nothing after it.
    fn place_before_next_queued(&self, number: u64) -> u64 {
        let next = self.numbers.partition_point(|queued| *queued <= number);
        let place = self.numbers.get(next).and_then(|next| self.places.get(next));
        place.map_or(self.last, |place| place - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::super::FORMAT_ROW;
    use super::*;
    use crate::decode::decode;
    use crate::domain::{LedgerSeq, Network};
    use crate::{Durability, IndexOptions, PreparedLedger, RAW_DIRECTORY, Store, program_consumer};
    use orrery_sandbox::network::{Sandbox, SandboxConfig};

    fn network() -> Network {
        Network::from_name_or_passphrase("local")
    }

    /// Stores ledgers 2 to 13, the last four before the others.
    fn fill(directory: &Path) {
        let config = SandboxConfig {
            network: network(),
            seed: 11,
            start_time: 1_750_000_000,
            close_interval: 5,
            transactions_per_ledger: 0..=1,
        };
        let mut sandbox = Sandbox::new(config).unwrap();
        let ledgers: Vec<_> = (2..=13).map(|_| sandbox.next_ledger().unwrap()).collect();
        let store = Store::open(directory, Some(&network())).unwrap();
        for xdr in ledgers[8..].iter().chain(&ledgers[..8]) {
            let view = decode(xdr, network().id()).unwrap();
            let prepared = PreparedLedger::new(&view, &IndexOptions::default()).unwrap();
            store.commit(prepared, Durability::Synced).unwrap();
        }
    }

    /// Turns the store into one of format 2.2 with these rows in the queue. A program is its id,
    /// the queue number up to which it has got, and the number of a partly processed ledger, if
    /// any.
    fn make_old(directory: &Path, queue: &[(u64, u32)], programs: &[(u32, u64, Option<u64>)]) {
        let database = Database::open(&directory.join(RAW_DIRECTORY)).unwrap();
        let mut batch = database.batch();
        batch.put_raw(Family::Meta, FORMAT_ROW, &[0, 2, 0, 2]).unwrap();
        for (number, ledger) in queue {
            let ledger = LedgerKey(LedgerSeq(*ledger)).encode();
            batch.put_raw(Family::ProgramQueue, &number.to_be_bytes(), &ledger).unwrap();
        }
        for (id, number, part) in programs {
            let part = part.map(|part| format!(",\"part\":{{\"queue\":{part},\"from\":3}}"));
            let progress = format!(
                "{{\"queue\":{number},\"log\":0,\"executions\":5,\"row_bytes\":9,\
                 \"errors_in_a_row\":0{}}}",
                part.unwrap_or_default()
            );
            batch.put_raw(Family::Programs, &id.to_be_bytes(), b"{}").unwrap();
            batch.put_raw(Family::ProgramProgress, &id.to_be_bytes(), progress.as_bytes()).unwrap();
            let name = program_consumer(ProgramId(*id));
            batch.delete_raw(Family::Consumers, name.as_bytes()).unwrap();
        }
        database.write_synced(batch).unwrap();
    }

    #[test]
    fn programs_go_on_where_they_were() {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path());
        // Ledgers 6 to 9, the last four ingested, are still queued.
        let queue = [(500, 6), (520, 7), (540, 8), (560, 9)];
        let programs = [(1, 499, None), (2, 530, Some(540)), (3, 560, None), (4, 900, None)];
        make_old(directory.path(), &queue, &programs);
        // The second round checks that the migration is idempotent.
        for _ in 0..2 {
            let store = Store::open(directory.path(), None).unwrap();
            let place =
                |id| store.consumer(&program_consumer(ProgramId(id))).map(|found| found.place);
            assert_eq!([1, 2, 3, 4].map(place), [Some(8), Some(10), Some(12), Some(12)]);
            let next: Vec<u32> = store.fed_after(8, 9).iter().map(|fed| fed.ledger.0).collect();
            assert_eq!(next, [6, 7, 8, 9]);
            let progress = store.program_progress(ProgramId(2)).unwrap().unwrap();
            let progress: Value = serde_json::from_slice(&progress).unwrap();
            assert_eq!(progress["part"], serde_json::json!({ "place": 11, "from": 3 }));
            assert!(progress.get("queue").is_none() && progress["executions"] == 5, "{progress}");
            drop(store);
            let database = Database::open(&directory.path().join(RAW_DIRECTORY)).unwrap();
            database.scan(Family::ProgramQueue, |_, _| panic!("the queue is empty")).unwrap();
            let mut batch = database.batch();
            batch.put_raw(Family::Meta, FORMAT_ROW, &[0, 2, 0, 2]).unwrap();
            database.write_synced(batch).unwrap();
        }
    }
}
