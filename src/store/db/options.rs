//! Options of RocksDB, for a whole database and for each column family.

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompactionStyle, DBCompressionType, Env,
    Error, InfoLogger, LogLevel, Options, SliceTransform, UniversalCompactOptions,
};

use super::tuning::Tuning;
use crate::encoding::columns::{Family, SharedFamily};
use crate::indexes::tx_by_hash::HashTag;

/// Capacity of the block cache, which holds decompressed blocks, indexes and filters.
const BLOCK_CACHE_BYTES: usize = 64 << 20;
/// Makes the cache estimate the size of its entries itself.
const CHARGE_ESTIMATED_BY_CACHE: usize = 0;
/// Size of the memtables of all families at which they are flushed.
const WRITE_BUFFER_BYTES: usize = 64 << 20;
/// Size of the WAL at which the memtables are flushed. A start after a crash replays it, which takes
/// some 20 ms per megabyte. If it is smaller, dense ledgers are flushed four at a time, and
/// compacted more often.
const LOG_BYTES: u64 = 32 << 20;
/// Maximum number of open files, far below the usual limit of 1,024 descriptors.
const MAX_OPEN_FILES: i32 = 512;
/// Maximum size of a file of RocksDB's own log.
const LOG_FILE_BYTES: usize = 1 << 20;
/// Number of these files that are kept.
const LOG_FILES: usize = 4;
/// Number of files in level 0 at which they are compacted into level 1. With fewer, an import
/// compacts the same rows again and again; with more, a read has to look into each of them.
const NEW_FILES_BEFORE_COMPACTION: i32 = 8;
/// Number of background threads: one for flushes, the others for compactions. With a single
/// compaction at a time, the files of small families pile up during a long one until writes stop.
const BACKGROUND_JOBS: i32 = 4;
/// Size of the first level below level 0 in a family with small rows that is no index. Files of level 0
/// are compacted together with that whole level: with RocksDB's default of 256 MB, a hundred million rows
/// would be rewritten after every eighth flush.
const FIRST_LEVEL_BYTES: u64 = 16 << 20;
/// Size of a file in that level; files in each further level are twice as large. Small files overlap
/// fewer files of the next level, but each takes one of the [`MAX_OPEN_FILES`].
const FIRST_LEVEL_FILE_BYTES: u64 = 8 << 20;
/// Smallest and largest number of sorted runs of an index that are merged into one. Merges begin at
/// [`NEW_FILES_BEFORE_COMPACTION`] runs; if no four of them are similar, at three more. In levels, each of
/// which is merged into the next, ten times larger one, index rows were written some seven times by an
/// import of 15 million dense events. In runs it is five times, and pages take no longer. Merging six at a
/// time spares little more.
const MERGED_RUNS: (i32, i32) = (4, 16);
/// By how many percent a run may be larger than all newer ones together and still be merged with them.
const SIMILAR_PERCENT: i32 = 10;
/// Size of all newer runs, in percent of the oldest one, at which all are merged even if no sizes are
/// similar. With RocksDB's default of 200, an index that only grows is rewritten more often. One that also
/// loses rows takes some twice the place of its rows with either.
const MOST_NEWER_PERCENT: i32 = 1_000;
/// Numbers of runs of an index at which writes are slowed down and stop. A merge of large runs takes
/// minutes, in which further ones are added and merged beside it.
const MOST_RUNS: (i32, i32) = (48, 64);
/// Age in seconds at which a file that no older file overlaps may be compacted alone after a
/// snapshot was released (`bottommost_file_compaction_delay` in RocksDB's `advanced_options.h`).
/// RocksDB does that to drop rows that only the snapshot needed, but to all files that were flushed
/// before, even if there is nothing to drop. Without a delay, each flushed file is rewritten as soon
/// as something was read. After a day, nearly all files have been compacted with others.
const REWRITE_MIN_AGE_SECONDS: u32 = 24 * 60 * 60;

/// Number of bytes of keys in a consumer's family for which there is a Bloom filter: the build,
/// and a hash or an address.
pub(crate) const CONSUMER_PREFIX: usize = 4 + 32;
/// Block size of families with event blocks and transactions.
const RECORD_BLOCK_BYTES: usize = 4 << 10;
/// Bits per hash or prefix in the Bloom filter of a file: one in a hundred files is read in vain
/// (RocksDB wiki, "RocksDB Bloom Filter").
const HASH_FILTER_BITS: f64 = 10.0;
/// Block size of indexes.
const INDEX_BLOCK_BYTES: usize = 8 << 10;
/// Block size of consumers' families.
const CONSUMER_BLOCK_BYTES: usize = 4 << 10;

