//! `orrery new`: creates a project for an indexing program, in a folder of its own.

mod definitions;
mod error;
mod functions;
mod holding;
mod imports;
mod interface;
mod kind;
mod native_test;
mod origin;
mod project;
mod rust;

use std::path::{Path, PathBuf};

use clap::Args;
use orrery::domain::ContractId;
use orrery::programs::engine::contract_spec;
use orrery::programs::{ProgramError, check_project};

use super::remote::Remote;
use super::{Failure, escape, output, read_file};
use error::Unwritable;
use functions::Program;
use interface::Interface;
pub use origin::of_contract;
use project::Names;
pub use rust::pascal;

/// Create a project for an indexing program
///
/// The project has sources, a test that shows the rows, and a Makefile that builds, tries and deploys the program.
/// Without --contract and --wasm it is an example, which is both a contract and a program; with one of them, it has
/// all functions and types of the contract's interface, to be filled in.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery new votes
  orrery new trades --contract CA…
  orrery new trades --wasm market.wasm --dir programs/trades")]
pub struct New {
    /// Name of the project, its folder, its package, and the deployed program
    name: String,
    /// A contract on the network of the service at --base, from which its module is fetched over JSON-RPC
    #[arg(long, alias = "contracts", value_name = "C…", conflicts_with = "wasm")]
    contract: Option<ContractId>,
    /// The module of a contract (.wasm)
    #[arg(long, value_name = "FILE")]
    wasm: Option<PathBuf>,
    /// Folder to create, instead of one named after the project
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

/// Names of libraries that a source file may refer to, and that a package therefore cannot have.
const LIBRARIES: [&str; 7] =
    ["alloc", "core", "proc_macro", "retroshade_sdk", "soroban_sdk", "std", "test"];

impl New {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        let module = module_name(&self.name)?;
        let names = Names { project: &self.name, module: &module };
        let folder = self.dir.unwrap_or_else(|| PathBuf::from(&self.name));
        let (code, whose) = match (&self.wasm, self.contract) {
            (Some(path), _) => (read_file(path)?, format!("{}", path.display())),
            (None, Some(contract)) => {
                (origin::of_contract(remote, contract)?, format!("the contract {contract}"))
            }
            (None, None) => {
                project::write(&folder, &project::example(&names))?;
                return output::print(&next(&folder, None, false));
            }
        };
        let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("{whose}: {error}"));
        let spec = contract_spec(&code).map_err(|error| failed(&error))?;
        let interface = Interface::of(&spec)
            .map_err(|error| Failure::failed(format!("the interface of {whose} {error}")))?;
        let program =
            Program::new(&self.name, &interface).ok_or_else(|| failed(&Unwritable::NoFunction))?;
        let contract = self.contract.map(|contract| contract.to_string());
        let files = project::of_interface(&names, &program, contract.as_deref());
        project::write(&folder, &files)?;
        output::print(&next(&folder, Some(&program), contract.is_some()))
    }
}

/// Returns the name of a project's library, which is also that of its module. Refuses unusable
/// names.
fn module_name(project: &str) -> Result<String, Failure> {
    let refused = |problem: &str| {
        Err(Failure::usage(format!("the name of the project {}", escape::control_chars(problem))))
    };
    match check_project(project) {
        Ok(()) => {}
        Err(ProgramError::Value { problem, .. }) => return refused(&problem),
        Err(error) => return Err(Failure::usage(error.to_string())),
    }
    let module = project.to_ascii_lowercase().replace('-', "_");
    if !module.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return refused(&format!(
            "is '{project}': the name of a Rust package begins with a letter"
        ));
    }
    if !rust::is_name(&module) || LIBRARIES.contains(&module.as_str()) {
        return refused(&format!("is '{project}', which is reserved in Rust: give another name"));
    }
    if project::is_used(project) {
        return refused(&format!(
            "is '{project}', the name of a library that the project uses: give another name"
        ));
    }
    Ok(module)
}

/// Returns the next steps, in three lines. The functions of a `program` are still empty.
fn next(folder: &Path, program: Option<&Program<'_>>, contract_is_known: bool) -> String {
    let folder = folder.display();
    let first = match program {
        Some(program) => {
            let function = &program.example.name;
            format!("fill in {folder}/src/lib.rs; `{function}` has an example of a row")
        }
        None => format!("look at {folder}/src/lib.rs, a contract that emits a row for each vote"),
    };
    let test = if program.is_none_or(Program::is_native) { "make test && " } else { "" };
    let contracts = if contract_is_known { "" } else { " CONTRACTS=C…" };
    format!(
        "{first}
cd {folder} && {test}make build   # needed once: rustup target add wasm32v1-none
make try{contracts} && make deploy{contracts}   # with a token in ORRERY_JWT
"
    )
}
