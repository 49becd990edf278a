//! Keys of the rows of programs. Numbers are big-endian, so that the rows of a program are adjacent
//! and in numeric order.

use crate::domain::{LedgerSeq, ProgramId};

/// Continues the keys of a program's waiting runs in `program_progress`.
pub(super) const WAITING: &str = "w";

/// Continues the keys of the parts of a project's summary in `program_progress`.
pub(super) const SUMMARY: &str = "f";

/// Returns the key that continues with `rest` after the program.
pub(super) fn key(program: ProgramId, rest: impl AsRef<[u8]>) -> Vec<u8> {
    [&program.0.to_be_bytes(), rest.as_ref()].concat()
}

pub(super) fn parse_number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

pub(super) fn ledger(ledger: LedgerSeq) -> [u8; 4] {
    ledger.0.to_be_bytes()
}

pub(super) fn parse_ledger(bytes: &[u8]) -> Option<LedgerSeq> {
    Some(LedgerSeq(u32::from_be_bytes(bytes.try_into().ok()?)))
}

/// Encodes a ledger, and the source of the runs on it.
pub(super) fn sums(sequence: LedgerSeq, source: u8) -> [u8; 5] {
    let [a, b, c, d] = ledger(sequence);
    [a, b, c, d, source]
}

pub(super) fn parse_sums(bytes: &[u8]) -> Option<(LedgerSeq, u8)> {
    let (source, ledger) = bytes.split_last()?;
    Some((parse_ledger(ledger)?, *source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip() {
        assert_eq!(key(ProgramId(3), 9u64.to_be_bytes()), [0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(parse_number(&(1u64 << 40).to_be_bytes()), Some(1 << 40));
        assert_eq!(parse_number(&[0; 7]), None);
        assert_eq!(parse_sums(&sums(LedgerSeq(8), 1)), Some((LedgerSeq(8), 1)));
        assert_eq!((parse_sums(&[0; 4]), parse_sums(&[])), (None, None));
        assert_eq!(parse_ledger(&ledger(LedgerSeq(9))), Some(LedgerSeq(9)));
    }
}
