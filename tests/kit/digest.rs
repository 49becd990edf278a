//! The digest of a ledger, implemented a second time from its documentation in
//! `src/store/encoding/digest.rs`.

use orrery_ledger::decode::{EventType, Placement};
use orrery_ledger::domain::Digest;
use sha2::{Digest as _, Sha256};

use super::full;

/// Digest of a ledger of which only the events that `wanted` selects are stored.
pub fn of(ledger: &full::Ledger, wanted: impl Fn(&full::Event) -> bool) -> Digest {
    let events: Vec<&full::Event> = ledger.events.iter().filter(|event| wanted(event)).collect();
    let mut bytes = b"orrery ledger digest 1\n".to_vec();
    bytes.extend(ledger.sequence.0.to_be_bytes());
    bytes.extend(ledger.hash.as_bytes());
    bytes.extend((events.len() as u64).to_be_bytes());
    for event in events {
        let transaction = &ledger.transactions[event.transaction];
        let place = match event.placement {
            Placement::Operation { operation, event_index } => [Some(operation), Some(event_index)],
            _ => [None, None],
        };
        bytes.extend(transaction.application_order.to_be_bytes());
        for number in place {
            bytes.push(u8::from(number.is_some()));
            bytes.extend(number.into_iter().flat_map(u32::to_be_bytes));
        }
        bytes.extend(transaction.hash.as_bytes());
        bytes.push(u8::from(event.contract.is_some()));
        bytes.extend(event.contract.into_iter().flatten());
        bytes.push(match event.event_type {
            EventType::Contract => 0,
            EventType::System => 1,
        });
        bytes.extend((event.topics.len() as u32).to_be_bytes());
        for xdr in event.topics.iter().chain([&event.data]) {
            bytes.extend((xdr.len() as u32).to_be_bytes());
            bytes.extend(xdr);
        }
    }
    Digest::from(<[u8; 32]>::from(Sha256::digest(bytes)))
}
