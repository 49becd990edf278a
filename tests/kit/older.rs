//! Data directories in the formats of earlier versions.

use std::path::Path;

use orrery_store::rocksdb::{DB, Options};

/// Converts a data directory to format 2.0, which lacks the index of entries that transactions
/// changed.
pub fn make_format_2_0(directory: &Path) {
    let (options, raw) = (Options::default(), directory.join("raw"));
    let names = DB::list_cf(&options, &raw).unwrap();
    let mut db = DB::open_cf(&options, raw, &names).unwrap();
    db.put_cf(db.cf_handle("meta").unwrap(), "format", [0, 2, 0, 0]).unwrap();
    for family in ["entries", "known_entries"] {
        db.drop_cf(family).unwrap();
    }
}
