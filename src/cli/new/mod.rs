//! `orrery new`: a project for an indexing program, in a folder of its own.

mod definitions;
mod functions;
mod interface;
mod kind;
mod native_test;
mod origin;
mod project;
mod rust;

use std::path::{Path, PathBuf};

use clap::Args;
use orrery::domain::ContractId;
use orrery::programs::check_project;
use orrery::programs::engine::contract_spec;

use super::remote::Remote;
use super::{Failure, output};
use functions::Program;
use interface::Interface;
use project::Names;

/// Make a project for an indexing program
///
/// It has sources, a test that shows the rows, and a Makefile that builds, tries and deploys it. Without a contract
/// they are those of an example, which is a contract and a program; with one, or with its module, all functions and
/// types of its interface, to be filled in.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orrery new votes
  orrery new trades --contract CA…
  orrery new trades --wasm market.wasm --dir programs/trades")]
pub struct New {
    /// Name of the project: of its folder, of its package, and of the program once it is deployed
    name: String,
    /// A contract on the network of the service that --base names; what it is asked with is JSON-RPC
    #[arg(long, value_name = "C…", conflicts_with = "wasm")]
    contract: Option<ContractId>,
    /// The module of a contract (.wasm)
    #[arg(long, value_name = "FILE")]
    wasm: Option<PathBuf>,
    /// The folder that is made, instead of one of the project's name
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

/// Libraries that a source may name, so that a package cannot have their names.
const LIBRARIES: [&str; 7] =
    ["alloc", "core", "proc_macro", "retroshade_sdk", "soroban_sdk", "std", "test"];

impl New {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        let module = module_name(&self.name)?;
        let names = Names { project: &self.name, module: &module };
        let folder = self.dir.unwrap_or_else(|| PathBuf::from(&self.name));
        let (code, whose) = match (&self.wasm, self.contract) {
            (Some(path), _) => (origin::of_file(path)?, format!("{}", path.display())),
            (None, Some(contract)) => {
                (origin::of_contract(remote, contract)?, format!("the contract {contract}"))
            }
            (None, None) => {
                project::write(&folder, &project::example(&names))?;
                return output::print(&next(&folder, None));
            }
        };
        let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("{whose}: {error}"));
        let spec = contract_spec(&code).map_err(|error| failed(&error))?;
        let interface = Interface::of(&spec)
            .map_err(|error| Failure::failed(format!("the interface of {whose} {error}")))?;
        let program = Program::new(&self.name, &interface)
            .ok_or_else(|| failed(&interface::Unwritable::NoFunction))?;
        let contract = self.contract.map(|contract| contract.to_string());
        let files = project::of_interface(&names, &program, contract.as_deref());
        project::write(&folder, &files)?;
        output::print(&next(&folder, Some(&program.example.name)))
    }
}

/// The name of the library of a project, which is that of its module.
fn module_name(project: &str) -> Result<String, Failure> {
    let refused = |problem: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "'{}' is no name for a project: {problem}",
            output::harmless(project)
        ))
    };
    check_project(project).map_err(|error| refused(&error))?;
    let module = project.to_ascii_lowercase().replace('-', "_");
    if !module.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(refused(&"a package of Rust begins with a letter"));
    }
    if !rust::is_name(&module) || LIBRARIES.contains(&module.as_str()) {
        return Err(refused(&"Rust has it for itself, so give another"));
    }
    if project::is_used(project) {
        return Err(refused(&"a library that every program uses has it, so give another"));
    }
    Ok(module)
}

/// What to do next, in three lines.
fn next(folder: &Path, example: Option<&str>) -> String {
    let folder = folder.display();
    let first = match example {
        Some(function) => format!(
            "fill in the functions in {folder}/src/lib.rs (`{function}` has an example of a row)"
        ),
        None => format!(
            "look at {folder}/src/lib.rs, a contract that emits a row where it counts a vote"
        ),
    };
    format!(
        "{first}
cd {folder} && make test && make build      # the first build needs: rustup target add wasm32v1-none
make try CONTRACTS=C… && make deploy CONTRACTS=C…      # with ORRERY_JWT, a token of the service
"
    )
}
