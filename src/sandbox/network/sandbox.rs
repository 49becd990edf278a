//! The simulated network itself: its state, and what closes its ledgers.

use std::sync::Arc;

use orrery_ledger::domain::{ContractId, LedgerSeq, Network, NodeId};
use stellar_xdr::{
    AccountId, LedgerCloseMeta, LedgerEntry, LedgerEntryData, LedgerEntryExt, Limits, ScAddress,
    TransactionEnvelope, TransactionResult, WriteXdr,
};

use super::actors::PermanentAccounts;
use super::assets::Assets;
use super::batch::{Batch, Closed, FIRST_BATCH_LEDGER};
use super::buckets::Buckets;
use super::close::{TOTAL_COINS, Tip, close_ledger};
use super::close_times::{CloseTimestamp, Milliseconds};
use super::config::{MAX_TRANSACTIONS, SandboxConfig};
use super::dice::Dice;
use super::envelope::SignedTransaction;
use super::error::{Result, SandboxError};
use super::host::PROTOCOL;
use super::open_ledger::OpenLedger;
use super::plan::Planner;
use super::requests::Request;
use super::state::LedgerState;
use super::traffic::Visitors;
use super::validation::Admission;
use super::{
    batch, bootstrap, classic, close_times, exchange, market, requests, traffic, wallets, wasm,
};

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
    pub(super) config: SandboxConfig,
    pub(super) permanent: PermanentAccounts,
    pub(super) assets: Assets,
    pub(super) tip: Tip,
    pub(super) state: Arc<LedgerState>,
    pub(super) visitors: Visitors,
    /// First ledger with a market; `None` for a network without one.
    market_from: Option<LedgerSeq>,
    /// First ledger with accounts that have signers; `None` for a network without them.
    wallets_from: Option<LedgerSeq>,
    /// First ledger with an exchange; `None` for a network without one.
    exchange_from: Option<LedgerSeq>,
    /// Settings of close times in milliseconds; `None` for whole seconds.
    milliseconds: Option<Milliseconds>,
    /// The state's buckets; `None` for a network whose headers have a substitute for their hash.
    pub(super) buckets: Option<Buckets>,
}

impl Sandbox {
    /// Creates a network at its genesis, ledger 1, in which one account holds all coins.
    ///
    /// # Errors
    /// When the range of transactions or the close interval is not possible.
    pub fn new(config: SandboxConfig) -> Result<Self> {
        let (first, last) = config.transactions_per_ledger.clone().into_inner();
        if first > last || last > MAX_TRANSACTIONS {
            return Err(SandboxError(format!(
                "a sandbox ledger cannot hold {first} to {last} transactions: give a range within 0 \
                 to {MAX_TRANSACTIONS}"
            )));
        }
        if config.close_interval == 0 {
            // Close times would not increase.
            return Err(SandboxError(
                "a close interval of 0 seconds is not possible: give at least 1".to_owned(),
            ));
        }
        let permanent =
            PermanentAccounts::new(config.network.id(), config.seed, (2 * last).max(MIN_TRADERS));
        let assets = Assets::new(config.network.id(), &permanent.issuer.account());
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
            exchange_from: None,
            milliseconds: None,
            buckets: None,
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

    /// Adds an exchange with a factory of pools, as [`Self::with_market`] adds a market.
    pub fn with_exchange(self, from: LedgerSeq) -> Self {
        Self { exchange_from: Some(from.max(FIRST_MARKET_LEDGER)), ..self }
    }

    /// Enables close times in milliseconds from ledger `from` on. From there, every second in which
    /// a ledger closes has `per_second` ledgers (1 to 1000); with 1, the seconds are those of a
    /// network without milliseconds. A [snapshot](Self::snapshot) does not contain this setting: it
    /// must be made again after a restore.
    pub fn with_milliseconds(self, from: LedgerSeq, per_second: u32) -> Self {
        let milliseconds = Milliseconds { from, per_second: per_second.clamp(1, 1000) };
        Self { milliseconds: Some(milliseconds), ..self }
    }

    /// Returns the only validator of a network with this seed, which signs its ledgers.
    pub fn validator(seed: u64) -> NodeId {
        NodeId(PermanentAccounts::validator(seed).public_key())
    }

    /// Returns the contracts of the smart account and the wallets, whether they exist yet or not.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn wallets(network: &Network) -> Result<SandboxWallets> {
        let of = |kind: wallets::Kind| kind.contract(network.id());
        Ok(SandboxWallets {
            smart_account: of(wallets::Kind::Smart)?,
            legacy: of(wallets::Kind::Legacy)?,
            v1: of(wallets::Kind::V1)?,
            credential: wallets::CREDENTIAL.to_vec(),
        })
    }

