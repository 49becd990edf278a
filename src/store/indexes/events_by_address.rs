//! Index of events by the addresses among their topics, over all contracts.

use xxhash_rust::xxh3::xxh3_64;

use super::index::Index;
use super::values::Tags;
use crate::encoding::records::EventRecord;

pub(crate) const INDEX: Index = Index::of_events(FAMILY, AddressTag::LEN, rows_of);

/// Name of its column family.
pub(crate) const FAMILY: &str = "events_by_address";

/// The beginning of the XDR of every `ScVal::Address`.
const ADDRESS: [u8; 4] = [0, 0, 0, 18];

fn rows_of(event: &EventRecord<'_>, tags: &mut Tags<'_>) {
    for topic in event.topics {
        if topic.starts_with(&ADDRESS) {
            tags.add(&AddressTag::of(topic).0);
        }
    }
}

/// Short hash of the XDR of an `ScVal::Address`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressTag(pub [u8; Self::LEN]);

impl AddressTag {
    const LEN: usize = 6;

    /// Returns the tag of the address with this XDR.
    pub(crate) fn of(topic: &[u8]) -> Self {
        let mut tag = [0; Self::LEN];
        tag.copy_from_slice(&xxh3_64(topic).to_be_bytes()[..Self::LEN]);
        Self(tag)
    }
}