/// Creates the block cache.
pub(crate) fn cache() -> Cache {
    Cache::new_hyper_clock_cache(BLOCK_CACHE_BYTES, CHARGE_ESTIMATED_BY_CACHE)
}

/// Returns the options of a database, with those of `tuning` on top.
///
/// # Errors
/// When RocksDB cannot create its environment, or does not know an option of `tuning`.
pub(crate) fn database(tuning: &Tuning) -> Result<Options, Error> {
    let mut options = Options::default();
    // Compactions give way to everything else (nice value 19). If they fall behind, RocksDB slows
    // writes down, and they get the processor time.
    let mut environment = Env::new()?;
    environment.lower_thread_pool_cpu_priority();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // Families are flushed together, so that a crash loses writes that bypassed the WAL as a whole.
    options.set_atomic_flush(true);
    options.set_db_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_max_total_wal_size(LOG_BYTES);
    options.set_max_open_files(MAX_OPEN_FILES);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    options.set_bytes_per_sync(1 << 20);
    options.set_max_log_file_size(LOG_FILE_BYTES);
    options.set_keep_log_file_num(LOG_FILES);
    // Reading the statistics of every file at every start has no use here.
    options.set_skip_stats_update_on_db_open(true);
    if !tuning.database.is_empty() {
        options = options.get_options_from_string(&tuning.database)?;
    }
    // Last, because options that were made from others do not keep the environment of these alive.
    options.set_env(&environment);
    Ok(options)
}

/// Returns the options of a database that is opened read-only: RocksDB writes no log of its own.
///
/// # Errors
/// As [`database`].
pub(crate) fn read_only() -> Result<Options, Error> {
    let mut options = database(&Tuning::default())?;
    options.create_if_missing(false);
    options.create_missing_column_families(false);
    options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Fatal, |_, _| {}));
    Ok(options)
}

/// Returns the descriptor of a column family with this name, whose blocks are kept in `cache`, with the
/// options of `tuning` on top. `family` is `None` for a family whose content is not known here.
///
/// # Errors
/// When RocksDB does not know an option.
pub(crate) fn descriptor(
    name: &str,
    family: Option<Family>,
    cache: &Cache,
    tuning: &Tuning,
) -> Result<ColumnFamilyDescriptor, Error> {
    let mut options = options_of(family, cache)?;
    let tuned = tuning.of_family(name);
    if !tuned.is_empty() {
        options = options.get_options_from_string(tuned)?;
    }
    Ok(ColumnFamilyDescriptor::new(name, options))
}

fn options_of(family: Option<Family>, cache: &Cache) -> Result<Options, Error> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_format_version(6);
    // The only option that has no setter of its own.
    let delay = format!("bottommost_file_compaction_delay={REWRITE_MIN_AGE_SECONDS}");
    let mut options = Options::default().get_options_from_string(delay)?;
    set_rows(family, &mut options, &mut table);
    set_prefix_filter(family, &mut options, &mut table);
    options.set_level_zero_file_num_compaction_trigger(NEW_FILES_BEFORE_COMPACTION);
    options.set_block_based_table_factory(&table);
    Ok(options)
}

