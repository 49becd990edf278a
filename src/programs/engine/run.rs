//! One re-execution: what goes in, what comes out, and what it takes from the thread that asks for it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use soroban_env_host::xdr::{
    AccountId, ConfigSettingEntry, ConfigSettingId, ContractEvent, ContractId as XdrContractId,
    Hash, HostFunction, LedgerEntryChanges, LedgerEntryData, LedgerKey, LedgerKeyConfigSetting,
    LedgerKeyContractData, ScAddress, ScVal, SorobanAuthorizationEntry, StateArchivalSettings,
};

use super::describe::describe;
use super::execute::{Job, execute};
use super::fidelity::Fidelity;
use super::limits::{Bounds, Limits, Stop};
use super::lookups::{Lookups, with_state};
use super::module::Module;
use super::settings::{RUN_STACK, THREAD_STACK};
use super::{Engine, ledger_info};
use crate::domain::{ContractId, LedgerSeq, NetworkId, TxHash};
use crate::programs::emit::Emit;
use crate::programs::state::{Known, PreState, StateError};

/// One transaction to run again.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The ledger that it is in.
    pub ledger: LedgerSeq,
    /// Close time of that ledger, in Unix seconds.
    pub closed_at: u64,
    /// The network's id: SHA-256 of its passphrase.
    pub network_id: NetworkId,
    /// Protocol of that ledger. The host runs by its own, the newest; programs are told this one.
    pub protocol: u32,
    /// Base reserve in that ledger's header, in stroops.
    pub base_reserve: u32,
    /// The transaction.
    pub transaction: TxHash,
    /// Its place among the ledger's transactions, from 1.
    pub application_order: u32,
    /// The operation's source account.
    pub source_account: AccountId,
    /// What it calls.
    pub host_function: HostFunction,
    /// Its authorization entries. When one of them is for a contract, authorization is checked as on
    /// the network, so that the contract's `__check_auth` runs; else everything counts as authorized.
    pub authorization: Vec<SorobanAuthorizationEntry>,
    /// Keys of its footprint, which are looked up before the run. May be empty.
    pub footprint: Vec<LedgerKey>,
    /// What the network recorded; `None` leaves the run unchecked.
    pub recorded: Option<Recorded>,
}

impl Invocation {
    /// Seed of the contracts' random numbers: the same in every run of a transaction, and not the
    /// network's.
    pub fn seed(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"orrery: random numbers of a run");
        hash.update(self.ledger.0.to_be_bytes());
        hash.update(self.transaction.0);
        hash.finalize().into()
    }
}

/// What the network recorded of a transaction.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The host function's result.
    pub return_value: ScVal,
    /// Contract and system events in order, without diagnostic ones.
    pub events: Vec<ContractEvent>,
    /// Ledger entry changes of the operation.
    pub changes: LedgerEntryChanges,
}

/// A program and the contracts whose code it replaces.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Its code.
    pub module: &'a Module,
    /// The contracts.
    pub contracts: &'a [ContractId],
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether one of the contracts was called, except for a constructor that the program does not
    /// have. When not, there is nothing to record.
    pub entered: bool,
    /// The rows, in order, or what the program did wrong.
    pub result: Result<Vec<Emit>, GuestFault>,
    /// How it compares with what the network recorded.
    pub fidelity: Fidelity,
    /// Fuel that the program used. The same on every run.
    pub fuel: u64,
    /// How long it took, in microseconds, with the time that looking up state took.
    pub micros: u64,
    /// How long it had a processor.
    pub on_processor: Duration,
}

/// What a program did wrong, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GuestFault(pub String);

impl GuestFault {
    /// Of so many bytes at the most: what a program chooses to name may be long.
    const LONGEST: usize = 1 << 10;

    fn of(mut sentence: String) -> Self {
        if sentence.len() > Self::LONGEST {
            let end = "…";
            sentence.truncate(sentence.floor_char_boundary(Self::LONGEST - end.len()));
            sentence.push_str(end);
        }
        Self(sentence)
    }
}

