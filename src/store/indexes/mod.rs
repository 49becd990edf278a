//! Second floor: indexes, rows that are derived from stored records and lead to them. Uses
//! `encoding`, and no database.
//!
//! An index is one file: its family, the length of its tag, and a function that returns the rows
//! derived from a record. All code that writes ledgers, removes them, checks them or fills a new
//! index calls that function. A key is the tag, then the location of the record: the id of an
//! event's block, or the position of a transaction. An index is registered with one line: those of
//! every store in [`registry`], others with [`registry::Indexes::with`].

pub(crate) mod entries;
pub(crate) mod events_by_address;
pub(crate) mod events_by_contract;
pub(crate) mod events_by_topic;
pub(crate) mod index;
pub(crate) mod registry;
pub(crate) mod rows;
pub(crate) mod tx_by_contract;
pub(crate) mod tx_by_hash;
pub(crate) mod values;
