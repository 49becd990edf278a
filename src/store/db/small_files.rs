//! Merges small files of families whose keys rise with the ledgers.
//!
//! RocksDB moves such files from level to level as they are, because they overlap nothing, and so never
//! makes one of several: after a year, each flush would still be a file of its own in a dozen families.
//! A reader finds more and more of them closed, and a start reads a longer and longer list.

use std::collections::BTreeMap;

use rocksdb::{BottommostLevelCompaction, CompactOptions, DB, LiveFile};

use super::database::Database;
use crate::encoding::error::StoreError;

/// Size in bytes below which a file is small: half of what RocksDB makes of large ones.
const SMALL: u64 = 32 << 20;
/// Number of neighbouring small files that are worth merging, and the number and the size of fewer that
/// are.
const MANY: usize = 16;
const FEW: usize = 4;
const LARGE: u64 = 128 << 20;
/// Size in bytes of files that are merged at once, so that it takes seconds.
const AT_ONCE: u64 = 256 << 20;

/// A file of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    /// First and last key.
    first: Vec<u8>,
    last: Vec<u8>,
    level: i32,
    bytes: u64,
}

impl Database {
    /// Merges some of the small files of each family, and returns the number of files that were. Writes and
    /// reads go on meanwhile.
    pub(crate) fn merge_small_files(&self) -> Result<usize, StoreError> {
        let mut families: BTreeMap<String, Vec<File>> = BTreeMap::new();
        for file in self.rocksdb().live_files()? {
            let LiveFile { column_family_name, start_key, end_key, level, size, .. } = file;
            if let (Some(first), Some(last)) = (start_key, end_key) {
                let file = File { first, last, level, bytes: size as u64 };
                families.entry(column_family_name).or_default().push(file);
            }
        }
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        let mut merged = 0;
        for (family, files) in families {
            let files = worth_merging(files);
            if let (Some(from), Some(to)) = (files.first(), files.last())
                && self.has_family(&family)
            {
                let handle = self.consumer_handle(&family)?;
                let (from, to) = (Some(&from.first), Some(&to.last));
                DB::compact_range_cf_opt(self.rocksdb(), handle, from, to, &options);
                merged += files.len();
            }
        }
        Ok(merged)
    }
}

/// Returns neighbouring small files of a family that are worth merging; none when there are no such files.
fn worth_merging(mut files: Vec<File>) -> Vec<File> {
    files.sort_by(|a, b| (&a.first, a.level).cmp(&(&b.first, b.level)));
    let mut found: Vec<Vec<File>> = vec![Vec::new()];
    // The greatest key of the files before.
    let mut up_to: Option<Vec<u8>> = None;
    for (number, file) in files.iter().enumerate() {
        let overlaps = up_to.as_ref().is_some_and(|up_to| *up_to >= file.first)
            || files.get(number + 1).is_some_and(|next| next.first <= file.last);
        up_to = up_to.max(Some(file.last.clone()));
        // Files of level 0 are not settled yet.
        if overlaps || file.level == 0 || file.bytes >= SMALL {
            found.push(Vec::new());
            continue;
        }
        let goes_on = found.last().is_some_and(|run| {
            let bytes = run.iter().map(|it| it.bytes).sum::<u64>() + file.bytes;
            run.first().is_none_or(|it| it.level == file.level) && bytes <= AT_ONCE
        });
        if !goes_on {
            found.push(Vec::new());
        }
        if let Some(run) = found.last_mut() {
            run.push(file.clone());
        }
    }
    found.into_iter().map(of_similar_size).find(|run| is_worth(run)).unwrap_or_default()
}

fn is_worth(run: &[File]) -> bool {
    run.len() >= MANY || run.len() >= FEW && run.iter().map(|file| file.bytes).sum::<u64>() >= LARGE
}

/// Leaves out files at both ends that are larger than twice all others: they would be written again and again
/// for the few bytes that are new.
fn of_similar_size(mut run: Vec<File>) -> Vec<File> {
    loop {
        let all: u64 = run.iter().map(|file| file.bytes).sum();
        let is_too_large =
            |file: Option<&File>| file.is_some_and(|it| it.bytes > 2 * (all - it.bytes));
        if is_too_large(run.first()) {
            run.remove(0);
        } else if is_too_large(run.last()) {
            run.pop();
        } else {
            return run;
        }
    }
}

