//! A service in this process as far as programs need it: store, pipeline, programs with their tables, and the
//! HTTP interface; and ledgers that hold calls for programs among a network's other transactions.

use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use orrery::domain::{ContractId, LedgerSeq, Network, Owner, ProgramId};
use orrery::observe::health::Health;
use orrery::pipeline::{Pipeline, StepObserver};
use orrery::programs::records::{Execution, Likeness};
use orrery::programs::state::Upstream;
use orrery::programs::{Deploy, ProgramDeps, Programs, Settings};
use orrery::source::{Origin, RawLedger, records};
use orrery::store::{Durability, Store};
use tempfile::TempDir;

use crate::amplify;
use crate::calls::Calls;
use crate::deposits::{Deposits, Endless, built};
use crate::http::Server;
use crate::many;
use crate::recorded::Recorded;
use crate::rows::tables;

/// Whoever asks with a token of the bench's servers.
const OWNER: &str = "ratios";
/// Accounts that deposit.
const ACCOUNTS: u64 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(300);

/// Ledgers of a network with calls among their transactions, and who is called.
pub struct Busy<'a> {
    pub network: &'a Network,
    pub ledgers: Vec<Vec<u8>>,
    deposits: ContractId,
    endless: ContractId,
}

impl<'a> Busy<'a> {
    /// So many copies of the recorded ledgers, each with so many deposits and one endless call. The contracts
    /// are created in the first.
    pub fn new(recorded: &'a Recorded, copies: u64, deposits_each: usize) -> Self {
        Self::made(recorded, copies, deposits_each, true)
    }

    /// The same, but the contract with the endless call was created earlier: what it consists of has to be
    /// asked for.
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

    /// Whose calls are deposits.
    pub fn deposits(&self) -> ContractId {
        self.deposits
    }

    /// Whose calls go round and round.
    pub fn endless(&self) -> ContractId {
        self.endless
    }

    /// The sequence number of the last ledger.
    pub fn last(&self) -> Result<LedgerSeq, Box<dyn Error>> {
        Ok(records::sequence_of(self.ledgers.last().ok_or("there are no ledgers")?)?)
    }
}

/// A ledger as it comes from a source.
pub fn raw(xdr: &[u8]) -> RawLedger {
    let origin = Origin { name: "the load".into(), position: None };
    RawLedger { sequence: LedgerSeq(0), xdr: xdr.to_vec(), compressed: None, origin }
}

/// Which program to deploy.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    /// It counts deposits.
    Deposits,
    /// It goes round until it is stopped.
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

/// Hears what the steps of ledgers take, and forgets it.
pub struct Unobserved;

impl StepObserver for Unobserved {
    fn step(&self, _name: &'static str, _seconds: f64) {}
}

impl Indexing {
    /// With a new store.
    pub fn start(network: &Network, parent: &Path) -> Result<Self, Box<dyn Error>> {
        Self::start_with(network, None, parent)
    }

    /// With a new store, and a server that knows entries.
    pub fn start_with(
        network: &Network,
        upstream: Option<Arc<dyn Upstream + Send + Sync>>,
        parent: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let directory = tempfile::tempdir_in(parent)?;
        let store = Arc::new(Store::open(&directory.path().join("data"), Some(network))?);
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_millis());
        let programs = Arc::new(Programs::start(ProgramDeps {
            store: Arc::clone(&store),
            tables: tables(&directory.path().join("tables"))?,
            health: Arc::new(Health::default()),
            settings: Settings::default(),
            upstream,
            clock: Arc::new(move || now() as u64),
            compiler: env!("CARGO_BIN_EXE_orrery").into(),
            code_key: [0; 32],
        })?);
        let server = Server::start(Arc::clone(&store), Some(Arc::clone(&programs)))?;
        let pipeline = Pipeline::new(store, many::options(true), Arc::new(Unobserved));
        let owner = Owner(OWNER.to_owned());
        Ok(Self { programs, server, owner, pipeline, _directory: directory })
    }

    /// Deploys a program for a contract of these ledgers.
    pub fn deploy(&self, which: Which, busy: &Busy<'_>) -> Result<ProgramId, Box<dyn Error>> {
        let project = match which {
            Which::Deposits => "deposits",
            Which::Endless => "endless",
        };
        self.deploy_for(&self.owner, project, which, busy)
    }

    /// The same for somebody else.
    pub fn deploy_for(
        &self,
        owner: &Owner,
        project: &str,
        which: Which,
        busy: &Busy<'_>,
    ) -> Result<ProgramId, Box<dyn Error>> {
        let (module, contract) = match which {
            Which::Deposits => ("deposit_program", busy.deposits),
            Which::Endless => ("heavy_program", busy.endless),
        };
        let deploy = Deploy {
            code: built(module),
            project_name: project.to_owned(),
            contracts: vec![contract],
            public: false,
        };
        Ok(self.programs.deploy(owner, deploy)?.id)
    }

    /// Stores ledgers as they come, each on disk before the next, and tells the programs.
    pub fn ingest(
        &self,
        ledgers: impl Iterator<Item = RawLedger>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let programs = &self.programs;
        let ledgers = ledgers.map(Ok::<_, Infallible>);
        let stored = self.pipeline.run(ledgers, Durability::Synced, |_| {
            programs.ledgers_came();
            ControlFlow::Continue(())
        });
        Ok(stored?)
    }

    /// Stores older ledgers as a backfill does, until it is done.
    pub fn fill_in(
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

    /// The newest run of a program.
    pub fn newest_run(&self, program: ProgramId) -> Result<Option<Execution>, Box<dyn Error>> {
        Ok(self.programs.executions(&self.owner, program, None, 1)?.pop())
    }

    /// Waits until a program was run on this ledger.
    pub fn wait_for_run(
        &self,
        program: ProgramId,
        ledger: LedgerSeq,
    ) -> Result<(), Box<dyn Error>> {
        self.wait_for_run_of(&self.owner, program, ledger)
    }

    /// The same for somebody else's program.
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
            if begun.elapsed() > PATIENCE {
                return Err(format!("program {program} does not get to ledger {ledger}").into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// An error unless every one of the newest runs of a program succeeded and did what was recorded.
    pub fn verify_runs(&self, program: ProgramId, count: usize) -> Result<(), Box<dyn Error>> {
        let runs = self.programs.executions(&self.owner, program, None, count)?;
        match runs.iter().find(|run| run.error.is_some() || run.likeness != Likeness::Exact) {
            Some(run) => Err(format!("a run is not as recorded: {run:?}").into()),
            None if runs.len() < count => Err(format!("{} runs of {count}", runs.len()).into()),
            None => Ok(()),
        }
    }
}

impl Drop for Indexing {
    fn drop(&mut self) {
        self.programs.stop();
    }
}
