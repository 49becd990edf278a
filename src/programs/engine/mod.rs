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
//! | `check`, `cost`, `compiler`, `compiled`, `module` | a module from its bytes to something that can be run |
//! | `limits`, `settings` | how much a run may use, and how wasmtime is set up |
//! | `places`, `watch`, `thread_clock` | how many runs there are at a time, and who stops those that last too long |

mod check;
mod compiled;
pub mod compiler;
mod cost;
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
mod places;
mod run;
mod settings;
mod snapshot;
mod spec;
mod targets;
mod thread_clock;

mod watch;
mod word;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rand::RngCore;
use sha2::{Digest, Sha256};
use soroban_env_host::LedgerInfo;
use soroban_env_host::xdr::StateArchivalSettings;
use wasmtime::Linker;

use crate::budget::Usage;
use crate::confinement::{COMPILER_MEMORY, COMPILER_PROCESSOR};
use crate::domain::Hash32;
use crate::memory;
use compiled::CompiledModules;
use compiler::Compiler;
use guest::Guest;
use limits::Bytes;
use places::Places;
use watch::Watch;

pub use check::{CheckRules, ModuleFacts, Refused};
pub use fidelity::Fidelity;
pub use interface::{EMIT, EnvFunction, env_functions};
pub use limits::Limits;
pub use module::Module;
pub use run::{GuestFault, Invocation, Outcome, Program, Recorded, RunError};
pub use settings::{BACKGROUND_RUNS, CacheSettings, EngineSettings, THREAD_STACK};
pub use spec::contract_spec;
pub use targets::Targets;
pub(super) use thread_clock::ThreadClock;

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
    /// Compiling took too long or too much memory.
    #[error(
        "compiling the module takes more than {COMPILER_PROCESSOR} s or {} of memory: split its \
         largest functions",
        Bytes(COMPILER_MEMORY as usize)
    )]
    CompileLimits,
    /// Compiling took too long, others' work included.
    #[error("compiling the module took more than {0} s: try again, or split its largest functions")]
    CompileTime(u64),
    /// Its compiled form is too large.
    #[error("the module's compiled form has more than {}: make the module smaller", Bytes(*.0 as usize))]
    CompiledSize(u64),
    /// The module is not accepted.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It could not be compiled a short while ago.
    #[error("{0}")]
    RefusedBefore(String),
    /// No module can be compiled.
    #[error("the process that compiles programs cannot do so: {0}")]
    Compiler(io::Error),
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

impl EngineError {
    /// Whether it is the module that cannot be used, rather than the machine or the directory.
    pub fn is_about_the_module(&self) -> bool {
        match self {
            Self::Compile(_)
            | Self::CompileLimits
            | Self::CompileTime(_)
            | Self::CompiledSize(_)
            | Self::Refused(_)
            | Self::RefusedBefore(_) => true,
            Self::Wasmtime(_) | Self::Compiler(_) | Self::Cache { .. } | Self::Thread(_) => false,
        }
    }
}

/// Compiles and runs programs. Cheap to clone; can be used from many threads.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasmtime: wasmtime::Engine,
    linker: Linker<Guest>,
    compiler: Compiler,
    compiled: CompiledModules,
    /// Modules that somebody still has.
    loaded: Mutex<HashMap<Hash32, Weak<module::Inner>>>,
    /// What became of the last modules that were compiled.
    passing: Mutex<Passing>,
    places: Places,
    watch: Watch,
    /// See [`guest::Run::marker`].
    marker: [u8; 32],
}

/// What was learnt of modules, for those who soon ask for the same ones again.
#[derive(Default)]
struct Passing {
    /// Modules that no program may need.
    modules: VecDeque<Module>,
    /// Modules that cannot be compiled, and why.
    refused: VecDeque<(Hash32, String)>,
}

/// Modules that are held without need. Each may have [`compiler`]'s longest answer.
const PASSING_MODULES: usize = 4;
/// Modules that cannot be compiled and are not tried again.
const REFUSED_MODULES: usize = 64;

impl Passing {
    fn hold(&mut self, module: &Module) {
        if self.modules.iter().any(|known| known.sha256() == module.sha256()) {
            return;
        }
        self.modules.push_back(module.clone());
        if self.modules.len() > PASSING_MODULES {
            self.modules.pop_front();
        }
    }

    fn refuse(&mut self, sha256: Hash32, why: String) {
        self.refused.push_back((sha256, why));
        if self.refused.len() > REFUSED_MODULES {
            self.refused.pop_front();
        }
    }

    fn why_refused(&self, sha256: Hash32) -> Option<&str> {
        self.refused.iter().find(|(known, _)| *known == sha256).map(|(_, why)| why.as_str())
    }
}

