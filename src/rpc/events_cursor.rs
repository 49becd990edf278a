//! Cursors of `getEventsV2`. A cursor contains the whole query and its progress, so the service
//! keeps no state between pages.
//!
//! Base64url of: version (1 byte) · first four bytes of the SHA-256 of the rest · order (0
//! ascending, 1 descending) · u32 first ledger · u32 last ledger, 0 for none · the event after
//! which to continue, as u64 and u32, 0 and 0 for none · u16 number of filters. A filter is a byte
//! of flags (1 type, 2 type is `system`, 4 contract, 8 to 64 topics 0 to 3), the contract, and each
//! topic as u32 length and XDR. Numbers are big-endian.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use stellar_xdr::{ReadXdr, ScVal};

use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{ContractId, Direction, ENTERED_VALUE, RpcEventId};

/// Maximum number of filters per query.
pub(super) const MAX_FILTERS: usize = 256;
const VERSION: u8 = 1;
/// Length of the checksum that detects a damaged cursor, in bytes.
const CHECKSUM_BYTES: usize = 4;
const FLAG_TYPE: u8 = 1;
const FLAG_SYSTEM: u8 = 2;
const FLAG_CONTRACT: u8 = 4;
const FLAG_TOPIC_0: u8 = 8;

/// A query for events, and its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scan {
    pub direction: Direction,
    /// First ledger of the query.
    pub min: u32,
    /// Last ledger of the query; `None` for no upper bound.
    pub max: Option<u32>,
    /// The event after which to continue, in the query's direction.
    pub after: Option<RpcEventId>,
    /// An event has to match one of these; all events match when empty.
    pub filters: Vec<Filter>,
}

/// Conditions on an event, all of which have to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    pub event_type: Option<EventType>,
    pub contract: Option<ContractId>,
    /// Wanted values of the first four topics, as XDR `ScVal`.
    pub topics: [Option<Vec<u8>>; 4],
}

impl Scan {
    pub(super) fn to_cursor(&self) -> String {
        let mut out = vec![u8::from(self.direction == Direction::NewestFirst)];
        out.extend_from_slice(&self.min.to_be_bytes());
        out.extend_from_slice(&self.max.unwrap_or(0).to_be_bytes());
        let after = self.after.unwrap_or(RpcEventId { toid: 0, index: 0 });
        out.extend_from_slice(&after.toid.to_be_bytes());
        out.extend_from_slice(&after.index.to_be_bytes());
        // A query has at most `MAX_FILTERS` filters, which fits.
        out.extend_from_slice(&(self.filters.len() as u16).to_be_bytes());
        for filter in &self.filters {
            filter.put(&mut out);
        }
        let mut cursor = vec![VERSION];
        cursor.extend_from_slice(&Sha256::digest(&out)[..CHECKSUM_BYTES]);
        cursor.append(&mut out);
        URL_SAFE_NO_PAD.encode(cursor)
    }

    /// Parses a cursor; returns `None` if this service did not issue it.
    pub(super) fn read(cursor: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (version, rest) = bytes.split_first()?;
        let (check, rest) = rest.split_at_checked(CHECKSUM_BYTES)?;
        if *version != VERSION || Sha256::digest(rest)[..CHECKSUM_BYTES] != *check {
            return None;
        }
        let mut rest = ByteReader(rest);
        let direction = match rest.array::<1>()? {
            [0] => Direction::OldestFirst,
            [1] => Direction::NewestFirst,
            _ => return None,
        };
        let (min, max) = (rest.u32()?, rest.u32()?);
        let (toid, index) = (u64::from_be_bytes(rest.array()?), rest.u32()?);
        let count = usize::from(u16::from_be_bytes(rest.array()?));
        if count > MAX_FILTERS {
            return None;
        }
        let filters = (0..count).map(|_| Filter::read(&mut rest)).collect::<Option<_>>()?;
        let max = Some(max).filter(|max| *max != 0);
        let after = Some(RpcEventId { toid, index }).filter(|after| after.toid != 0);
        let is_valid = rest.0.is_empty() && (direction == Direction::OldestFirst || max.is_some());
        is_valid.then_some(Self { direction, min, max, after, filters })
    }
}

