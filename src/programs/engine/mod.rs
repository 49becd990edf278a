//! Runs a program's module under wasmtime inside the contract host.
//!
//! A run builds an unmodified contract host for one transaction on the state before it. The host
//! calls the registered contracts as it calls natively compiled ones, and each such call is a fresh
//! instance of the program's module (`frame`), whose imports lead back into the host (`interface`,
//! `guest_memory`, `emitting`). All other contracts run in the host's own interpreter, as does a
//! contract that replaces its own code, for the rest of that transaction.
//!
//! | File | Knows |
//! |---|---|
//! | `run` | what goes in and comes out, and what it takes from the thread that asks for it |
//! | `execute` | building the host and invoking it |
//! | `frame`, `creation` | a call of a replaced contract; a contract that is created while it runs |
//! | `word`, `guest` | the border between guest and host |
//! | `lookups`, `snapshot` | state before the transaction; the same with code replaced |
//! | `fidelity` | comparing with what the network recorded |
//! | `check`, `compiled`, `module` | a module from its bytes to something that can be run |
//! | `limits`, `settings` | how much a run may use, and how wasmtime is set up |
//! | `turns`, `watch`, `thread_clock` | how many runs there are at a time, and who stops those that last too long |

mod check;
mod compiled;
mod creation;
mod describe;
mod emitting;
mod execute;
mod fidelity;
mod frame;
mod guest;
mod guest_memory;
mod interface;
mod limits;
mod lookups;
mod module;
mod run;
mod settings;
mod snapshot;
mod targets;
mod thread_clock;
mod turns;
mod watch;
mod word;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rand::RngCore;
use sha2::{Digest, Sha256};
use soroban_env_host::LedgerInfo;
use soroban_env_host::xdr::StateArchivalSettings;
use wasmtime::Linker;

use crate::domain::Hash32;
use compiled::CompiledModules;
use guest::Guest;
use turns::Turns;
use watch::Watch;

pub use check::{CheckRules, ModuleFacts, Refused};
pub use fidelity::Fidelity;
pub use interface::{EMIT, EnvFunction, env_functions};
pub use limits::Limits;
pub use module::Module;
pub use run::{GuestFault, Invocation, Outcome, Program, Recorded, RunError};
pub use settings::{EngineSettings, THREAD_STACK};
pub use targets::Targets;

/// Lifetimes of entries, in ledgers, where the network's settings are not known: those of the public
/// network.
const MIN_TEMPORARY_TTL: u32 = 17_280;
const MIN_PERSISTENT_TTL: u32 = 2_073_600;
const MAX_TTL: u32 = 3_110_400;

/// Why a module cannot be loaded or the engine not be set up.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime refuses its configuration or what it is given.
    #[error("wasmtime could not be set up: {0}")]
    Wasmtime(String),
    /// The module cannot be compiled or linked.
    #[error("the module cannot be compiled: {0}")]
    Compile(String),
    /// Compiling took too long.
    #[error("compiling the module took more than {0} s: split its largest functions")]
    CompileTime(u64),
    /// The directory of compiled modules fails.
    #[error("{}: {source}; compiled programs are kept there, so it has to be writable", path.display())]
    Cache {
        /// Which file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("a thread for programs could not be started: {0}")]
    Thread(io::Error),
}

/// Compiles and runs programs. Cheap to clone; can be used from many threads.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasmtime: wasmtime::Engine,
    linker: Linker<Guest>,
    compiled: CompiledModules,
    /// Modules that somebody still has.
    loaded: Mutex<HashMap<Hash32, Weak<module::Inner>>>,
    turns: Turns,
    watch: Watch,
    /// See [`guest::Run::marker`].
    marker: [u8; 32],
}

impl Engine {
    /// An engine, and the thread that watches its runs.
    ///
    /// # Errors
    /// When wasmtime, the cache's directory or a thread cannot be had.
    pub fn new(settings: EngineSettings) -> Result<Self, EngineError> {
        let setup = |error: wasmtime::Error| EngineError::Wasmtime(format!("{error:#}"));
        let wasmtime = wasmtime::Engine::new(&settings::config(&settings)).map_err(setup)?;
        let mut linker = Linker::new(&wasmtime);
        interface::define(&mut linker).map_err(setup)?;
        interface::define_protocol(&mut linker).map_err(setup)?;
        guest_memory::define(&mut linker).map_err(setup)?;
        emitting::define(&mut linker).map_err(setup)?;
        let compiled = CompiledModules::new(settings.cache, &wasmtime)?;
        let turns = Turns::new(settings.concurrent_runs);
        let watch = Watch::start(wasmtime.clone()).map_err(EngineError::Thread)?;
        let mut marker = [0; 32];
        rand::rng().fill_bytes(&mut marker);
        let loaded = Mutex::default();
        let inner = Inner { wasmtime, linker, compiled, loaded, turns, watch, marker };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether a module may be a program, and what it says about itself. Compiles nothing.
    ///
    /// # Errors
    /// [`Refused`]: why not, in one sentence for whoever sent it.
    pub fn check(&self, code: &[u8], rules: &CheckRules) -> Result<ModuleFacts, Refused> {
        check::check(code, rules)
    }

    /// The module ready to run: from memory while somebody has it, else from the cache, else compiled
    /// now. [`check`](Self::check) comes first: this compiles whatever it is given.
    ///
    /// # Errors
    /// When it cannot be compiled or its compiled form not be kept.
    pub fn load(&self, code: &[u8]) -> Result<Module, EngineError> {
        let sha256 = Hash32(Sha256::digest(code).into());
        let known = self.inner.loaded.lock().get(&sha256).and_then(Module::upgrade);
        if let Some(module) = known {
            return Ok(module);
        }
        let compiled = self.inner.compiled.get(&self.inner.wasmtime, code, sha256)?;
        let module = Module::link(&compiled, &self.inner.linker, sha256)
            .map_err(|error| EngineError::Compile(format!("{error:#}")))?;
        let mut loaded = self.inner.loaded.lock();
        loaded.retain(|_, known| known.strong_count() > 0);
        loaded.insert(sha256, module.downgrade());
        Ok(module)
    }

    /// Removes the kept compiled form of a module that no program needs any more.
    ///
    /// # Errors
    /// When the file is there and cannot be removed.
    pub fn forget(&self, sha256: Hash32) -> Result<(), EngineError> {
        self.inner.compiled.remove(sha256)
    }
}

/// The ledger as the host is told about it. It takes no other protocol than its own.
fn ledger_info(invocation: &Invocation, rules: Option<&StateArchivalSettings>) -> LedgerInfo {
    LedgerInfo {
        protocol_version: interface::PROTOCOL,
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
