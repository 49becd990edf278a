//! One re-execution of a transaction: its outcome, the ledger as the contract host is told about it, and
//! the stack and slot that it takes on the calling thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_ledger::domain::Emit;
use soroban_env_host::LedgerInfo;
use soroban_env_host::xdr::{
    ConfigSettingEntry, ConfigSettingId, LedgerEntryData, LedgerKey, LedgerKeyConfigSetting,
    StateArchivalSettings,
};

use super::describe::describe;
use super::engine::Engine;
use super::execute::{Job, execute};
use super::fidelity::Fidelity;
use super::frame::panic_text;
use super::interface::PROTOCOL;
use super::invocation::{Invocation, Program};
use super::limits::{Bounds, Limits, Stop};
use super::lookups::{Lookups, with_state};
use super::settings::{RUN_STACK, THREAD_STACK};
use super::state::{EntryState, PreState, StateError};

/// Lifetimes of entries in ledgers, used where the network's settings are unknown: those of the
/// public network.
const MIN_TEMPORARY_TTL: u32 = 17_280;
const MIN_PERSISTENT_TTL: u32 = 2_073_600;
const MAX_TTL: u32 = 3_110_400;

/// Outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether one of the contracts was called, other than for a constructor that the program
    /// lacks. When false, there is nothing to record.
    pub entered: bool,
    /// The emitted rows in order, or what the program did wrong.
    pub result: Result<Vec<Emit>, GuestFault>,
    /// How the run compares with what the network recorded.
    pub fidelity: Fidelity,
    /// Fuel that the program used. The same in every run.
    pub fuel: u64,
    /// Duration of the run in microseconds, including state lookups.
    pub micros: u64,
    /// CPU time of the run.
    pub cpu_time: Duration,
}

/// What a program did wrong, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GuestFault(pub String);

impl GuestFault {
    /// Maximum length of the sentence in bytes, because names chosen by the program may be long.
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

/// Why a run has no outcome. The program is at fault only when a lookup failed with
/// [`StateError::Lookups`]; in all other cases the run can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Entries that the run needs are unknown as of before the transaction.
    #[error("the state before the transaction is not known: {}", list(.0))]
    StateUnavailable(Vec<LedgerKey>),
    /// A lookup of an entry failed.
    #[error("the state before the transaction could not be read: {0}")]
    State(#[from] StateError),
    /// An internal failure, such as a panic of the contract host.
    #[error("the program could not be run: {0}")]
    Internal(String),
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
    /// code. Writes nothing. On a thread with a smaller stack than [`THREAD_STACK`], each run
    /// allocates a stack of its own.
    ///
    /// # Errors
    /// [`RunError`], when there is no outcome.
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
        let slot = self.inner.run_slots.take();
        let slot = slot.map_err(|refusal| RunError::Internal(refusal.to_string()))?;
        let bounds = Arc::new(Bounds::new(limits.clone()));
        let watched = self.inner.watch.watch_run(&bounds);
        let job = Job { invocation, engine: self, program, lookups, ledger_info, bounds: &bounds };
        // A panic ends only this run.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            with_state(state, || stacker::maybe_grow(RUN_STACK, THREAD_STACK, || execute(job)))
        }));
        let cpu_time = bounds.cpu_time();
        drop((watched, slot));
        let report = ended.map_err(|panic| RunError::Internal(panic_text(&*panic)))?;
        if let Some(error) = report.failure {
            return Err(RunError::State(error));
        }
        match report.stop {
            Some(Stop::State) => return Err(RunError::StateUnavailable(report.missing)),
            Some(Stop::Internal(why)) => return Err(RunError::Internal(why)),
            Some(Stop::Guest(_)) | None => {}
        }
        Ok(Outcome {
            entered: report.entered,
            result: report.result.map_err(GuestFault::of),
            fidelity: report.fidelity,
            fuel: report.fuel,
            micros: u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            cpu_time,
        })
    }
}

/// Returns the ledger information for the host, which accepts no protocol but its own.
fn ledger_info(invocation: &Invocation, rules: Option<&StateArchivalSettings>) -> LedgerInfo {
    LedgerInfo {
        protocol_version: PROTOCOL,
        sequence_number: invocation.ledger.0,
        timestamp: invocation.closed_at,
        network_id: *invocation.network_id.as_bytes(),
        base_reserve: invocation.base_reserve,
        min_temp_entry_ttl: rules.map_or(MIN_TEMPORARY_TTL, |rules| rules.min_temporary_ttl),
        min_persistent_entry_ttl: rules
            .map_or(MIN_PERSISTENT_TTL, |rules| rules.min_persistent_ttl),
        max_entry_ttl: rules.map_or(MAX_TTL, |rules| rules.max_entry_ttl),
    }
}

/// Returns the network's settings for entry lifetimes, if they are known.
fn archival_settings(state: &dyn PreState) -> Result<Option<StateArchivalSettings>, StateError> {
    let key = LedgerKey::ConfigSetting(LedgerKeyConfigSetting {
        config_setting_id: ConfigSettingId::StateArchival,
    });
    Ok(match state.entry(&key)? {
        EntryState::Present(entry, _) => match &entry.data {
            LedgerEntryData::ConfigSetting(ConfigSettingEntry::StateArchival(settings)) => {
                Some(settings.clone())
            }
            _ => None,
        },
        EntryState::Absent | EntryState::Unknown => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_fault_messages_are_truncated() {
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
