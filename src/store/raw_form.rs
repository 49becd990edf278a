//! Raw ledgers as they are stored: one byte that says how many bytes of the content come before the
//! ledger, and zstd frames. They are what the ledger's source has compressed, or compressed here.

use std::cell::RefCell;
use std::io;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, Strategy, compress_bound};

use super::StoreError;
use crate::domain::CompressedLedger;

/// How raw ledgers are compressed. Ledgers repeat long strings (accounts, assets, contracts) at long
/// distances: against level 1, a larger table of them and a longer step where none is found take
/// half the time for 3 % more bytes; level 3 takes three times as long for 10 % less.
const PARAMETERS: [CParameter; 5] = [
    CParameter::Strategy(Strategy::ZSTD_fast),
    CParameter::WindowLog(20),
    CParameter::HashLog(16),
    CParameter::MinMatch(7),
    CParameter::TargetLength(3),
];

/// Frames of a source are stored when they are at least so many times smaller than the ledger. Public
/// ledgers come to 7 to 11 times; what is hardly compressed is compressed anew.
const WORTH_KEEPING: usize = 4;

/// The row of a ledger, from the frames of its source where that is worth it.
pub(super) fn pack(
    xdr: &[u8],
    at_source: Option<&CompressedLedger>,
) -> Result<Vec<u8>, StoreError> {
    match at_source {
        Some(CompressedLedger { frames, offset }) if frames.len() * WORTH_KEEPING <= xdr.len() => {
            Ok(row(*offset, frames))
        }
        _ => compress(xdr).map_err(StoreError::Compression),
    }
}

/// The `LedgerCloseMeta` of a row from [`pack`].
pub(super) fn unpack(row: &[u8]) -> Result<Vec<u8>, StoreError> {
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

/// What a thread compresses with: setting it up costs as much as a small ledger.
struct ThreadCompressor {
    compressor: Compressor<'static>,
    /// Compressed ledgers are far smaller than the buffer that zstd wants for them.
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
    fn gives_the_ledger_back() {
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
