//! Ledgers for test sources to serve, and what a store holds once all of them are stored: sandbox
//! ledgers, and real ones of the public network.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery_ledger::decode::{self, HeaderView};
use orrery_ledger::domain::{LedgerHash, LedgerSeq, Network};
use orrery_source::files::LedgerFiles;

use super::contents::Contents;
use super::data;
use super::sandbox::{self, local, sandbox_of};

/// Number of sandbox ledgers, starting at ledger 2.
const MADE: u32 = 39;

/// Consecutive ledgers of a network.
pub struct Chain {
    pub network: Network,
    pub ledgers: Vec<ChainLedger>,
    /// Content of a store after an uninterrupted run.
    pub whole: Contents,
}

/// One ledger, in the forms in which sources serve it.
#[derive(Clone)]
pub struct ChainLedger {
    pub sequence: u32,
    pub hash: LedgerHash,
    pub close_time: u64,
    pub xdr: Vec<u8>,
    pub base64: String,
}

impl ChainLedger {
    pub fn new(xdr: Vec<u8>) -> Self {
        let HeaderView { sequence, hash, close_time, .. } = decode::header(&xdr).unwrap();
        let base64 = STANDARD.encode(&xdr);
        Self { sequence: sequence.0, hash, close_time, xdr, base64 }
    }
}

impl Chain {
    fn new(network: Network, ledgers: impl Iterator<Item = Vec<u8>>) -> Self {
        let ledgers: Vec<_> = ledgers.map(ChainLedger::new).collect();
        let mut whole = Contents::default();
        ledgers.iter().for_each(|ledger| whole.add(&ledger.xdr, &network));
        Self { network, ledgers, whole }
    }

    fn made(network: Network, seed: u64) -> Self {
        let sandbox = sandbox_of(network.clone(), seed, 0..=8);
        let ledgers = sandbox::ledgers(sandbox.with_milliseconds(LedgerSeq(20), 3), MADE);
        Self::new(network, ledgers.into_iter())
    }

    pub fn first(&self) -> u32 {
        self.ledgers[0].sequence
    }

    pub fn last(&self) -> u32 {
        self.ledgers[self.ledgers.len() - 1].sequence
    }

    pub fn ledger(&self, sequence: u32) -> &ChainLedger {
        &self.ledgers[(sequence - self.first()) as usize]
    }
}

/// Sandbox ledgers 2 to 40.
pub static MAIN: LazyLock<Chain> = LazyLock::new(|| Chain::made(local(), 1));

/// Ledgers with the same sequences on the same network that do not link to those of [`MAIN`].
pub static FORK: LazyLock<Chain> = LazyLock::new(|| Chain::made(local(), 2));

/// Ledgers with the same sequences on another network.
pub static FOREIGN: LazyLock<Chain> =
    LazyLock::new(|| Chain::made(Network::from_passphrase("Elsewhere ; May 2026"), 1));

/// Twelve ledgers of the public network. Prints a message and returns `None` when they are not
/// available.
pub fn public() -> Option<&'static Chain> {
    static PUBLIC: LazyLock<Option<Chain>> = LazyLock::new(|| {
        let lake = data::folder()?.join("ledgers/lake-pubnet");
        let ledgers = LedgerFiles::new(&[lake]).map(|ledger| ledger.unwrap().xdr);
        Some(Chain::new(Network::from_name_or_passphrase("mainnet"), ledgers))
    });
    if data::missing() { None } else { PUBLIC.as_ref() }
}