#[cfg(test)]
mod tests {
    use orrery_testkit::wait::wait_until;

    use super::*;
    use crate::encoding::columns::Family;

    fn file(first: u8, last: u8, level: i32, bytes: u64) -> File {
        File { first: vec![first], last: vec![last], level, bytes }
    }

    /// Files of one key each.
    fn row(keys: std::ops::Range<u8>, bytes: u64) -> Vec<File> {
        keys.map(|key| file(key, key, 6, bytes)).collect()
    }

    #[test]
    fn neighbours_that_overlap_nothing_are_merged() {
        assert_eq!(worth_merging(row(0..16, 10)), row(0..16, 10));
        assert_eq!(worth_merging(row(0..15, 10)), []);
        assert_eq!(worth_merging(Vec::new()), []);
        let in_any_order = row(0..20, 10).into_iter().rev().collect();
        assert_eq!(worth_merging(in_any_order), row(0..20, 10));
        // Another level has keys between them, or the same keys.
        let with = |other: File| worth_merging([row(0..20, 10), vec![other]].concat());
        assert_eq!(with(file(5, 5, 5, 10)), []);
        assert_eq!(with(file(0, 19, 0, 10)), []);
        assert_eq!(with(file(2, 3, 0, 10)), row(4..20, 10));
        assert_eq!(with(file(20, 25, 0, 10)), row(0..20, 10));
        // A large file between them.
        let large = [row(0..10, 10), row(10..11, SMALL), row(11..21, 10)].concat();
        assert_eq!(worth_merging(large), []);
        assert_eq!(
            worth_merging(row(0..20, 10).into_iter().map(|it| File { level: 0, ..it }).collect()),
            []
        );
    }

    #[test]
    fn what_is_merged_at_once_is_bounded() {
        assert_eq!(worth_merging(row(0..200, 16 << 20)), row(0..16, 16 << 20));
        assert_eq!(worth_merging(row(0..6, SMALL - 1)), row(0..6, SMALL - 1));
        assert_eq!(worth_merging(row(0..3, SMALL - 1)), []);
    }

    #[test]
    fn large_files_are_not_written_again_for_small_ones() {
        let after = |bytes| [row(0..1, bytes), row(1..17, 10)].concat();
        assert_eq!(worth_merging(after(320)), after(320));
        assert_eq!(worth_merging(after(321)), row(1..17, 10));
        let before = [row(0..16, 10), row(16..17, 321)].concat();
        assert_eq!(worth_merging(before), row(0..16, 10));
        assert_eq!(worth_merging(row(0..1, 5)), []);
    }

    #[test]
    fn merged_files_have_the_same_rows() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let files = |family: Family| {
            let files = database.rocksdb().live_files().unwrap();
            files.iter().filter(|file| file.column_family_name == family.name()).count()
        };
        for number in 0..40u32 {
            let mut batch = database.batch();
            batch.put_raw(Family::LedgerXdr, &number.to_be_bytes(), &[7; 1000]).unwrap();
            batch.put_raw(Family::EventsByContract, &[number as u8 % 3], &[1]).unwrap();
            database.write_synced(batch).unwrap();
            database.flush().unwrap();
        }
        let busy = |name| database.rocksdb().property_int_value(name).unwrap() != Some(0);
        wait_until("no compaction runs or is due", || {
            !busy("rocksdb.num-running-compactions") && !busy("rocksdb.compaction-pending")
        });
        let rows = || {
            let mut rows = Vec::new();
            database
                .scan(Family::LedgerXdr, |key, value| {
                    rows.push((key.to_vec(), value.to_vec()));
                    Ok(())
                })
                .unwrap();
            rows
        };
        let (before, files_before) = (rows(), files(Family::LedgerXdr));
        assert!(files_before > MANY, "{files_before} files: RocksDB merges them itself");
        let merged = database.merge_small_files().unwrap();
        assert!(merged >= MANY, "{merged}");
        assert!(files(Family::LedgerXdr) <= files_before - merged + 1);
        assert_eq!((rows(), before.len()), (before.clone(), 40));
        assert_eq!(database.merge_small_files().unwrap(), 0);
    }
}
