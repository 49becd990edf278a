//! Third floor: the database on disk. Knows RocksDB, its options, its files and how its writes become
//! durable, and treats values as bytes. May use `encoding` and `indexes`.

pub(crate) mod acknowledged;
pub(crate) mod block_cache;
pub(crate) mod database;
pub(crate) mod directory;
pub(crate) mod family_writes;
pub(crate) mod faults;
pub(crate) mod lock;
pub(crate) mod log_files;
pub(crate) mod options;
pub(crate) mod privacy;
pub(crate) mod snapshot;
pub(crate) mod tuning;
pub(crate) mod writer_thread;
pub(crate) mod writes;