/// Sets sizes and compression for the rows of a family.
fn set_rows(family: Option<Family>, options: &mut Options, table: &mut BlockBasedOptions) {
    match family {
        Some(
            Family::Meta
            | Family::Ranges
            | Family::Runs
            | Family::Ledgers
            | Family::Consumers
            | Family::Listings
            | Family::Shared(SharedFamily { compressed: false, .. }),
        ) => {
            options.set_compression_type(DBCompressionType::None);
            options.set_write_buffer_size(8 << 20);
        }
        Some(Family::LedgerXdr) => {
            // Values are zstd frames already, and far larger than a block.
            options.set_compression_type(DBCompressionType::None);
            options.set_write_buffer_size(32 << 20);
        }
        Some(Family::Events | Family::Transactions) => {
            // Values are already compressed.
            table.set_block_size(RECORD_BLOCK_BYTES);
            options.set_compression_type(DBCompressionType::None);
            options.set_write_buffer_size(32 << 20);
        }
        Some(
            Family::EventsByContract
            | Family::EventsByTopic
            | Family::TxByHash
            | Family::TxByContract
            | Family::Entries
            | Family::Index(_),
        ) => {
            set_small_rows(options);
            set_runs(options);
            table.set_block_size(INDEX_BLOCK_BYTES);
            set_compression(options);
        }
        Some(
            Family::Evicted
            | Family::Settings
            | Family::Conditions
            | Family::KnownEntries
            | Family::Shared(SharedFamily { compressed: true, .. }),
        ) => {
            set_small_rows(options);
            table.set_block_size(INDEX_BLOCK_BYTES);
            set_compression(options);
        }
        None => {
            // Rows are looked up one by one, in small blocks.
            set_small_rows(options);
            table.set_block_size(CONSUMER_BLOCK_BYTES);
            set_compression(options);
        }
    }
}

/// Sets a filter for the prefixes of keys.
fn set_prefix_filter(family: Option<Family>, options: &mut Options, table: &mut BlockBasedOptions) {
    // The keys with one prefix are in few files; without a filter, all files would be searched.
    let prefix = match family {
        Some(Family::TxByHash) => Some(HashTag::LEN),
        Some(_) => None,
        None => Some(CONSUMER_PREFIX),
    };
    if let Some(prefix) = prefix {
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(prefix));
        table.set_bloom_filter(HASH_FILTER_BITS, false);
        table.set_whole_key_filtering(false);
    }
}

/// Sets the buffers and levels of a family with many small rows.
fn set_small_rows(options: &mut Options) {
    options.set_write_buffer_size(16 << 20);
    options.set_max_bytes_for_level_base(FIRST_LEVEL_BYTES);
    options.set_target_file_size_base(FIRST_LEVEL_FILE_BYTES);
    options.set_target_file_size_multiplier(2);
}

/// Keeps the rows of an index, whose keys are random, in sorted runs. Those of similar size are merged
/// (RocksDB wiki, "Universal Compaction").
fn set_runs(options: &mut Options) {
    let mut runs = UniversalCompactOptions::default();
    let (least, most) = MERGED_RUNS;
    runs.set_min_merge_width(least);
    runs.set_max_merge_width(most);
    runs.set_size_ratio(SIMILAR_PERCENT);
    runs.set_max_size_amplification_percent(MOST_NEWER_PERCENT);
    options.set_compaction_style(DBCompactionStyle::Universal);
    options.set_universal_compaction_options(&runs);
    let (slow, stop) = MOST_RUNS;
    options.set_level_zero_slowdown_writes_trigger(slow);
    options.set_level_zero_stop_writes_trigger(stop);
}

