//! Keys of the rows of programs. Numbers are big-endian, so that the rows of a program are adjacent
//! and in numeric order.

use orrery_ledger::domain::{LedgerSeq, ProgramId};

use crate::encoding::columns::{Key, TransactionKey};
use crate::encoding::records::TransactionPosition;

/// Length of a key of `program_stats` in bytes.
const STATS_KEY_LEN: usize = 9;

/// Returns the key of a program's backfill, which sorts after that of its progress.
pub(super) fn backfill_key(program: ProgramId) -> [u8; 5] {
    part_key(program, b'b')
}

/// Returns the key of a program's subscribers, which sorts after that of its backfill.
pub(super) fn subscribers_key(program: ProgramId) -> [u8; 5] {
    part_key(program, b's')
}

fn part_key(program: ProgramId, part: u8) -> [u8; 5] {
    let [a, b, c, d] = program.0.to_be_bytes();
    [a, b, c, d, part]
}

/// Returns the prefix of the keys of a program's waiting runs.
pub(super) fn waiting_prefix(program: ProgramId) -> [u8; 5] {
    part_key(program, b'w')
}

pub(super) fn waiting_key(program: ProgramId, position: TransactionPosition) -> [u8; 12] {
    let mut key = [0; 12];
    key[..5].copy_from_slice(&waiting_prefix(program));
    key[5..].copy_from_slice(&TransactionKey(position).encode());
    key
}

/// Key of `rows`: a program, and the position of the transaction on which it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProgramPositionKey {
    pub program: ProgramId,
    pub position: TransactionPosition,
}

impl Key for ProgramPositionKey {
    type Bytes = [u8; 11];

    fn encode(&self) -> [u8; 11] {
        let mut bytes = [0; 11];
        bytes[..4].copy_from_slice(&self.program.0.to_be_bytes());
        bytes[4..].copy_from_slice(&TransactionKey(self.position).encode());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (program, position) = bytes.split_first_chunk()?;
        Some(Self {
            program: ProgramId(u32::from_be_bytes(*program)),
            position: TransactionKey::decode(position)?.0,
        })
    }
}

/// Key of `row_log` and `executions`: a program and an ascending number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProgramNumberKey {
    pub program: ProgramId,
    pub number: u64,
}

impl Key for ProgramNumberKey {
    type Bytes = [u8; 12];

    fn encode(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.program.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (program, number) = bytes.split_first_chunk()?;
        Some(Self {
            program: ProgramId(u32::from_be_bytes(*program)),
            number: u64::from_be_bytes(number.try_into().ok()?),
        })
    }
}

/// Returns a key of `program_stats`, whose last byte is the source.
pub(super) fn stats_key(program: ProgramId, ledger: LedgerSeq, source: u8) -> [u8; STATS_KEY_LEN] {
    let mut key = [0; STATS_KEY_LEN];
    key[..4].copy_from_slice(&program.0.to_be_bytes());
    key[4..8].copy_from_slice(&ledger.0.to_be_bytes());
    key[8] = source;
    key
}

pub(super) fn stats_key_parts(key: &[u8]) -> Option<(ProgramId, LedgerSeq, u8)> {
    let key: &[u8; STATS_KEY_LEN] = key.try_into().ok()?;
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
    Some((ProgramId(number(&key[..4])?), LedgerSeq(number(&key[4..8])?), key[8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip() {
        let position = TransactionPosition { ledger: LedgerSeq(7), application_order: 9 };
        let key = ProgramPositionKey { program: ProgramId(3), position };
        assert_eq!(ProgramPositionKey::decode(&key.encode()), Some(key));
        assert_eq!(ProgramPositionKey::decode(&key.encode()[1..]), None);
        let key = ProgramNumberKey { program: ProgramId(u32::MAX), number: 1 << 40 };
        assert_eq!(ProgramNumberKey::decode(&key.encode()), Some(key));
        assert_eq!(ProgramNumberKey::decode(&key.encode()[1..]), None);
        let key = stats_key(ProgramId(3), LedgerSeq(8), 1);
        assert_eq!(stats_key_parts(&key), Some((ProgramId(3), LedgerSeq(8), 1)));
    }
}
