//! How much RocksDB has written for each family, by its own statistics.

use rocksdb::DB;
use rocksdb::properties::CFSTATS_NO_FILE_HISTOGRAM;

use super::database::Database;
use crate::encoding::error::StoreError;

const GIBIBYTE: f64 = (1u64 << 30) as f64;

/// What was written to the files of a family since the store was opened. RocksDB tells flushes in
/// mebibytes, and compactions in steps of ten.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FamilyWrites {
    /// Bytes written by flushes: every row once, unless another replaced it in memory.
    pub flushed: u64,
    /// Bytes written by compactions.
    pub compacted: u64,
    /// Bytes that compactions moved to another level without writing them.
    pub moved: u64,
    /// Processor time of flushes and compactions, in seconds.
    pub seconds: f64,
    /// Number of files that the family has now.
    pub files: u64,
}

impl Database {
    /// Returns what was written for each family, by name.
    pub(crate) fn writes_of_families(&self) -> Result<Vec<(String, FamilyWrites)>, StoreError> {
        let writes = self.all()?.into_iter().map(|(name, handle)| {
            let told = DB::property_value_cf(self.rocksdb(), handle, CFSTATS_NO_FILE_HISTOGRAM)?;
            let told = told.unwrap_or_default();
            let writes = FamilyWrites::read(&told).ok_or_else(|| {
                StoreError::Other(format!(
                    "RocksDB's statistics of {name} are not understood: {told}"
                ))
            })?;
            Ok((name.to_owned(), writes))
        });
        writes.collect()
    }
}

impl FamilyWrites {
    /// Reads the statistics of a family; `None` when they do not have the expected form.
    fn read(told: &str) -> Option<Self> {
        let after = |start: &str| told.lines().find_map(|line| line.trim().strip_prefix(start));
        let first = |text: &str| text.split([' ', ',']).next()?.parse::<f64>().ok();
        let bytes = |gibibytes: f64| (gibibytes * GIBIBYTE) as u64;
        let flushed = bytes(first(after("Flush(GB): cumulative ")?)?);
        let written = bytes(first(after("Cumulative compaction: ")?)?);
        // Name, files, size and its unit, score; then the columns of the head after `Score`.
        let sum: Vec<&str> = after("Sum ")?.split_whitespace().collect();
        let number = |column: usize| sum.get(column)?.parse::<f64>().ok();
        // Flushes are counted as compactions into the level 0.
        let compacted = written.saturating_sub(flushed);
        let files = sum.first()?.split('/').next()?.parse().ok()?;
        Some(Self { flushed, compacted, moved: bytes(number(10)?), seconds: number(15)?, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::columns::Family;

    #[test]
    fn what_flushes_and_compactions_write_is_told_by_family() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        for _ in 0..3 {
            let mut batch = database.batch();
            for number in 0..16 * 1024u32 {
                batch.put_raw(Family::LedgerXdr, &number.to_be_bytes(), &[7; 1024]).unwrap();
            }
            database.write_synced(batch).unwrap();
            database.flush().unwrap();
        }
        database.compact_all().unwrap();
        let writes = database.writes_of_families().unwrap();
        let of = |wanted: Family| {
            let found = writes.iter().find(|(name, _)| name == wanted.name());
            found.unwrap().1
        };
        let (written, others) = (of(Family::LedgerXdr), of(Family::Events));
        // Three times 16 MiB, of which the compaction keeps the last.
        assert!((48 << 20..56 << 20).contains(&written.flushed), "{written:?}");
        assert!((4 << 20..32 << 20).contains(&written.compacted), "{written:?}");
        assert!(written.seconds > 0.0 && written.files == 1, "{written:?}");
        assert_eq!(others, FamilyWrites::default());
    }
}