/// Compresses files lightly as long as they are soon compacted, and the last level well.
fn set_compression(options: &mut Options) {
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_bottommost_compression_type(DBCompressionType::Zstd);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use orrery_testkit::wait::wait_until;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::db::database::Database;
    use crate::indexes::events_by_address;

    const INDEX: Family = Family::Index(events_by_address::FAMILY);
    /// Rows of a flush; each has 32 bytes that cannot be compressed.
    const FLUSHED_ROWS: usize = 2_000;

    fn open(directory: &Path, style: &str) -> Database {
        let families = vec![(INDEX.name().to_owned(), style.to_owned())];
        let tuning = Tuning { families, ..Tuning::default() };
        Database::open_with(directory, &[INDEX], &[], &tuning, None).unwrap()
    }

    /// Flushes new rows of random keys, and removes those of `keys` beyond `most`, the oldest first.
    fn flush_rows(
        database: &Database,
        random: &mut ChaCha8Rng,
        keys: &mut Vec<[u8; 16]>,
        most: usize,
    ) {
        let mut batch = database.batch();
        for _ in 0..FLUSHED_ROWS {
            let key: [u8; 16] = random.random();
            batch.put_raw(INDEX, &key, &key).unwrap();
            keys.push(key);
        }
        for key in keys.drain(..keys.len().saturating_sub(most)) {
            batch.delete_raw(INDEX, &key).unwrap();
        }
        database.write_synced(batch).unwrap();
        database.flush().unwrap();
    }

    /// Returns the number of sorted runs: files of level 0, and other levels.
    fn runs(database: &Database) -> usize {
        let mut runs = BTreeSet::new();
        for file in database.rocksdb().live_files().unwrap() {
            if file.column_family_name == INDEX.name() {
                runs.insert((file.level, if file.level == 0 { file.name } else { String::new() }));
            }
        }
        runs.len()
    }

    fn wait_for_merges(database: &Database) {
        let handle = database.handle(INDEX).unwrap();
        let running = "rocksdb.num-running-compactions";
        wait_until("as many runs are merged as an index may have", || {
            let running = database.rocksdb().property_int_value_cf(handle, running).unwrap();
            running == Some(0)
                && runs(database) < (NEW_FILES_BEFORE_COMPACTION + MERGED_RUNS.0) as usize
        });
    }

    fn assert_rows(database: &Database, keys: &[[u8; 16]]) {
        let (mut found, expected) = (BTreeSet::new(), keys.iter().copied().collect());
        database
            .scan(INDEX, |key, value| {
                assert_eq!(key, value);
                found.insert(<[u8; 16]>::try_from(key).unwrap());
                Ok(())
            })
            .unwrap();
        assert!(found == expected, "{} rows, not {}", found.len(), keys.len());
    }

    /// Directories of earlier versions have indexes in levels, and may be opened by one again.
    #[test]
    fn an_index_in_levels_continues_as_runs_and_as_levels_again() {
        let directory = tempfile::tempdir().unwrap();
        let (mut random, mut keys) = (ChaCha8Rng::seed_from_u64(1), Vec::new());
        let levels = "compaction_style=kCompactionStyleLevel;level0_slowdown_writes_trigger=20;\
            level0_stop_writes_trigger=36";
        for style in [levels, "", levels, ""] {
            let database = open(directory.path(), style);
            assert_rows(&database, &keys);
            for _ in 0..20 {
                flush_rows(&database, &mut random, &mut keys, usize::MAX);
            }
            if style.is_empty() {
                wait_for_merges(&database);
            }
            assert_rows(&database, &keys);
            keys.shuffle(&mut random);
            let handle = database.handle(INDEX).unwrap();
            for key in &keys[..100] {
                let row = database.rocksdb().get_pinned_cf(handle, key).unwrap().unwrap();
                assert_eq!(&*row, key);
            }
        }
    }

    /// With retention, an index gets rows and loses others for ever.
    #[test]
    fn an_index_that_loses_rows_takes_a_bounded_multiple_of_the_others() {
        const KEPT: usize = 10 * FLUSHED_ROWS;
        let directory = tempfile::tempdir().unwrap();
        let (mut random, mut keys) = (ChaCha8Rng::seed_from_u64(2), Vec::new());
        let database = open(directory.path(), "");
        let size = |database: &Database| database.sizes_on_disk().unwrap()[INDEX.name()];
        let (mut all, mut most) = (0, 0);
        for flush in 0..100 {
            flush_rows(&database, &mut random, &mut keys, KEPT);
            wait_for_merges(&database);
            if flush == 9 {
                all = size(&database);
            }
            most = most.max(size(&database));
        }
        assert_rows(&database, &keys);
        // Rows that are removed, and those that say so, are merged away with the rows themselves.
        assert!(most < 3 * all, "{most} bytes for rows of {all}");
    }

    #[test]
    fn releasing_a_snapshot_triggers_no_compaction() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let files = || {
            let files = database.rocksdb().live_files().unwrap();
            let mut names: Vec<_> = files.into_iter().map(|file| file.name).collect();
            names.sort();
            names
        };
        for key in 0..3u8 {
            let snapshot = database.snapshot();
            let mut batch = database.batch();
            batch.put_raw(Family::LedgerXdr, &[key], &[0; 1000]).unwrap();
            database.write_synced(batch).unwrap();
            database.flush().unwrap();
            let before = files();
            drop(snapshot);
            // The release itself schedules the compaction.
            let busy = |name| database.rocksdb().property_int_value(name).unwrap() != Some(0);
            wait_until("no compaction runs or is due", || {
                !busy("rocksdb.num-running-compactions") && !busy("rocksdb.compaction-pending")
            });
            assert_eq!(files(), before);
        }
        assert_eq!(files().len(), 3);
    }
}
