//! A service in this process with the parts that programs need: store, pipeline, programs with
//! their tables, and the HTTP API. Also makes ledgers that contain calls for programs among a
//! network's other transactions.

use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use orrery::domain::{
    ContractId, LedgerSeq, Network, Origin, Owner, ProgramId, RawLedger, sequence_of,
};
use orrery::executables::Interfaces;
use orrery::observe::health::Health;
use orrery::pipeline::{Pipeline, StepObserver};
use orrery::programs::records::{Execution, Likeness};
use orrery::programs::state::Upstream;
use orrery::programs::{Deploy, ProgramDeps, Programs, Replace, storage};
use orrery::settings;
use orrery::store::{Durability, Store};
use orrery::tables::Tables;
use tempfile::TempDir;

use super::amplify;
use super::calls::Calls;
use super::deposits::{Deposits, Endless, built};
use super::http::Server;
use super::many;
use super::measure::sized;
use super::recorded::Recorded;
use super::rows::tables;

/// Owner of the token that the benches' servers issue.
const OWNER: &str = "ratios";
/// Number of accounts that deposit.
const ACCOUNTS: u64 = 20;
/// Runs of a program that must be as recorded.
const VERIFIED: usize = sized(100, 4);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(300);

/// Ledgers of a network with contract calls among their transactions, and the called contracts.
pub struct LedgersWithCalls<'a> {
    pub network: &'a Network,
    pub ledgers: Vec<Vec<u8>>,
    deposits: ContractId,
    endless: ContractId,
}

impl<'a> LedgersWithCalls<'a> {
    /// Makes `copies` copies of the recorded ledgers, each ledger with `deposits_each` deposits and
    /// one endless call. The first ledger creates the contracts.
    pub fn new(recorded: &'a Recorded, copies: u64, deposits_each: usize) -> Self {
        Self::made(recorded, copies, deposits_each, true)
    }

    /// Like [`LedgersWithCalls::new`], but the ledgers do not create the contract of the endless call, so that
    /// its entries have to be requested from an upstream server.
    pub fn with_unknown_endless(recorded: &'a Recorded, copies: u64, deposits_each: usize) -> Self {
        Self::made(recorded, copies, deposits_each, false)
    }

    fn made(
        recorded: &'a Recorded,
        copies: u64,
        deposits_each: usize,
        creates_endless: bool,
    ) -> Self {
        let (mut deposits, endless) = (Deposits::new(), Endless::new());
        let mut calls = Calls::new(recorded.network.id());
        let ledgers = amplify::chain_with(recorded, copies, |number, ledger| {
            if number == 0 {
                let mut entries = deposits.contract_entries();
                entries.extend(endless.contract_entries().into_iter().filter(|_| creates_endless));
                calls.create(ledger, entries);
            }
            let made: Vec<_> = (0..deposits_each).map(|_| deposits.next(ACCOUNTS)).collect();
            calls.add(ledger, &made);
            calls.add(ledger, &[endless.call()]);
        });
        let (deposits, endless) = (deposits.contract, endless.contract);
        Self { network: &recorded.network, ledgers, deposits, endless }
    }

    /// Returns the contract that receives deposits.
    pub fn deposits(&self) -> ContractId {
        self.deposits
    }

    /// Returns the contract of the endless calls.
    pub fn endless(&self) -> ContractId {
        self.endless
    }

    /// Returns the sequence number of the last ledger.
    pub fn last(&self) -> Result<LedgerSeq, Box<dyn Error>> {
        Ok(sequence_of(self.ledgers.last().ok_or("there are no ledgers")?)?)
    }
}

/// Wraps a ledger as a source delivers it.
pub fn raw(xdr: &[u8]) -> RawLedger {
    let origin = Origin { name: "the load".into(), position: None };
    RawLedger { sequence: LedgerSeq(0), xdr: xdr.to_vec(), compressed: None, origin }
}

/// Program to deploy.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    /// Counts deposits.
    Deposits,
    /// Loops until it is stopped.
    Endless,
}

/// The service.
pub struct Indexing {
    pub programs: Arc<Programs>,
    pub server: Server,
    pub owner: Owner,
    pipeline: Pipeline,
    _directory: TempDir,
}

/// A step observer that discards its input.
pub struct Unobserved;

impl StepObserver for Unobserved {
    fn step(&self, _name: &'static str, _seconds: f64) {}
}

/// Starts the programs of a store, with an optional upstream server of ledger entries.
pub fn start_programs(
    store: &Arc<Store>,
    tables: Tables,
    upstream: Option<Arc<dyn Upstream + Send + Sync>>,
) -> Result<Arc<Programs>, Box<dyn Error>> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_millis());
    Ok(Arc::new(Programs::start(ProgramDeps {
        store: Arc::clone(store),
        tables,
        interfaces: Interfaces::new(Arc::clone(store), None),
        health: Arc::new(Health::default()),
        settings: settings::Programs::default(),
        index: settings::Index::default(),
        upstream,
        clock: Arc::new(move || now() as u64),
        compiler: env!("CARGO_BIN_EXE_orrery").into(),
        code_key: [0; 32],
    })?))
}

