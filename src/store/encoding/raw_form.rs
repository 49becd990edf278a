//! Stored form of raw ledgers: one byte that holds the number of bytes of the decompressed content
//! before the ledger, then zstd frames. The frames come from the ledger's source or are compressed
//! here: then each holds [`FRAME_BYTES`] of the ledger and states so, which lets a reader of one
//! transaction decompress only the frames that have its parts.

use std::cell::RefCell;
use std::io::{self, Read};
use std::ops::Range;

use orrery_ledger::domain::CompressedLedger;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{self, compress_bound};

use super::error::StoreError;

/// Bytes of a ledger in a frame. A public ledger of a megabyte takes 8 frames; one frame for all of it
/// would be a tenth smaller, because ledgers repeat long strings (accounts, assets, contracts) at long
/// distances, and frames of half the size a twentieth larger.
const FRAME_BYTES: usize = 128 << 10;
/// zstd compression level of these frames. Level 1 takes a tenth more time for 1 % less.
const LEVEL: i32 = -1;

/// Minimum compression ratio at which the frames of a source are stored as they are. Public ledgers
/// reach 7 to 11; poorly compressed frames are compressed again.
const MIN_SOURCE_RATIO: usize = 4;

/// Largest content in bytes that is decompressed in one go, with a buffer of the size that its frames
/// state. Larger content is decompressed as it comes: a damaged row may state any size.
const LARGEST_AT_ONCE: usize = 256 << 20;

/// Returns the row of a ledger, with the frames of its source when they are small enough.
pub(crate) fn pack(
    xdr: &[u8],
    at_source: Option<&CompressedLedger>,
) -> Result<Vec<u8>, StoreError> {
    match at_source {
        Some(CompressedLedger { frames, offset })
            if frames.len() * MIN_SOURCE_RATIO <= xdr.len() =>
        {
            let mut row = Vec::with_capacity(1 + frames.len());
            row.push(*offset);
            row.extend_from_slice(frames);
            Ok(row)
        }
        _ => compress(xdr).map_err(StoreError::Compression),
    }
}

/// Returns the `LedgerCloseMeta` in a row from [`pack`].
pub(crate) fn unpack(row: &[u8]) -> Result<Vec<u8>, StoreError> {
    let unpacked = || {
        let (offset, frames) = split(row)?;
        let mut content = match sizes(frames) {
            Some(sizes) => {
                with_decompressor(|it| it.decompress(frames, sizes.iter().map(|it| it.1).sum()))?
            }
            None => zstd::stream::decode_all(frames)?,
        };
        if offset > content.len() {
            return Err(damaged());
        }
        content.drain(..offset);
        Ok(content)
    };
    unpacked().map_err(StoreError::Compression)
}

/// Returns these ranges of bytes of the `LedgerCloseMeta` in a row from [`pack`], decompressing as little as
/// the frames allow. What lies behind the end of the ledger is left out.
pub(crate) fn unpack_parts(row: &[u8], parts: &[Range<usize>]) -> Result<Vec<Vec<u8>>, StoreError> {
    let unpacked = || {
        let (offset, frames) = split(row)?;
        let in_content = |part: &Range<usize>| {
            part.start.saturating_add(offset)..part.end.saturating_add(offset)
        };
        let parts: Vec<_> = parts.iter().map(in_content).collect();
        match sizes(frames) {
            Some(sizes) if sizes.iter().all(|(_, content)| *content <= FRAME_BYTES) => {
                of_frames(frames, &sizes, &parts)
            }
            // Frames of a source, or of an earlier version: the beginning of the content.
            _ => of_beginning(frames, &parts),
        }
    };
    unpacked().map_err(StoreError::Compression)
}

fn split(row: &[u8]) -> io::Result<(usize, &[u8])> {
    let (offset, frames) = row.split_first().ok_or_else(damaged)?;
    Ok((usize::from(*offset), frames))
}

fn damaged() -> io::Error {
    io::Error::from(io::ErrorKind::UnexpectedEof)
}

