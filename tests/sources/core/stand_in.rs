//! The stand-in for stellar-core with the chain of these tests.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use orrery::domain::{LedgerSeq, Network};
use orrery::source::captive_core::{CoreSettings, Limits, Mode};

use orrery_testkit::contents::Contents;
use orrery_testkit::sandbox::{self, local, sandbox};
pub use orrery_testkit::stand_in_core::{StandIn, cores};

/// Number of generated ledgers; the first is ledger 2.
const LEDGERS: u32 = 300;

/// Consecutive ledgers of one network.
pub struct Chain {
    pub network: Network,
    /// XDR of each ledger, from ledger 2 on.
    ledgers: Vec<Vec<u8>>,
}

/// The chain of all tests.
pub static CHAIN: LazyLock<Chain> = LazyLock::new(|| {
    let sandbox = sandbox(1, 0..=1).with_milliseconds(LedgerSeq(12), 3);
    Chain { network: local(), ledgers: sandbox::ledgers(sandbox, LEDGERS) }
});

impl Chain {
    pub fn last(&self) -> u32 {
        1 + self.ledgers.len() as u32
    }

    pub fn ledger(&self, sequence: u32) -> &[u8] {
        &self.ledgers[sequence as usize - 2]
    }

    /// Returns what an uninterrupted run from `first` on stores.
    pub fn stored_from(&self, first: u32) -> Contents {
        let mut contents = Contents::default();
        for sequence in first..=self.last() {
            contents.add(self.ledger(sequence), &self.network);
        }
        contents
    }
}

/// A stand-in of [`CHAIN`].
pub trait OfChain {
    /// Streams all of [`CHAIN`], without faults.
    fn new() -> Self;

    /// Returns settings for a core that works in `storage`.
    fn settings(&self, storage: &Path, mode: Mode, first: u32) -> CoreSettings;
}

impl OfChain for StandIn {
    fn new() -> Self {
        Self::of((2..=CHAIN.last()).map(|sequence| (sequence, CHAIN.ledger(sequence))))
    }

    fn settings(&self, storage: &Path, mode: Mode, first: u32) -> CoreSettings {
        let own_config = (mode != Mode::Standalone).then(|| self.own_config());
        CoreSettings {
            binary: self.program(),
            storage: storage.to_owned(),
            network: CHAIN.network.clone(),
            mode,
            own_config,
            http_port: 0,
            query: None,
            first: Some(LedgerSeq(first)),
            limits: Limits { answer: Duration::from_millis(200), ..Limits::default() },
        }
    }
}
