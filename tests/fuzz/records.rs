//! A file of ledgers: framed, batched, listed in JSON or single, plain or compressed. Whatever
//! lengths a file claims, no ledger exceeds the limit, and no record follows an error.

use bytes::Bytes;
use orrery::domain::{LedgerSeq, sequence_of};
use orrery::source::records::Records;

/// Maximum length of a ledger in these tests, in bytes.
const LONGEST: u64 = 64 << 10;
/// Maximum number of ledgers that are read from one file; a compressed file may hold any number.
const MOST: usize = 200;

pub fn seeds() -> Vec<Vec<u8>> {
    let ledgers: Vec<_> = crate::ledger::seeds().into_iter().take(3).collect();
    let framed: Vec<u8> = ledgers
        .iter()
        .flat_map(|ledger| {
            let mark = 0x8000_0000 | ledger.len() as u32;
            [&mark.to_be_bytes()[..], ledger].concat()
        })
        .collect();
    let LedgerSeq(first) = sequence_of(&ledgers[0]).unwrap();
    let head = [first, first + 2, 3].map(u32::to_be_bytes).concat();
    let batch = [head, ledgers.concat()].concat();
    let compressed = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let (one, two) = (compressed(&framed), compressed(&batch));
    vec![framed, batch, one, two, compressed(&ledgers[0])]
}

pub fn check(bytes: &[u8]) {
    let Ok(records) = Records::of(Bytes::copy_from_slice(bytes), LONGEST) else { return };
    let mut failed = false;
    for record in records.take(MOST) {
        assert!(!failed, "nothing comes after an error");
        match record {
            Ok(record) => {
                assert!(record.xdr.len() as u64 <= LONGEST, "{} bytes", record.xdr.len());
                assert_eq!(sequence_of(&record.xdr), Ok(record.sequence));
            }
            Err(error) => {
                failed = true;
                assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
