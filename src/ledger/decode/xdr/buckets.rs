//! `Stellar-ledger.x`: the records of the buckets that hold a network's state.

use super::blocks::*;
use super::{Cursor, Depth, XdrError};

schema! {
    enum BucketListType { LIVE = 0, HOT_ARCHIVE = 1 }
    union BucketMetadataExt(Int32) { 0 => Void, 1 => BucketListType }
    struct BucketMetadata { ledger_version: Uint32, ext: BucketMetadataExt }
    enum BucketEntryType { METAENTRY = -1, LIVEENTRY = 0, DEADENTRY = 1, INITENTRY = 2 }
    enum HotArchiveBucketEntryType {
        HOT_ARCHIVE_METAENTRY = -1, HOT_ARCHIVE_ARCHIVED = 0, HOT_ARCHIVE_LIVE = 1,
    }
}
