//! Compression of event blocks and transaction records with zstd dictionaries that are part of the
//! store's format. Treats records as bytes.
//!
//! Records are compressed here, on the threads that prepare ledgers, instead of by RocksDB: this
//! reduces the WAL and memtables to a fifth of the bytes, and nothing is compressed twice. Single
//! records are too small to compress well; the dictionaries contain their usual content. They are
//! trained from public ledgers by the ignored test at the end of this file. Changing a dictionary
//! changes the format of the store.

use std::cell::RefCell;
use std::sync::LazyLock;

use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};
use zstd::zstd_safe;

use super::error::StoreError;

/// zstd compression level. With a dictionary, level 1 takes a quarter more time and saves 1 % of
/// the size.
const LEVEL: i32 = -1;
/// Size in bytes from which blocks of transactions are compressed without the dictionary: they are
/// redundant enough in themselves, and searching the dictionary takes as long as all the rest.
const MIN_BYTES_WITHOUT_DICTIONARY: usize = 16 << 10;
/// Slot of the compressor without a dictionary, after those of the contents.
const WITHOUT_DICTIONARY: usize = 2;
/// Upper limit of a decompressed record, in bytes; a record that claims to be larger is damaged.
const LARGEST_RECORD: usize = 256 << 20;

/// Kind of content, which selects the dictionary.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// A packed block of events.
    Events,
    /// A packed block of transactions.
    Transactions,
}

struct Dictionary {
    encoder: EncoderDictionary<'static>,
    decoder: DecoderDictionary<'static>,
}

impl Dictionary {
    fn new(bytes: &'static [u8]) -> Self {
        let encoder = EncoderDictionary::copy(bytes, LEVEL);
        Self { encoder, decoder: DecoderDictionary::copy(bytes) }
    }
}

static EVENTS: LazyLock<Dictionary> =
    LazyLock::new(|| Dictionary::new(include_bytes!("events.zdict")));
static TRANSACTIONS: LazyLock<Dictionary> =
    LazyLock::new(|| Dictionary::new(include_bytes!("transactions.zdict")));

impl Content {
    fn dictionary(self) -> &'static Dictionary {
        match self {
            Self::Events => &EVENTS,
            Self::Transactions => &TRANSACTIONS,
        }
    }
}