    /// Returns the contracts of the network itself: those of its assets, the market, the smart account
    /// and the wallets, whether they exist yet or not.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn contracts(&self) -> Result<Vec<ContractId>> {
        let network = &self.config.network;
        let SandboxWallets { smart_account, legacy, v1, .. } = Self::wallets(network)?;
        let assets = Assets::new(network.id(), &self.permanent.issuer.account());
        let assets = assets.all().map(|asset| asset.contract);
        let others = [Self::market_contract(network)?, smart_account, legacy, v1];
        Ok(assets.into_iter().chain(others).collect())
    }

    /// Returns the contract of the market, whether it exists yet or not.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn market_contract(network: &Network) -> Result<ContractId> {
        market::contract(network.id())
    }

    /// Returns the factory of the exchange, whether it exists yet or not.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn exchange_factory(network: &Network) -> Result<ContractId> {
        exchange::factory(network.id())
    }

    /// Closes the next ledger, one interval after the latest, and returns its `LedgerCloseMeta`
    /// as XDR.
    ///
    /// # Errors
    /// When the ledger sequences are exhausted, or on a defect of the sandbox or the contract host.
    pub fn next_ledger(&mut self) -> Result<Vec<u8>> {
        self.next_ledger_at(0)
    }

    /// As [`Self::next_ledger`], but closes the ledger at `close_time` (UNIX seconds) if that is
    /// later: for resuming a halted network. Later ledgers depend on that time, so they can be
    /// reproduced only from a [snapshot](Self::snapshot) taken afterwards, and not by
    /// [`Self::skip_to`].
    ///
    /// # Errors
    /// As [`Self::next_ledger`].
    pub fn next_ledger_at(&mut self, close_time: u64) -> Result<Vec<u8>> {
        self.close(close_time, &[], false)
    }

    /// As [`Self::next_ledger`], but the validators drop the proposed transaction set (CAP-83): the
    /// ledger is empty, and its header contains the hash of that set.
    ///
    /// # Errors
    /// As [`Self::next_ledger`].
    pub fn next_ledger_without_set(&mut self) -> Result<Vec<u8>> {
        let visitors = self.visitors.clone();
        let ledger = self.close(0, &[], true)?;
        self.visitors = visitors;
        Ok(ledger)
    }

    /// Closes the next ledger as [`Self::next_ledger`] does, with the requested transactions added.
    /// Each is simulated against the latest ledger, and they are applied in an order that follows
    /// from their hashes.
    ///
    /// # Errors
    /// When the simulation of a request fails, or there are more requests
    /// than accounts; no ledger is closed then. Otherwise as [`Self::next_ledger`].
    pub fn next_ledger_with(&mut self, requests: &[Request]) -> Result<Vec<u8>> {
        self.close(0, requests, false)
    }

    /// Closes the next ledger, not before `close_time`. With `dropped`, the validators drop the
    /// transaction set.
    fn close(&mut self, close_time: u64, requests: &[Request], dropped: bool) -> Result<Vec<u8>> {
        let sequence = self.next_sequence()?;
        let latest = self.latest_close_time();
        let close_timestamp =
            close_times::next(&self.config, latest, self.milliseconds, sequence, close_time);
        let (meta, _) = self.close_with(sequence, close_timestamp, requests, None, dropped)?;
        Ok(meta.to_xdr(Limits::none())?)
    }

    /// Closes the next ledger with a batch. Ledgers before [`FIRST_BATCH_LEDGER`] leave out its
    /// transactions and fund no addresses.
    ///
    /// # Errors
    /// As [`Self::next_ledger`].
    pub fn next_ledger_of(&mut self, batch: &Batch) -> Result<Closed> {
        let sequence = self.next_sequence()?;
        let close_timestamp = batch::close_timestamp(&self.tip, batch);
        let (meta, funding) =
            self.close_with(sequence, close_timestamp, &[], Some(batch), false)?;
        batch::closed(&meta, funding)
    }

    fn next_sequence(&self) -> Result<u32> {
        let latest = self.tip.header.ledger_seq;
        latest.checked_add(1).ok_or_else(|| {
            SandboxError(format!("ledger {latest} is the last one a network can have"))
        })
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
    ) -> Result<(LedgerCloseMeta, Option<SignedTransaction>)> {
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
            Some(batch) if sequence >= FIRST_BATCH_LEDGER.0 => batch::plan(&mut planner, batch)?,
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
            if self.exchange_from.is_some_and(|from| sequence >= from.0) {
                exchange::plan(&mut planner)?;
            }
        }
        let transactions = planner.into_transactions();
        let funding = funding.and_then(|hash| {
            transactions.iter().find(|transaction| transaction.hash.0 == hash).cloned()
        });
        let (tip, meta) = close_ledger(
            &self.tip,
            &mut self.state,
            &mut self.buckets,
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
    pub fn skip_to(&mut self, sequence: LedgerSeq) -> Result<()> {
        let latest = self.latest_ledger();
        if sequence < latest {
            return Err(SandboxError(format!(
                "the sandbox is at ledger {latest} and cannot go back to {sequence}"
            )));
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
        PROTOCOL
    }

    /// Returns the close time of the latest ledger in UNIX milliseconds; the last millisecond of
    /// its second when the header states seconds.
    pub fn latest_close_time_ms(&self) -> u64 {
        batch::close_time_ms(&self.tip)
    }

    /// Returns whether an account exists.
    pub fn has_account(&self, account: &AccountId) -> bool {
        self.state.account(account).is_some()
    }

    /// Returns the id of the contract that a request creates with `salt`.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn contract(&self, salt: [u8; 32]) -> Result<ContractId> {
        wasm::contract_id(self.config.network.id(), &self.permanent.root.address(), salt)
    }

    /// Returns the accounts that trade with one another, for use in the arguments of requests.
    pub fn accounts(&self) -> Vec<ScAddress> {
        self.permanent.traders.iter().map(|trader| trader.address()).collect()
    }

    /// Checks whether a transaction could be applied in the next ledger, if that closed at `now`
    /// (UNIX seconds). Returns the result that a node would return when it could not.
    ///
    /// # Errors
    /// When the envelope cannot be hashed.
    pub fn check(
        &self,
        envelope: &TransactionEnvelope,
        now: u64,
    ) -> Result<Result<(), TransactionResult>> {
        let admission = Admission {
            network: self.config.network.id(),
            permanent: &self.permanent,
            state: &self.state,
            sequence: self.tip.header.ledger_seq.saturating_add(1),
        };
        admission.check(envelope, now)
    }

    /// Returns the hash of a transaction on this network.
    ///
    /// # Errors
    /// When the envelope has version 0, or cannot be hashed.
    pub fn hash(&self, envelope: &TransactionEnvelope) -> Result<[u8; 32]> {
        Ok(SignedTransaction::submitted(envelope.clone(), self.config.network.id())?.hash.0)
    }
}
