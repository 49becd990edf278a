//! A simulated Stellar network that is generated from a seed: valid, hash-linked ledgers whose
//! contract calls the Soroban host executes. Implements the protocol as far as its few accounts use
//! it. Performs no I/O and reads no clock.
//!
//! The same configuration always yields the same bytes. Accounts pay each other in the native asset
//! and in two issued ones, by classic operations and through Stellar asset contracts; some
//! transactions fail, some are fee bumps, some ledgers are empty. From a configurable ledger on,
//! the accounts also trade in a market, a WASM contract. From another configurable ledger on, close
//! times are in milliseconds.
//!
//! Differences from a node: the bucket list hash is a chain of digests over all changes, there are
//! no upgrades, no SCP messages and no diagnostic events, and clusters that could run in parallel
//! are applied one after the other.

mod actors;
mod apply;
mod assets;
mod batch;
mod bootstrap;
mod classic;
mod close;
mod close_times;
mod contracts;
mod dice;
mod envelope;
mod events;
mod fees;
mod footprint;
mod market;
mod plan;
mod requests;
mod simulation;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod traffic;
mod tx_set;
mod validation;
mod wallets;
mod wasm;

use std::ops::RangeInclusive;
use std::sync::Arc;

use stellar_xdr::{
    LedgerCloseMeta, LedgerEntry, LedgerEntryData, LedgerEntryExt, Limits, WriteXdr,
};

pub use batch::{Batch, Closed, FIRST_BATCH_LEDGER, Funding};
pub use requests::Request;
pub use simulation::{AuthMode, Simulated};

use actors::PermanentAccounts;
use assets::Assets;
use close::{OpenLedger, TOTAL_COINS, Tip, close_ledger};
use close_times::{CloseTimestamp, Milliseconds};
use dice::Dice;
use envelope::SignedTransaction;
use orrery_ledger::domain::{ContractId, LedgerSeq, Network};
use plan::Planner;
use state::LedgerState;
use traffic::Visitors;

/// Maximum of the range [`SandboxConfig::transactions_per_ledger`].
pub const MAX_TRANSACTIONS: usize = 45;
/// First ledger that a sandbox makes; ledger 1 is its genesis.
pub const FIRST_LEDGER: LedgerSeq = LedgerSeq(2);
/// First ledger in which a [market](Sandbox::with_market) can begin; earlier ledgers create the
/// accounts.
pub const FIRST_MARKET_LEDGER: LedgerSeq = LedgerSeq(bootstrap::LAST_LEDGER + 1);
/// Indexing program for the market's contract: the same module with an emit added, which writes
/// each trade as a row of the table `trade`.
pub const MARKET_PROGRAM: &[u8] = market::PROGRAM;
/// Minimum number of accounts that trade with one another.
const MIN_TRADERS: usize = 16;

/// Configuration of a sandbox. The same values always yield the same ledgers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Network that transactions are signed for.
    pub network: Network,
    /// Seed of all keys and pseudo-random numbers.
    pub seed: u64,
    /// Close time of ledger 2, the first one, in Unix seconds.
    pub start_time: u64,
    /// Seconds between two ledgers, at least 1.
    pub close_interval: u64,
    /// Range of the number of transactions in a regular ledger, at most [`MAX_TRANSACTIONS`]. Some
    /// ledgers are empty regardless, and the first five follow a script.
    pub transactions_per_ledger: RangeInclusive<usize>,
}

/// Why a sandbox cannot be made or continued.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The configuration asks for an impossible number of transactions.
    #[error(
        "a sandbox ledger cannot hold {first} to {last} transactions: give a range within 0 to {MAX_TRANSACTIONS}"
    )]
    TransactionRange {
        /// Start of the range.
        first: usize,
        /// End of the range.
        last: usize,
    },
    /// The close interval is 0, so that close times would not increase.
    #[error("a close interval of 0 seconds is not possible: give at least 1")]
    CloseInterval,
    /// The ledger sequences are exhausted.
    #[error("ledger {0} is the last one a network can have")]
    LastLedger(u32),
    /// [`Sandbox::skip_to`] was called with a ledger before the latest.
    #[error("the sandbox is at ledger {latest} and cannot go back to {wanted}")]
    Passed {
        /// Latest ledger that was made.
        latest: LedgerSeq,
        /// Ledger that was requested.
        wanted: LedgerSeq,
    },
    /// The bytes are not a snapshot of this version.
    #[error("these bytes are not a sandbox snapshot: {0}")]
    Snapshot(&'static str),
    /// The snapshot belongs to a sandbox with another configuration.
    #[error(
        "the snapshot was taken of a sandbox with another configuration: continue it with the one it was started with"
    )]
    OtherConfiguration,
    /// A request cannot be added to the next ledger: the request and the reason.
    #[error("the sandbox cannot add {0} to its next ledger: {1}")]
    Refused(String, &'static str),
    /// The contract host failed for a reason other than the call itself.
    #[error("the contract host cannot {step}: {reason}")]
    Host {
        /// Step that failed.
        step: &'static str,
        /// The host's error message.
        reason: String,
    },
    /// A value does not fit its XDR type.
    #[error("a ledger value cannot be encoded: {0}")]
    Xdr(#[from] stellar_xdr::Error),
    /// The sandbox's state is inconsistent, which is a defect of the sandbox.
    #[error("the state of the sandbox is inconsistent: {0}")]
    Inconsistent(String),
}

/// Contracts of the sandbox that are accounts with signers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxWallets {
    /// A smart account.
    pub smart_account: ContractId,
    /// A passkey wallet of the legacy generation.
    pub legacy: ContractId,
    /// A passkey wallet of v1.
    pub v1: ContractId,
    /// Id of the credential that all of them have as a signer.
    pub credential: Vec<u8>,
}