/// Returns the size of each frame and of its content; `None` when a frame does not state it, and when all
/// content is larger than [`LARGEST_AT_ONCE`].
fn sizes(mut frames: &[u8]) -> Option<Vec<(usize, usize)>> {
    let (mut sizes, mut all) = (Vec::new(), 0usize);
    while !frames.is_empty() {
        let frame = zstd_safe::find_frame_compressed_size(frames).ok()?;
        let content = zstd_safe::get_frame_content_size(frames).ok()??;
        let content = usize::try_from(content).ok()?;
        all = all.checked_add(content).filter(|all| *all <= LARGEST_AT_ONCE)?;
        frames = frames.get(frame..)?;
        sizes.push((frame, content));
    }
    Some(sizes)
}

/// Takes parts from the frames that have them.
fn of_frames(
    mut frames: &[u8],
    sizes: &[(usize, usize)],
    parts: &[Range<usize>],
) -> io::Result<Vec<Vec<u8>>> {
    let mut found: Vec<Vec<u8>> = parts.iter().map(|_| Vec::new()).collect();
    let mut start = 0;
    for (frame, content) in sizes {
        let (frame, rest) = frames.split_at_checked(*frame).ok_or_else(damaged)?;
        let here = start..start + content;
        let overlap = |part: &Range<usize>| {
            let overlap = part.start.max(here.start)..part.end.min(here.end);
            Some(overlap.start - here.start..overlap.end.checked_sub(here.start)?)
                .filter(|overlap| !overlap.is_empty())
        };
        if parts.iter().any(|part| overlap(part).is_some()) {
            let content = with_decompressor(|it| it.decompress(frame, *content))?;
            for (part, found) in parts.iter().zip(&mut found) {
                let Some(overlap) = overlap(part) else { continue };
                found.extend_from_slice(content.get(overlap).ok_or_else(damaged)?);
            }
        }
        (frames, start) = (rest, here.end);
    }
    Ok(found)
}

/// Takes parts from the beginning of the content up to the last of them.
fn of_beginning(frames: &[u8], parts: &[Range<usize>]) -> io::Result<Vec<Vec<u8>>> {
    let end = parts.iter().map(|part| part.end).max().unwrap_or(0);
    let mut content = Vec::new();
    zstd::stream::read::Decoder::new(frames)?.take(end as u64).read_to_end(&mut content)?;
    let part = |part: &Range<usize>| {
        content.get(part.start..part.end.min(content.len())).unwrap_or_default().to_vec()
    };
    Ok(parts.iter().map(part).collect())
}