/// Why there is no outcome. None of this is the program's fault; it can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Entries that the run needs are not known as they were before the transaction.
    #[error("the state before the transaction is not known: {}", list(.0))]
    StateUnavailable(Vec<LedgerKey>),
    /// Looking entries up failed.
    #[error("the state before the transaction could not be read: {0}")]
    State(#[from] StateError),
    /// Our own fault.
    #[error("the program could not be run: {0}")]
    Ours(String),
}

fn list(keys: &[LedgerKey]) -> String {
    match keys {
        [] => "some entry".to_owned(),
        [key] => describe(key),
        [key, rest @ ..] => format!("{} and {} more", describe(key), rest.len()),
    }
}

impl Engine {
    /// Runs a transaction again on the state before it, with the program in place of its contracts'
    /// code. Nothing of the result is written anywhere. On a thread with less than [`THREAD_STACK`] of
    /// stack, each run makes a stack of its own.
    ///
    /// # Errors
    /// [`RunError`]: never the program's fault.
    pub fn run(
        &self,
        invocation: &Invocation,
        state: &dyn PreState,
        program: Program<'_>,
        limits: &Limits,
    ) -> Result<Outcome, RunError> {
        let begun = Instant::now();
        let lookups = Lookups::begin(invocation, program.contracts, state)?;
        let ledger_info = ledger_info(invocation, archival_settings(state)?.as_ref());
        let place = self.inner.places.take();
        let place = place.map_err(|refusal| RunError::Ours(refusal.to_string()))?;
        let bounds = Arc::new(Bounds::new(limits.clone()));
        let watched = self.inner.watch.over(&bounds);
        let job = Job { invocation, engine: self, program, lookups, ledger_info, bounds: &bounds };
        // A panic ends this run and nothing else.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            with_state(state, || stacker::maybe_grow(RUN_STACK, THREAD_STACK, || execute(job)))
        }));
        let on_processor = bounds.on_processor();
        drop((watched, place));
        let report = ended.map_err(|panic| RunError::Ours(panic_text(&*panic)))?;
        if let Some(error) = report.failure {
            return Err(RunError::State(error));
        }
        match report.stop {
            Some(Stop::State) => return Err(RunError::StateUnavailable(report.missing)),
            Some(Stop::Ours(why)) => return Err(RunError::Ours(why)),
            Some(Stop::Guest(_)) | None => {}
        }
        Ok(Outcome {
            entered: report.entered,
            result: report.result.map_err(GuestFault::of),
            fidelity: report.fidelity,
            fuel: report.fuel,
            micros: u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            on_processor,
        })
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message");
    format!("the contract host panicked: {text}")
}

/// Key of a contract's instance.
pub(super) fn instance_key(contract: &ContractId) -> LedgerKey {
    LedgerKey::ContractData(LedgerKeyContractData {
        contract: ScAddress::Contract(XdrContractId(Hash(contract.0))),
        key: ScVal::LedgerKeyContractInstance,
        durability: soroban_env_host::xdr::ContractDataDurability::Persistent,
    })
}

/// The network's rules for lifetimes, when they are known.
fn archival_settings(state: &dyn PreState) -> Result<Option<StateArchivalSettings>, StateError> {
    let key = LedgerKey::ConfigSetting(LedgerKeyConfigSetting {
        config_setting_id: ConfigSettingId::StateArchival,
    });
    Ok(match state.entry(&key)? {
        Known::Present(entry, _) => match &entry.data {
            LedgerEntryData::ConfigSetting(ConfigSettingEntry::StateArchival(settings)) => {
                Some(settings.clone())
            }
            _ => None,
        },
        Known::Absent | Known::Unknown => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_cut_where_it_is_long() {
        assert_eq!(GuestFault::of("short".to_owned()).0, "short");
        for text in ["a".repeat(1024), "ä".repeat(512)] {
            assert_eq!(GuestFault::of(text.clone()).0, text);
        }
        for text in ["a".repeat(1025), "ä".repeat(80_000)] {
            let cut = GuestFault::of(text).0;
            assert!((1020..=1024).contains(&cut.len()) && cut.ends_with('…'), "{}", cut.len());
        }
    }
}