/// A simulated network that makes one ledger per call.
#[derive(Debug, Clone)]
pub struct Sandbox {
    config: SandboxConfig,
    permanent: PermanentAccounts,
    assets: Assets,
    tip: Tip,
    state: Arc<LedgerState>,
    visitors: Visitors,
    /// First ledger with a market; `None` for a network without one.
    market_from: Option<LedgerSeq>,
    /// First ledger with accounts that have signers; `None` for a network without them.
    wallets_from: Option<LedgerSeq>,
    /// Settings of close times in milliseconds; `None` for whole seconds.
    milliseconds: Option<Milliseconds>,
}

impl Sandbox {
    /// Creates a network at its genesis, ledger 1, in which one account holds all coins.
    ///
    /// # Errors
    /// When the range of transactions or the close interval is not possible.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        let (first, last) = config.transactions_per_ledger.clone().into_inner();
        if first > last || last > MAX_TRANSACTIONS {
            return Err(SandboxError::TransactionRange { first, last });
        }
        if config.close_interval == 0 {
            return Err(SandboxError::CloseInterval);
        }
        let permanent =
            PermanentAccounts::new(config.network.id(), config.seed, (2 * last).max(MIN_TRADERS));
        let assets = Assets::new(config.network.id(), &permanent.issuer.account())?;
        let tip = Tip::genesis(config.start_time.saturating_sub(config.close_interval))?;
        let root = classic::new_account(permanent.root.account(), TOTAL_COINS, 0);
        let state = LedgerState::from_entries(vec![LedgerEntry {
            last_modified_ledger_seq: 1,
            data: LedgerEntryData::Account(root),
            ext: LedgerEntryExt::V0,
        }])?;
        let visitors = Visitors { seed: config.seed, ..Visitors::default() };
        let state = Arc::new(state);
        Ok(Self {
            config,
            permanent,
            assets,
            tip,
            state,
            visitors,
            market_from: None,
            wallets_from: None,
            milliseconds: None,
        })
    }

    /// Adds a market from ledger `from` on, or from [`FIRST_MARKET_LEDGER`] if that is later.
    /// Earlier ledgers are those of a network without one. A [snapshot](Self::snapshot) does not
    /// contain this setting: it must be made again after a restore.
    pub fn with_market(self, from: LedgerSeq) -> Self {
        Self { market_from: Some(from.max(FIRST_MARKET_LEDGER)), ..self }
    }

    /// Adds a smart account and passkey wallets, as [`Self::with_market`] adds a market.
    pub fn with_wallets(self, from: LedgerSeq) -> Self {
        Self { wallets_from: Some(from.max(FIRST_MARKET_LEDGER)), ..self }
    }

    /// Returns the contracts of the smart account and the wallets, whether they exist yet or not.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn wallets(network: &Network) -> Result<SandboxWallets, SandboxError> {
        let of = |kind: wallets::Kind| kind.contract(network.id());
        Ok(SandboxWallets {
            smart_account: of(wallets::Kind::Smart)?,
            legacy: of(wallets::Kind::Legacy)?,
            v1: of(wallets::Kind::V1)?,
            credential: wallets::CREDENTIAL.to_vec(),
        })
    }

    /// Returns the contract of the market, whether it exists yet or not.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn market_contract(network: &Network) -> Result<ContractId, SandboxError> {
        market::contract(network.id())
    }

    /// Closes the next ledger, one interval after the latest, and returns its `LedgerCloseMeta`
    /// as XDR.
    ///
    /// # Errors
    /// When the ledger sequences are exhausted, or on a defect of the sandbox or the contract host.
    pub fn next_ledger(&mut self) -> Result<Vec<u8>, SandboxError> {
        self.next_ledger_at(0)
    }

    /// As [`Self::next_ledger`], but closes the ledger at `close_time` (UNIX seconds) if that is
    /// later: for resuming a halted network. Later ledgers depend on that time, so they can be
    /// reproduced only from a [snapshot](Self::snapshot) taken afterwards, and not by
    /// [`Self::skip_to`].
    ///
    /// # Errors
    /// As [`Self::next_ledger`].
    pub fn next_ledger_at(&mut self, close_time: u64) -> Result<Vec<u8>, SandboxError> {
        self.close(close_time, &[], false)
    }

    /// Closes the next ledger, not before `close_time`. With `dropped`, the validators drop the
    /// transaction set.
    fn close(
        &mut self,
        close_time: u64,
        requests: &[Request],
        dropped: bool,
    ) -> Result<Vec<u8>, SandboxError> {
        let sequence = self.next_sequence()?;
        let close_timestamp = self.close_timestamp(sequence, close_time);
        let (meta, _) = self.close_with(sequence, close_timestamp, requests, None, dropped)?;
        Ok(meta.to_xdr(Limits::none())?)
    }

    fn close_batch(&mut self, batch: &Batch) -> Result<Closed, SandboxError> {
        let sequence = self.next_sequence()?;
        let close_timestamp = batch::close_timestamp(&self.tip, batch);
        let (meta, funding) =
            self.close_with(sequence, close_timestamp, &[], Some(batch), false)?;
        batch::closed(&meta, funding)
    }

    fn next_sequence(&self) -> Result<u32, SandboxError> {
        let latest = self.tip.header.ledger_seq;
        latest.checked_add(1).ok_or(SandboxError::LastLedger(latest))
    }

    /// Closes a ledger. Returns its metadata and the transaction that funds the batch's addresses,
    /// if any.
    fn close_with(
        &mut self,
        sequence: u32,
        close_timestamp: CloseTimestamp,
        requests: &[Request],
        batch: Option<&Batch>,
        dropped: bool,
    ) -> Result<(LedgerCloseMeta, Option<SignedTransaction>), SandboxError> {
        let ledger = OpenLedger {
            network: self.config.network.id(),
            assets: &self.assets,
            sequence,
            close_time: close_timestamp.seconds,
            close_time_ms: close_timestamp.milliseconds,
            dropped,
        };
        let dice = Dice::for_ledger(self.config.seed, sequence);
        let mut visitors = self.visitors.clone();
        let mut planner = Planner::new(&self.permanent, &ledger, &self.state, dice);
        let funding = match batch {
            Some(batch) if sequence >= FIRST_BATCH_LEDGER.0 => {
                batch::plan(self, &mut planner, batch)?
            }
            _ => None,
        };
        requests::plan(&mut planner, requests)?;
        if sequence <= bootstrap::LAST_LEDGER {
            bootstrap::plan(&mut planner, sequence)?;
        } else {
            let (fewest, most) = self.config.transactions_per_ledger.clone().into_inner();
            let more = planner.dice.below((most - fewest) as u64 + 1);
            let count = fewest + usize::try_from(more).unwrap_or(0);
            traffic::plan(&mut planner, &mut visitors, count)?;
            let open = self.market_from.is_some_and(|from| sequence >= from.0);
            if open && !planner.is_empty() {
                market::plan(&mut planner)?;
            }
            if self.wallets_from.is_some_and(|from| sequence >= from.0) {
                wallets::plan(&mut planner)?;
            }
        }
        let transactions = planner.into_transactions();
        let funding = funding.and_then(|hash| {
            transactions.iter().find(|transaction| transaction.hash.0 == hash).cloned()
        });
        let (tip, meta) = close_ledger(
            &self.tip,
            &mut self.state,
            &ledger,
            transactions,
            &self.permanent.validator,
        )?;
        self.tip = tip;
        self.visitors = visitors;
        Ok((meta, funding))
    }

    /// Makes ledgers up to and including `sequence` and discards them.
    ///
    /// # Errors
    /// When `sequence` is before the latest ledger, and as [`Self::next_ledger`].
    pub fn skip_to(&mut self, sequence: LedgerSeq) -> Result<(), SandboxError> {
        if sequence < self.latest_ledger() {
            return Err(SandboxError::Passed { latest: self.latest_ledger(), wanted: sequence });
        }
        while self.latest_ledger() < sequence {
            self.next_ledger()?;
        }
        Ok(())
    }

    /// Returns the latest ledger that was made; 1, the genesis, before the first.
    pub fn latest_ledger(&self) -> LedgerSeq {
        LedgerSeq(self.tip.header.ledger_seq)
    }

    /// Returns the close time of the latest ledger, in UNIX seconds.
    pub fn latest_close_time(&self) -> u64 {
        self.tip.header.scp_value.close_time.0
    }

    /// Returns the protocol version of every ledger.
    pub fn protocol(&self) -> u32 {
        contracts::PROTOCOL
    }
}
