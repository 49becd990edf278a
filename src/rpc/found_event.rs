//! An event with the id that Stellar RPC assigns to it, as it was found in the store.

use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{LedgerSeq, RpcEventId};
use orrery_store::EventRecord;

/// An event with its Stellar RPC id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundEvent {
    pub id: RpcEventId,
    pub ledger: LedgerSeq,
    /// Close time in UNIX seconds.
    pub closed_at: u64,
    pub tx: [u8; 32],
    pub contract: Option<[u8; 32]>,
    pub event_type: EventType,
    /// Whether its transaction succeeded.
    pub successful: bool,
    /// XDR of the topics and of the data, concatenated.
    xdr: Vec<u8>,
    /// Offset in `xdr` at which each topic ends.
    topic_ends: Vec<u32>,
}

impl FoundEvent {
    /// Copies an event and assigns its id.
    pub(super) fn new(event: &EventRecord<'_>, id: RpcEventId, successful: bool) -> Self {
        let length = event.topics.iter().map(|topic| topic.len()).sum::<usize>() + event.data.len();
        let mut xdr = Vec::with_capacity(length);
        let mut topic_ends = Vec::with_capacity(event.topics.len());
        for topic in event.topics {
            xdr.extend_from_slice(topic);
            // An event is smaller than its ledger, whose length is a 32-bit number.
            topic_ends.push(xdr.len() as u32);
        }
        xdr.extend_from_slice(event.data);
        Self {
            id,
            ledger: event.ledger,
            closed_at: event.closed_at.seconds(),
            tx: *event.tx,
            contract: event.contract.copied(),
            event_type: event.event_type,
            successful,
            xdr,
            topic_ends,
        }
    }

    /// Returns the XDR `ScVal` of each topic.
    pub(super) fn topics(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(&0).chain(&self.topic_ends);
        begins.zip(&self.topic_ends).map(|(from, to)| &self.xdr[*from as usize..*to as usize])
    }

    /// Returns the XDR `ScVal` of the data.
    pub(super) fn data(&self) -> &[u8] {
        &self.xdr[self.topic_ends.last().map_or(0, |end| *end as usize)..]
    }

    /// Returns the approximate size of the event in an answer, in bytes of base64.
    pub(super) fn size(&self) -> usize {
        500 + self.xdr.len() * 4 / 3
    }
}