// Setting up a zstd context takes longer than compressing a record, so contexts are reused.
thread_local! {
    static COMPRESSORS: [RefCell<Option<Compressor<'static>>>; 3] = const { [const { RefCell::new(None) }; 3] };
    static DECOMPRESSORS: [RefCell<Option<Decompressor<'static>>>; 2] = const { [const { RefCell::new(None) }; 2] };
}

/// Compresses a record.
pub(crate) fn compress(content: Content, record: &[u8]) -> Result<Vec<u8>, StoreError> {
    let dictionary = match content {
        Content::Transactions if record.len() >= MIN_BYTES_WITHOUT_DICTIONARY => None,
        _ => Some(content.dictionary()),
    };
    COMPRESSORS.with(|slots| {
        let slot = dictionary.map_or(WITHOUT_DICTIONARY, |_| content as usize);
        let mut slot = slots[slot].borrow_mut();
        let compressor = match &mut *slot {
            Some(compressor) => compressor,
            empty => {
                let compressor = match dictionary {
                    Some(Dictionary { encoder, .. }) => {
                        Compressor::with_prepared_dictionary(encoder)
                    }
                    None => Compressor::new(LEVEL),
                };
                empty.insert(compressor.map_err(StoreError::Compression)?)
            }
        };
        compressor.compress(record).map_err(StoreError::Compression)
    })
}

/// Decompresses a record from [`compress`]. The dictionary has no effect on frames that were
/// compressed without one.
pub(crate) fn decompress(content: Content, compressed: &[u8]) -> Result<Vec<u8>, StoreError> {
    DECOMPRESSORS.with(|slots| {
        let mut slot = slots[content as usize].borrow_mut();
        let decompressor = match &mut *slot {
            Some(decompressor) => decompressor,
            empty => {
                let decoder = &content.dictionary().decoder;
                let decompressor = Decompressor::with_prepared_dictionary(decoder);
                empty.insert(decompressor.map_err(StoreError::Compression)?)
            }
        };
        // Every frame from `compress` states the size of its content.
        let length = zstd_safe::get_frame_content_size(compressed).ok().flatten().unwrap_or(0);
        let room = usize::try_from(length).unwrap_or(usize::MAX).min(LARGEST_RECORD);
        decompressor.decompress(compressed, room).map_err(StoreError::Compression)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read;
    use std::path::{Path, PathBuf};

    use flate2::read::GzDecoder;

    use super::*;
    use crate::encoding::positions::EVENTS_PER_BLOCK;
    use crate::encoding::{block, transaction_record};
    use orrery_ledger::decode::{EventView, Placement, decode};
    use orrery_ledger::domain::{CloseTime, Network};

    #[test]
    fn records_round_trip() {
        for content in [Content::Events, Content::Transactions] {
            for record in [&[][..], &[7], &[1; 100_000]] {
                let compressed = compress(content, record).unwrap();
                assert_eq!(decompress(content, &compressed).unwrap(), record);
            }
            assert!(decompress(content, b"not compressed").is_err());
        }
    }

    /// Returns the packed events and transactions of ledgers.
    fn records(paths: &[PathBuf]) -> [Vec<Vec<u8>>; 2] {
        let network = Network::from_name_or_passphrase("mainnet");
        let [mut blocks, mut transactions] = [Vec::new(), Vec::new()];
        for path in paths {
            let mut xdr = Vec::new();
            GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut xdr).unwrap();
            let ledger = decode(&xdr, network.id()).unwrap();
            let of_operations =
                ledger.events.iter().filter(|e| matches!(e.placement, Placement::Operation { .. }));
            let events: Vec<&EventView<'_>> = of_operations.collect();
            blocks.extend(events.chunks(EVENTS_PER_BLOCK).map(|part| block::encode(&ledger, part)));
            let stored = ledger.transactions.iter().filter(|t| t.smart_contract);
            transactions
                .extend(stored.map(|t| transaction_record::encode(t, CloseTime::Seconds(0), 0)));
        }
        [blocks, transactions]
    }

    /// Trains the dictionaries from two ledgers and prints their effect on twelve others.
    #[test]
    #[ignore = "changes the format: run it by hand with ORRERY_TEST_DATA"]
    fn train_dictionaries() {
        const SIZES: [usize; 4] = [8 << 10, 16 << 10, 32 << 10, 64 << 10];
        const CHOSEN: [usize; 2] = [32 << 10, 16 << 10];
        let data = PathBuf::from(std::env::var_os("ORRERY_TEST_DATA").unwrap());
        let path = |sequence: u32| data.join(format!("ledgers/pubnet/ledger-{sequence}.xdr.gz"));
        let training = records(&[path(51_000_294), path(57_500_008)]);
        let others = records(&(63_092_982..=63_092_993).map(path).collect::<Vec<_>>());
        let contents = ["events", "transactions"].into_iter().zip(CHOSEN);
        for ((name, chosen), (training, others)) in contents.zip(training.iter().zip(&others)) {
            // zstd needs many small samples.
            let samples: Vec<&[u8]> =
                training.iter().flat_map(|record| record.chunks(512)).collect();
            let total: usize = others.iter().map(Vec::len).sum();
            let size = |level, dictionary: &[u8]| -> usize {
                let mut compressor = Compressor::with_dictionary(level, dictionary).unwrap();
                others.iter().map(|record| compressor.compress(record).unwrap().len()).sum()
            };
            println!("{name}: {total} bytes in {} records; {} without", others.len(), size(3, &[]));
            for bytes in SIZES {
                let dictionary = zstd::dict::from_samples(&samples, bytes).unwrap();
                let sizes = [1, 2, 3, 5, 9].map(|level| size(level, &dictionary));
                println!("  dictionary {bytes}: {sizes:?} at levels 1, 2, 3, 5, 9");
                let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("encoding");
                if bytes == chosen {
                    fs::write(directory.join(format!("{name}.zdict")), &dictionary).unwrap();
                }
            }
        }
    }
}
