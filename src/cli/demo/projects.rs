//! The projects of a demo: a program, the events of the network's contracts, and those of the pools that
//! its exchange opens.

use orrery::domain::{ContractId, Owner};
use orrery::programs::{
    Deploy, FactorySelector, ProgramError, Programs, Replace, Selectors, Watch,
};
use orrery::sandbox::network::MARKET_PROGRAM;

use super::super::Failure;

/// Owner of the printed token and of the projects.
pub const OWNER: &str = "demo";
/// Name of the project with the program. Its rows are in the view named after the project and the emitted
/// struct.
const PROGRAM: &str = "market";
/// Name of the project with the tables of events.
pub const EVENTS: &str = "demo";
/// Name of the project that follows the pools of the exchange.
pub const POOLS: &str = "pools";

/// What a new demo has.
pub struct Projects {
    /// The market's contract.
    pub market: ContractId,
    /// Contracts of the network itself.
    pub contracts: Vec<ContractId>,
    /// The factory of pools; `None` for a network without an exchange.
    pub factory: Option<ContractId>,
}

impl Projects {
    /// Makes those that no earlier demo in this directory has made.
    pub fn make(self, programs: &Programs) -> Result<(), Failure> {
        deploy(programs, self.market)?;
        let storage = Some(true);
        watch(programs, Watch { contracts: self.contracts, storage, ..named(EVENTS) })?;
        let Some(factory) = self.factory else { return Ok(()) };
        let pools = FactorySelector {
            contract: factory,
            event: "pool_created".to_owned(),
            param: "pool".to_owned(),
        };
        let selectors = Selectors { factories: vec![pools], ..Selectors::default() };
        watch(programs, Watch { selectors, ..named(POOLS) })
    }
}

/// Returns the tables that get rows at once; `has_pools` says whether the project of pools is new.
pub fn first_tables(has_pools: bool) -> Vec<String> {
    let tables = [(PROGRAM, "trade"), (EVENTS, "transfer"), (POOLS, "swap")];
    let named = |(project, table)| format!("{project}.{table}");
    tables.into_iter().filter(|(project, _)| has_pools || *project != POOLS).map(named).collect()
}

fn named(project: &str) -> Watch {
    Watch {
        project_name: project.to_owned(),
        contracts: Vec::new(),
        selectors: Selectors::default(),
        supplied: None,
        from: None,
        storage: None,
        public: None,
        replace: Replace::No,
    }
}

fn watch(programs: &Programs, watch: Watch) -> Result<(), Failure> {
    let owner = Owner(OWNER.to_owned());
    if has(programs, &owner, &watch.project_name) {
        return Ok(());
    }
    let project = watch.project_name.clone();
    let refused = |error: ProgramError| {
        Failure::failed(format!("the demo's project {project} is refused: {error}"))
    };
    programs.watch(&owner, watch).map(drop).map_err(refused)
}

fn deploy(programs: &Programs, market: ContractId) -> Result<(), Failure> {
    let owner = Owner(OWNER.to_owned());
    if has(programs, &owner, PROGRAM) {
        return Ok(());
    }
    let deploy = Deploy {
        code: MARKET_PROGRAM.to_vec(),
        project_name: PROGRAM.to_owned(),
        contracts: vec![market],
        public: None,
        replace: Replace::No,
        allow_unfit: false,
    };
    let refused =
        |error: ProgramError| Failure::failed(format!("the demo's program is refused: {error}"));
    programs.deploy(&owner, deploy).map(drop).map_err(refused)
}

fn has(programs: &Programs, owner: &Owner, project: &str) -> bool {
    programs.list(owner).iter().any(|program| program.project_name == project)
}