impl Indexing {
    /// Starts the service with a new store.
    pub fn start(network: &Network, parent: &Path) -> Result<Self, Box<dyn Error>> {
        Self::start_with(network, None, parent)
    }

    /// Starts the service with a new store and an optional upstream server of ledger entries.
    pub fn start_with(
        network: &Network,
        upstream: Option<Arc<dyn Upstream + Send + Sync>>,
        parent: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let directory = tempfile::tempdir_in(parent)?;
        let data = directory.path().join("data");
        let store = Arc::new(Store::open_with(&data, Some(network), storage::extensions())?);
        let tables = tables(&directory.path().join("tables"))?;
        let programs = start_programs(&store, tables, upstream)?;
        let server = Server::start(Arc::clone(&store), Arc::clone(&programs))?;
        let pipeline = Pipeline::new(store, many::options(true), Arc::new(Unobserved));
        let owner = Owner(OWNER.to_owned());
        Ok(Self { programs, server, owner, pipeline, _directory: directory })
    }

    /// Deploys a program for its contract in these ledgers.
    pub fn deploy(
        &self,
        which: Which,
        busy: &LedgersWithCalls<'_>,
    ) -> Result<ProgramId, Box<dyn Error>> {
        let project = match which {
            Which::Deposits => "deposits",
            Which::Endless => "endless",
        };
        self.deploy_for(&self.owner, project, which, busy)
    }

    /// Like [`Indexing::deploy`], for another owner and with a given project name.
    pub fn deploy_for(
        &self,
        owner: &Owner,
        project: &str,
        which: Which,
        busy: &LedgersWithCalls<'_>,
    ) -> Result<ProgramId, Box<dyn Error>> {
        let (module, contract) = match which {
            Which::Deposits => ("deposit_program", busy.deposits),
            Which::Endless => ("heavy_program", busy.endless),
        };
        let deploy = Deploy {
            code: built(module),
            project_name: project.to_owned(),
            contracts: vec![contract],
            public: None,
            replace: Replace::No,
            allow_unfit: true,
        };
        Ok(self.programs.deploy(owner, deploy)?.id)
    }

    /// Stores ledgers as they arrive, each durably before the next, and notifies the programs.
    pub fn ingest(
        &self,
        ledgers: impl Iterator<Item = RawLedger>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let programs = &self.programs;
        let ledgers = ledgers.map(Ok::<_, Infallible>);
        let stored = self.pipeline.run(ledgers, Durability::Synced, |_| {
            programs.notify_ledgers_stored();
            ControlFlow::Continue(())
        });
        Ok(stored?)
    }

    /// Stores older ledgers as a backfill does, until `done` is set.
    pub fn backfill_ledgers(
        &self,
        ledgers: impl Iterator<Item = RawLedger>,
        done: &AtomicBool,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let ledgers = ledgers.map(Ok::<_, Infallible>);
        let stored = self.pipeline.background().run(ledgers, Durability::Deferred, |_| match done
            .load(Ordering::Relaxed)
        {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        Ok(stored?)
    }

    /// Returns the newest run of a program.
    pub fn newest_run(&self, program: ProgramId) -> Result<Option<Execution>, Box<dyn Error>> {
        Ok(self.programs.executions(&self.owner, program, None, 1)?.pop())
    }

    /// Waits until a program has run on this ledger.
    pub fn wait_for_run(
        &self,
        program: ProgramId,
        ledger: LedgerSeq,
    ) -> Result<(), Box<dyn Error>> {
        self.wait_for_run_of(&self.owner, program, ledger)
    }

    /// Like [`Indexing::wait_for_run`], for a program of another owner.
    pub fn wait_for_run_of(
        &self,
        owner: &Owner,
        program: ProgramId,
        ledger: LedgerSeq,
    ) -> Result<(), Box<dyn Error>> {
        let begun = Instant::now();
        loop {
            let newest = self.programs.executions(owner, program, None, 1)?.pop();
            if newest.is_some_and(|run| run.ledger >= ledger.0) {
                return Ok(());
            }
            if begun.elapsed() > TIMEOUT {
                return Err(format!("program {program} does not get to ledger {ledger}").into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Fails unless the newest [`VERIFIED`] runs of a program succeeded with exactly the recorded
    /// result.
    pub fn verify_runs(&self, program: ProgramId) -> Result<(), Box<dyn Error>> {
        let runs = self.programs.executions(&self.owner, program, None, VERIFIED)?;
        match runs.iter().find(|run| run.error.is_some() || run.likeness != Likeness::Exact) {
            Some(run) => Err(format!("a run is not as recorded: {run:?}").into()),
            None if runs.len() < VERIFIED => {
                Err(format!("{} runs of {VERIFIED}", runs.len()).into())
            }
            None => Ok(()),
        }
    }
}

impl Drop for Indexing {
    fn drop(&mut self) {
        self.programs.stop();
    }
}