impl Filter {
    fn put(&self, out: &mut Vec<u8>) {
        let flags_at = out.len();
        out.push(0);
        let mut flags = match self.event_type {
            None => 0,
            Some(EventType::Contract) => FLAG_TYPE,
            Some(EventType::System) => FLAG_TYPE | FLAG_SYSTEM,
        };
        if let Some(contract) = &self.contract {
            flags |= FLAG_CONTRACT;
            out.extend_from_slice(&contract.0);
        }
        for (position, topic) in self.topics.iter().enumerate() {
            if let Some(topic) = topic {
                flags |= FLAG_TOPIC_0 << position;
                // A topic is far shorter than 4 GiB.
                out.extend_from_slice(&(topic.len() as u32).to_be_bytes());
                out.extend_from_slice(topic);
            }
        }
        out[flags_at] = flags;
    }

    fn read(rest: &mut ByteReader<'_>) -> Option<Self> {
        let [flags] = rest.array()?;
        let event_type = match flags & (FLAG_TYPE | FLAG_SYSTEM) {
            0 => None,
            FLAG_TYPE => Some(EventType::Contract),
            FLAG_SYSTEM => return None,
            _ => Some(EventType::System),
        };
        let contract = match flags & FLAG_CONTRACT {
            0 => None,
            _ => Some(ContractId(rest.array()?)),
        };
        let mut topics = [const { None }; 4];
        for (position, topic) in topics.iter_mut().enumerate() {
            if flags & FLAG_TOPIC_0 << position != 0 {
                let length = usize::try_from(rest.u32()?).ok()?;
                let xdr = rest.take(length)?;
                ScVal::from_xdr(xdr, ENTERED_VALUE).ok()?;
                *topic = Some(xdr.to_vec());
            }
        }
        Some(Self { event_type, contract, topics })
    }
}

/// The bytes that are left to parse.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use stellar_xdr::{Limits, WriteXdr};

    use super::*;

    fn scan(rng: &mut ChaCha8Rng) -> Scan {
        let filters = (0..rng.random_range(0..4)).map(|_| Filter {
            event_type: [None, Some(EventType::Contract), Some(EventType::System)]
                [rng.random_range(0..3)],
            contract: rng.random_bool(0.5).then(|| ContractId(rng.random())),
            topics: std::array::from_fn(|_| {
                let topic = || ScVal::U64(7).to_xdr(Limits::none()).unwrap();
                rng.random_bool(0.5).then(topic)
            }),
        });
        let filters = filters.collect();
        Scan {
            direction: if rng.random_bool(0.5) {
                Direction::OldestFirst
            } else {
                Direction::NewestFirst
            },
            min: rng.random(),
            max: Some(rng.random_range(1..=u32::MAX)),
            after: rng.random_bool(0.5).then(|| RpcEventId::new(rng.random(), 1, 2, 3)),
            filters,
        }
    }

    #[test]
    fn cursors_round_trip_and_altered_ones_are_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..200 {
            let scan = scan(&mut rng);
            let cursor = scan.to_cursor();
            assert_eq!(Scan::read(&cursor), Some(scan));
            let bytes = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
            let mut flipped = bytes.clone();
            let place = rng.random_range(0..bytes.len());
            flipped[place] ^= 1 << rng.random_range(0..8);
            for other in [&bytes[..place], &flipped] {
                assert_eq!(Scan::read(&URL_SAFE_NO_PAD.encode(other)), None);
            }
        }
        assert_eq!(Scan::read(""), None);
        assert_eq!(Scan::read("not base64!"), None);
    }
}
