//! Stored form of raw ledgers: one byte that holds the number of bytes of the decompressed content
//! before the ledger, then zstd frames. The frames come from the ledger's source or are compressed
//! here.

use std::cell::RefCell;
use std::io;

use orrery_ledger::domain::CompressedLedger;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, Strategy, compress_bound};

use super::error::StoreError;

/// Parameters for compressing raw ledgers. Ledgers repeat long strings (accounts, assets,
/// contracts) at long distances. Compared with level 1, a larger hash table and a longer step where
/// no match is found take half the time for 3 % more bytes; level 3 takes three times as long for
/// 10 % less.
const PARAMETERS: [CParameter; 5] = [
    CParameter::Strategy(Strategy::ZSTD_fast),
    CParameter::WindowLog(20),
    CParameter::HashLog(16),
    CParameter::MinMatch(7),
    CParameter::TargetLength(3),
];

/// Minimum compression ratio at which the frames of a source are stored as they are. Public ledgers
/// reach 7 to 11; poorly compressed frames are compressed again.
const MIN_SOURCE_RATIO: usize = 4;

/// Returns the row of a ledger, with the frames of its source when they are small enough.
pub(crate) fn pack(
    xdr: &[u8],
    at_source: Option<&CompressedLedger>,
) -> Result<Vec<u8>, StoreError> {
    match at_source {
        Some(CompressedLedger { frames, offset })
            if frames.len() * MIN_SOURCE_RATIO <= xdr.len() =>
        {
            Ok(row(*offset, frames))
        }
        _ => compress(xdr).map_err(StoreError::Compression),
    }
}

/// Returns the `LedgerCloseMeta` in a row from [`pack`].
pub(crate) fn unpack(row: &[u8]) -> Result<Vec<u8>, StoreError> {
    let damaged = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let unpacked = || {
        let (offset, frames) = row.split_first().ok_or_else(damaged)?;
        let mut content = zstd::stream::decode_all(frames)?;
        let offset = usize::from(*offset);
        if offset > content.len() {
            return Err(damaged());
        }
        content.drain(..offset);
        Ok(content)
    };
    unpacked().map_err(StoreError::Compression)
}

fn row(offset: u8, frames: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(1 + frames.len());
    row.push(offset);
    row.extend_from_slice(frames);
    row
}

/// Compressor of a thread, kept because setting one up costs as much as compressing a small ledger.
struct ThreadCompressor {
    compressor: Compressor<'static>,
    /// Reused, because zstd requires a buffer that is far larger than a compressed ledger.
    buffer: Vec<u8>,
}

impl ThreadCompressor {
    fn new() -> io::Result<Self> {
        let mut compressor = Compressor::new(1)?;
        for parameter in PARAMETERS {
            compressor.set_parameter(parameter)?;
        }
        Ok(Self { compressor, buffer: Vec::new() })
    }

    fn compress(&mut self, xdr: &[u8]) -> io::Result<Vec<u8>> {
        self.buffer.clear();
        self.buffer.reserve(compress_bound(xdr.len()));
        self.compressor.compress_to_buffer(xdr, &mut self.buffer)?;
        Ok(row(0, &self.buffer))
    }
}

fn compress(xdr: &[u8]) -> io::Result<Vec<u8>> {
    thread_local! {
        static COMPRESSOR: RefCell<Option<ThreadCompressor>> = const { RefCell::new(None) };
    }
    COMPRESSOR.with_borrow_mut(|compressor| match compressor {
        Some(compressor) => compressor.compress(xdr),
        None => compressor.insert(ThreadCompressor::new()?).compress(xdr),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_source(content: &[u8], offset: u8) -> CompressedLedger {
        let frames = zstd::encode_all(content, 3).unwrap().into();
        CompressedLedger { frames, offset }
    }

    #[test]
    fn raw_ledgers_round_trip() {
        let ledger = [7; 10_000];
        let file = [&[1; 12][..], &ledger].concat();
        let compressed = at_source(&file, 12);
        let row = pack(&ledger, Some(&compressed)).unwrap();
        assert_eq!(row[1..], compressed.frames[..], "what the source has is kept");
        assert_eq!(unpack(&row).unwrap(), ledger);
        assert_eq!(unpack(&pack(&ledger, None).unwrap()).unwrap(), ledger);
        let loose = CompressedLedger { frames: vec![0; 5_000].into(), offset: 12 };
        assert_eq!(unpack(&pack(&ledger, Some(&loose)).unwrap()).unwrap(), ledger);
        for damaged in [&[][..], &[0, 1, 2], &super::row(13, &at_source(&[1; 12], 0).frames)] {
            assert!(unpack(damaged).is_err(), "{damaged:?}");
        }
    }
}