impl Engine {
    /// An engine, and the thread that watches its runs.
    ///
    /// # Errors
    /// When wasmtime, the cache's directory or a thread cannot be had.
    pub fn new(settings: EngineSettings) -> Result<Self, EngineError> {
        let setup = |error: wasmtime::Error| EngineError::Wasmtime(format!("{error:#}"));
        let wasmtime = wasmtime::Engine::new(&settings::running(&settings)).map_err(setup)?;
        let mut linker = Linker::new(&wasmtime);
        interface::define(&mut linker).map_err(setup)?;
        interface::define_protocol(&mut linker).map_err(setup)?;
        guest_memory::define(&mut linker).map_err(setup)?;
        emitting::define(&mut linker).map_err(setup)?;
        let compiled = CompiledModules::new(&settings)?;
        let places = Places::new(&settings);
        let compiler = Compiler::new(settings.compiler, settings.instance_memory);
        let watch = Watch::start(wasmtime.clone()).map_err(EngineError::Thread)?;
        let mut marker = [0; 32];
        rand::rng().fill_bytes(&mut marker);
        let (loaded, passing) = (Mutex::default(), Mutex::default());
        let inner =
            Inner { wasmtime, linker, compiler, compiled, loaded, passing, places, watch, marker };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What is taken of the places for runs and compilers.
    pub fn usages(&self) -> impl Iterator<Item = Usage> {
        self.inner.places.usages().into_iter().chain([self.inner.compiler.usage()])
    }

    /// Whether a module may be a program, and what it says about itself. Compiles nothing.
    ///
    /// # Errors
    /// [`Refused`]: why not, in one sentence for whoever sent it.
    pub fn check(&self, code: &[u8], rules: &CheckRules) -> Result<ModuleFacts, Refused> {
        check::check(code, rules)
    }

    /// The module ready to run: from memory while somebody has it, else from the cache, else compiled now
    /// in a process of its own. Nothing of it is written: see [`keep`](Self::keep).
    /// [`check`](Self::check) comes first: this compiles whatever it is given.
    ///
    /// # Errors
    /// When it cannot be compiled.
    pub fn load(&self, code: &[u8]) -> Result<Module, EngineError> {
        let sha256 = Hash32(Sha256::digest(code).into());
        Ok(self.load_with(code, sha256, || Ok(()))?.0)
    }

    /// The module ready to run, as [`load`](Self::load) does it, and kept if it was compiled now and
    /// `is_wanted` gives something, which is held until it is written: nobody can forget it meanwhile.
    ///
    /// # Errors
    /// When it cannot be compiled.
    pub fn load_and_keep<G>(
        &self,
        code: &[u8],
        is_wanted: impl FnOnce() -> Option<G>,
    ) -> Result<Module, EngineError> {
        let sha256 = Hash32(Sha256::digest(code).into());
        let (module, is_new) = self.load_with(code, sha256, || Ok(()))?;
        if is_new && let Some(_held) = is_wanted() {
            self.keep(&module);
        }
        Ok(module)
    }

    /// The module ready to run, as [`load`](Self::load) does it, checked before it is compiled, and kept in
    /// memory for a while with the last few others. For code that belongs to no program.
    ///
    /// # Errors
    /// When it is refused or cannot be compiled.
    pub fn load_for_now(&self, code: &[u8], rules: &CheckRules) -> Result<Module, EngineError> {
        let sha256 = Hash32(Sha256::digest(code).into());
        let check = || self.check(code, rules).map(drop).map_err(EngineError::from);
        let module = self.load_with(code, sha256, check).map(|(module, _)| module);
        if let Ok(module) = &module {
            self.inner.passing.lock().hold(module);
        }
        module
    }

    /// The module, and whether it was compiled now.
    fn load_with(
        &self,
        code: &[u8],
        sha256: Hash32,
        may_compile: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<(Module, bool), EngineError> {
        let Inner { wasmtime, linker, compiled, loaded, .. } = &*self.inner;
        let known = loaded.lock().get(&sha256).and_then(Module::upgrade);
        if let Some(module) = known {
            return Ok((module, false));
        }
        let unusable = |error: wasmtime::Error| EngineError::Compile(format!("{error:#}"));
        let found = compiled.get(wasmtime, sha256);
        let is_new = found.is_none();
        let module = match found {
            Some(module) => module,
            None => {
                may_compile()?;
                let answer = self.compile(code, sha256)?;
                memory::compiled_module(wasmtime, &answer).map_err(unusable)?
            }
        };
        let module = Module::link(&module, linker, sha256).map_err(unusable)?;
        let mut loaded = loaded.lock();
        loaded.retain(|_, known| known.strong_count() > 0);
        loaded.insert(sha256, module.downgrade());
        Ok((module, is_new))
    }

    /// Compiles a module, unless it is known that it cannot be.
    fn compile(&self, code: &[u8], sha256: Hash32) -> Result<Vec<u8>, EngineError> {
        if let Some(why) = self.inner.passing.lock().why_refused(sha256) {
            return Err(EngineError::RefusedBefore(why.to_owned()));
        }
        let compiled = self.inner.compiler.compile(code);
        match &compiled {
            // The machine may have been busy.
            Err(EngineError::CompileTime(_)) | Ok(_) => {}
            Err(error) if error.is_about_the_module() => {
                self.inner.passing.lock().refuse(sha256, error.to_string());
            }
            Err(_) => {}
        }
        compiled
    }

    /// Writes the compiled form of a module, so that the next process need not compile it. When it cannot
    /// be written, that is all that is lost.
    pub fn keep(&self, module: &Module) {
        let sha256 = module.sha256();
        if let Err(error) = self.inner.compiled.keep(module.compiled(), sha256) {
            tracing::warn!(module = %sha256, "a compiled module cannot be kept: {error}");
        }
    }

    /// Removes the compiled forms of all modules but these.
    ///
    /// # Errors
    /// When one is there and cannot be removed.
    pub fn forget_others(&self, modules: &BTreeSet<Hash32>) -> Result<(), EngineError> {
        self.inner.compiled.remove_others(modules)
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
