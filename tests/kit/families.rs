//! Content of a data directory on disk, by column family.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use orrery_store::rocksdb::{DB, IteratorMode, Options};
use sha2::{Digest, Sha256};

fn raw(directory: &Path) -> PathBuf {
    directory.join("raw")
}

/// Opens the database of a data directory read-only.
pub fn open(directory: &Path) -> DB {
    let (options, raw) = (Options::default(), raw(directory));
    let names = DB::list_cf(&options, &raw).unwrap();
    DB::open_cf_for_read_only(&options, raw, names, false).unwrap()
}

/// Number of rows of each column family and a hash of their content.
pub fn families(directory: &Path) -> BTreeMap<String, String> {
    let names = DB::list_cf(&Options::default(), raw(directory)).unwrap();
    let db = open(directory);
    let digest = |name: String| {
        let (mut hasher, mut rows) = (Sha256::new(), 0);
        for row in db.iterator_cf(db.cf_handle(&name).unwrap(), IteratorMode::Start) {
            let (key, value) = row.unwrap();
            for part in [key, value] {
                hasher.update((part.len() as u64).to_be_bytes());
                hasher.update(part);
            }
            rows += 1;
        }
        (name, format!("{rows} {}", &hex::encode(hasher.finalize())[..16]))
    };
    names.into_iter().map(digest).collect()
}
