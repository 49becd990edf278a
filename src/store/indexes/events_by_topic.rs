//! Index of events by topic, of one contract or of all.

use xxhash_rust::xxh3::xxh3_64;

use super::index::{Index, RowsOf};
use super::values::Tags;
use crate::encoding::columns::{ContractTag, Family};
use crate::encoding::records::EventRecord;

pub(crate) const INDEX: Index = Index {
    family: Family::EventsByTopic,
    tag_len: TopicTag::LEN,
    rows_of: RowsOf::Event(rows_of),
};

fn rows_of(event: &EventRecord<'_>, tags: &mut Tags<'_>) {
    let contract = event.contract.map_or(ContractTag::NONE, ContractTag::of);
    for topic in event.topics {
        tags.add(&TopicTag::new(topic, contract).0);
    }
}

/// Short hash of a topic, then of the contract that emitted it. A lookup of a topic of one contract
/// uses the whole tag, a lookup across all contracts its first part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicTag(pub [u8; Self::LEN]);

impl TopicTag {
    const LEN: usize = 9;
    /// Length of the part that depends on the topic alone.
    const TOPIC_LEN: usize = 5;

    /// Returns the tag of the topic with this XDR, emitted by `contract`.
    pub(crate) fn new(topic: &[u8], contract: ContractTag) -> Self {
        let mut tag = [0; Self::LEN];
        tag[..Self::TOPIC_LEN].copy_from_slice(&Self::topic_part(topic));
        tag[Self::TOPIC_LEN..].copy_from_slice(&contract.0[..Self::LEN - Self::TOPIC_LEN]);
        Self(tag)
    }

    /// Returns the part of the tag that depends on the topic alone.
    pub(crate) fn topic_part(topic: &[u8]) -> [u8; Self::TOPIC_LEN] {
        let mut part = [0; Self::TOPIC_LEN];
        part.copy_from_slice(&xxh3_64(topic).to_be_bytes()[..Self::TOPIC_LEN]);
        part
    }
}
