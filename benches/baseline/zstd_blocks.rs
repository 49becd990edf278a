//! Events as small as general compression alone makes them: their XDR, one after the other, zstd
//! level 3, 128 events at a time. No index, no transaction hash, no ledger.

const EVENTS_PER_BLOCK: usize = 128;
const LEVEL: i32 = 3;

/// Counts the bytes that compressed blocks of events take.
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

    /// Bytes of all blocks.
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
