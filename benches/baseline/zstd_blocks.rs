//! Size of events under general-purpose compression alone: their XDR, concatenated, zstd level 3,
//! 128 events per block. Stores no index, no transaction hash and no ledger.

const EVENTS_PER_BLOCK: usize = 128;
const LEVEL: i32 = 3;

/// Counts the bytes of the compressed blocks of events.
#[derive(Default)]
pub struct ZstdBlocks {
    pending: Vec<u8>,
    pending_events: usize,
    bytes: usize,
}

impl ZstdBlocks {
    /// Adds an event's XDR.
    pub fn add(&mut self, event: &[u8]) {
        self.pending.extend_from_slice(event);
        self.pending_events += 1;
        if self.pending_events == EVENTS_PER_BLOCK {
            self.close_block();
        }
    }

    /// Returns the total size of all blocks in bytes.
    pub fn finish(mut self) -> u64 {
        self.close_block();
        self.bytes as u64
    }

    fn close_block(&mut self) {
        let compressed = zstd::bulk::compress(&self.pending, LEVEL);
        self.bytes += compressed.expect("zstd compresses anything").len();
        self.pending.clear();
        self.pending_events = 0;
    }
}
