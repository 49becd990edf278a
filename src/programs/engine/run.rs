//! One re-execution: what goes in, what comes out, and the thread that waits for it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use soroban_env_host::xdr::{
    AccountId, ConfigSettingEntry, ConfigSettingId, ContractEvent, ContractId as XdrContractId,
    Hash, HostFunction, LedgerEntryChanges, LedgerEntryData, LedgerKey, LedgerKeyConfigSetting,
    LedgerKeyContractData, ScAddress, ScVal, SorobanAuthorizationEntry, StateArchivalSettings,
};

use super::describe::describe;
use super::execute::{Job, Report, execute};
use super::fidelity::Fidelity;
use super::limits::{Bounds, Limits, Stop};
use super::module::Module;
use super::snapshot::{Answer, is_nonce};
use super::thread_clock::ThreadClock;
use super::workers::panic_text;
use super::{Engine, ledger_info};
use crate::domain::{ContractId, LedgerSeq, NetworkId, TxHash};
use crate::programs::emit::Emit;
use crate::programs::state::{Known, PreState, StateError};

/// How often a run that is over its time is reminded, until it has stopped.
const REMIND: Duration = Duration::from_millis(10);

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

/// What a running job says to the thread that waits for it.
pub(super) enum Message {
    /// It needs an entry.
    Wanted(Box<LedgerKey>, SyncSender<Answer>),
    /// It is done, or panicked.
    Done(Box<Result<Report, String>>, Duration),
}

impl Engine {
    /// Runs a transaction again on the state before it, with the program in place of its contracts'
    /// code. Nothing of the result is written anywhere.
    ///
    /// # Errors
    /// [`RunError`]: never the program's fault.
    pub fn run(
        &self,
        invocation: &Arc<Invocation>,
        state: &dyn PreState,
        program: Program<'_>,
        limits: &Limits,
    ) -> Result<Outcome, RunError> {
        let begun = Instant::now();
        let bounds = Arc::new(Bounds::new(limits.clone()));
        let job = Job {
            invocation: Arc::clone(invocation),
            engine: self.clone(),
            module: program.module.clone(),
            contracts: program.contracts.to_vec(),
            before: look_up_footprint(invocation, program.contracts, state)?,
            ledger_info: ledger_info(invocation, archival_settings(state)?.as_ref()),
            bounds: Arc::clone(&bounds),
        };
        let (messages, inbox) = channel();
        self.inner.workers.submit(Box::new(move || in_thread(job, &messages)));
        let (report, on_processor) = self.wait(&inbox, state, &bounds)?;
        match report.stop {
            Some(Stop::State) => return Err(RunError::StateUnavailable(report.missing)),
            Some(Stop::Ours(why)) => return Err(RunError::Ours(why)),
            Some(Stop::Guest(_)) | None => {}
        }
        Ok(Outcome {
            entered: report.entered,
            result: report.result.map_err(GuestFault),
            fidelity: report.fidelity,
            fuel: report.fuel,
            micros: u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            on_processor,
        })
    }

    /// Answers the job's questions and watches its time, until it is done.
    fn wait(
        &self,
        inbox: &Receiver<Message>,
        state: &dyn PreState,
        bounds: &Bounds,
    ) -> Result<(Report, Duration), RunError> {
        let died = || RunError::Ours("the thread that ran it is gone".to_owned());
        let mut failed = None;
        let most = bounds.limits.wall;
        let mut looked_up = Duration::ZERO;
        // At least so long it may go on, or wait for its turn.
        let mut left = most;
        loop {
            let patience = if bounds.is_overdue() { REMIND } else { left.max(REMIND) };
            let message = match inbox.recv_timeout(patience) {
                Ok(message) => message,
                Err(RecvTimeoutError::Disconnected) => return Err(died()),
                Err(RecvTimeoutError::Timeout) => {
                    let used = bounds.began().map_or(Duration::ZERO, |it| it.used(looked_up));
                    left = most.saturating_sub(used);
                    if left.is_zero() {
                        bounds.set_overdue();
                        self.inner.wasmtime.increment_epoch();
                    }
                    continue;
                }
            };
            match message {
                Message::Wanted(key, reply) => {
                    let asked = Instant::now();
                    let answer = answer(state, &key).unwrap_or_else(|error| {
                        failed.get_or_insert(error);
                        Answer::Failed
                    });
                    // A job that no longer waits has panicked, and says so itself.
                    let _ = reply.send(answer);
                    // Looking up may mean asking another server; that time is not the program's.
                    looked_up += asked.elapsed();
                }
                Message::Done(report, on_processor) => {
                    return match failed {
                        Some(error) => Err(RunError::State(error)),
                        None => match *report {
                            Ok(report) => Ok((report, on_processor)),
                            Err(panic) => Err(RunError::Ours(panic)),
                        },
                    };
                }
            }
        }
    }
}

fn in_thread(job: Job, messages: &Sender<Message>) {
    let used_before = ThreadClock::used_by_own();
    let report = catch_unwind(AssertUnwindSafe(|| {
        job.bounds.begin();
        execute(job, messages)
    }))
    .map_err(|panic| panic_text(&*panic));
    // The waiting thread is there until it has the report.
    let on_processor = ThreadClock::used_by_own().saturating_sub(used_before);
    let _ = messages.send(Message::Done(Box::new(report), on_processor));
}

fn answer(state: &dyn PreState, key: &LedgerKey) -> Result<Answer, StateError> {
    Ok(match state.entry(key)? {
        Known::Present(entry, live_until) => {
            let entry = std::rc::Rc::unwrap_or_clone(entry);
            Answer::Present(Box::new(entry), live_until)
        }
        Known::Absent => Answer::Absent,
        Known::Unknown => Answer::Unknown,
    })
}

/// Everything that the transaction declared, and the registered contracts: asked for in advance,
/// because a question from the running thread costs two changes of thread.
fn look_up_footprint(
    invocation: &Invocation,
    contracts: &[ContractId],
    state: &dyn PreState,
) -> Result<HashMap<LedgerKey, Answer>, StateError> {
    let called = match &invocation.host_function {
        HostFunction::InvokeContract(call) => match &call.contract_address {
            ScAddress::Contract(contract) => Some(ContractId(contract.0.0)),
            _ => None,
        },
        _ => None,
    };
    let called = called.filter(|called| contracts.contains(called)).map(|id| instance_key(&id));
    let mut known = HashMap::with_capacity(invocation.footprint.len() + 1);
    for key in invocation.footprint.iter().chain(&called) {
        // Code is large and mostly that of the registered contract, which is not needed.
        let needed = !matches!(key, LedgerKey::ContractCode(_)) && !is_nonce(key);
        if needed && !known.contains_key(key) {
            known.insert(key.clone(), answer(state, key)?);
        }
    }
    Ok(known)
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
