//! First floor: the bytes of rows. Knows how keys, events, transactions and ledgers are encoded,
//! compressed and digested, which records readers get, and which errors there are. Uses no other
//! floor, and no database.

pub(crate) mod block;
pub(crate) mod bytes;
pub(crate) mod columns;
pub(crate) mod compression;
pub(crate) mod digest;
pub(crate) mod error;
pub(crate) mod evicted;
pub(crate) mod format_version;
pub(crate) mod indexed_as;
pub(crate) mod ledgers;
pub(crate) mod positions;
pub(crate) mod raw_form;
pub(crate) mod records;
pub(crate) mod row_codec;
pub(crate) mod settings;
pub(crate) mod stored_time;
pub(crate) mod transaction_block;
pub(crate) mod transaction_record;