/// Calls `work` with the decompressor of this thread, kept because setting one up takes as long as
/// decompressing a frame.
fn with_decompressor<T>(
    work: impl FnOnce(&mut Decompressor<'static>) -> io::Result<T>,
) -> io::Result<T> {
    thread_local! {
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|decompressor| match decompressor {
        Some(decompressor) => work(decompressor),
        None => work(decompressor.insert(Decompressor::new()?)),
    })
}

/// Compressor of a thread, kept because setting one up costs as much as compressing a small ledger.
struct ThreadCompressor {
    compressor: Compressor<'static>,
    /// Reused, because zstd requires a buffer that is far larger than a compressed frame.
    buffer: Vec<u8>,
}

impl ThreadCompressor {
    fn new() -> io::Result<Self> {
        Ok(Self {
            compressor: Compressor::new(LEVEL)?,
            buffer: Vec::with_capacity(compress_bound(FRAME_BYTES)),
        })
    }

    fn compress(&mut self, xdr: &[u8]) -> io::Result<Vec<u8>> {
        // Most ledgers are compressed to less.
        let mut row = Vec::with_capacity(1 + xdr.len() / MIN_SOURCE_RATIO);
        row.push(0);
        for part in xdr.chunks(FRAME_BYTES) {
            self.buffer.clear();
            self.compressor.compress_to_buffer(part, &mut self.buffer)?;
            row.extend_from_slice(&self.buffer);
        }
        row.shrink_to_fit();
        Ok(row)
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
    use std::io::Write;

    use super::*;

    fn at_source(content: &[u8], offset: u8) -> CompressedLedger {
        let frames = zstd::encode_all(content, 3).unwrap().into();
        CompressedLedger { frames, offset }
    }

    /// Bytes that compress to about a fifth.
    fn ledger(length: usize) -> Vec<u8> {
        (0..length).map(|at| if at % 5 == 0 { ((at * 31) >> 3) as u8 } else { 7 }).collect()
    }

    /// Rows of a ledger: as they are compressed here, as an earlier version did, as a source does that
    /// states the size of the content, and as one that does not.
    fn rows(ledger: &[u8]) -> [Vec<u8>; 4] {
        let file = [&[1; 12][..], ledger].concat();
        let mut streamed = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        streamed.write_all(&file).unwrap();
        let streamed = streamed.finish().unwrap();
        assert_eq!(zstd_safe::get_frame_content_size(&streamed).unwrap(), None);
        [
            pack(ledger, None).unwrap(),
            [&[0][..], &*zstd::bulk::compress(ledger, 1).unwrap()].concat(),
            [&[12][..], &*zstd::bulk::compress(&file, 3).unwrap()].concat(),
            [&[12][..], &*streamed].concat(),
        ]
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
        let too_short = [&[13][..], &*at_source(&[1; 12], 0).frames].concat();
        for damaged in [&[][..], &[0, 1, 2], &too_short] {
            assert!(unpack(damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn ledgers_of_any_length_round_trip_in_every_form() {
        for length in [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 5 * FRAME_BYTES / 2] {
            let ledger = ledger(length);
            for row in rows(&ledger) {
                assert_eq!(unpack(&row).unwrap(), ledger, "{length}");
            }
        }
    }

    #[test]
    fn parts_are_those_of_the_whole() {
        const LENGTH: usize = 3 * FRAME_BYTES + 1_000;
        let ledger = ledger(LENGTH);
        let parts = [
            0..0,
            0..10,
            100..FRAME_BYTES,
            FRAME_BYTES - 1..FRAME_BYTES + 1,
            FRAME_BYTES..FRAME_BYTES,
            10..LENGTH,
            2 * FRAME_BYTES + 5..3 * FRAME_BYTES + 5,
            LENGTH - 1..LENGTH,
        ];
        let expected: Vec<_> = parts.iter().map(|part| ledger[part.clone()].to_vec()).collect();
        for row in rows(&ledger) {
            assert_eq!(unpack_parts(&row, &parts).unwrap(), expected);
            for (part, expected) in parts.iter().zip(&expected) {
                let alone = unpack_parts(&row, std::slice::from_ref(part)).unwrap();
                assert_eq!(alone, std::slice::from_ref(expected), "{part:?}");
            }
            let beyond = [LENGTH - 3..LENGTH + 9, LENGTH + 1..LENGTH + 2, 1..usize::MAX];
            let found = unpack_parts(&row, &beyond).unwrap();
            assert_eq!(found, [ledger[LENGTH - 3..].to_vec(), vec![], ledger[1..].to_vec()]);
        }
        for damaged in [&[][..], &[0, 1, 2]] {
            assert!(unpack_parts(damaged, &[0..1, 1..2]).is_err(), "{damaged:?}");
        }
    }

    /// The frames that have no part are not read at all.
    #[test]
    fn only_frames_with_a_part_are_decompressed() {
        let ledger = ledger(3 * FRAME_BYTES);
        let mut row = pack(&ledger, None).unwrap();
        let frames = sizes(&row[1..]).unwrap();
        assert_eq!(frames.iter().map(|it| it.1).collect::<Vec<_>>(), [FRAME_BYTES; 3]);
        // A byte of the content of the second frame, behind the header of its first block.
        let damaged = 1 + frames[0].0 + frames[1].0 / 2;
        row[damaged] ^= 0xff;
        let others = [5..100, 2 * FRAME_BYTES..2 * FRAME_BYTES + 9];
        let expected: Vec<_> = others.iter().map(|part| ledger[part.clone()].to_vec()).collect();
        assert_eq!(unpack_parts(&row, &others).unwrap(), expected);
    }
}
