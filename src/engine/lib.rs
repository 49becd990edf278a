//! Runs a program's module under wasmtime inside the contract host.
//!
//! A run builds an unmodified contract host for one transaction on the state before it. The host
//! calls the registered contracts in the way it calls natively compiled ones. Each such call is a
//! fresh instance of the program's module (`frame`), whose imports lead back into the host
//! (`interface`, `guest_memory`, `emitting`). All other contracts run in the host's own
//! interpreter, as does a contract that replaces its own code, for the rest of that transaction.
//!
//! | File | Content |
//! |---|---|
//! | `run` | input and output of a run, and what it requires of the calling thread |
//! | `execute` | building the host and invoking it |
//! | `frame`, `creation` | a call of a replaced contract; a contract that is created during the run |
//! | `word`, `guest` | the boundary between guest and host |
//! | `state`, `lookups`, `snapshot` | state before the transaction; the same with code replaced |
//! | `fidelity` | comparison with what the network recorded |
//! | `check`, `cost`, `compiler`, `compiled`, `load`, `module` | the steps from a module's bytes to something that can be run |
//! | `limits`, `settings` | limits of a run, and the configuration of wasmtime |
//! | `run_slots`, `watch`, `thread_clock` | how many runs may execute at a time, and stopping those that exceed their time |
#![warn(missing_docs)]

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
mod load;
mod lookups;
mod module;
mod run;
mod run_slots;
mod settings;
mod snapshot;
mod spec;
mod state;
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

use compiled::CompiledModules;
use compiler::Compiler;
use guest::Guest;
use limits::Bytes;
use orrery_ledger::domain::Hash32;
use orrery_runtime::budget::Usage;
use orrery_runtime::confinement::{COMPILER_MEMORY, COMPILER_PROCESSOR};
use run_slots::RunSlots;
use watch::Watch;

pub use check::{CheckRules, ModuleFacts, Refused};
pub use fidelity::Fidelity;
pub use interface::{EMIT, EnvFunction, env_functions};
pub use limits::Limits;
pub use module::Module;
pub use run::{GuestFault, Invocation, Outcome, Program, Recorded, RunError};
pub use settings::{BACKGROUND_RUNS, CacheSettings, EngineSettings, THREAD_STACK};
pub use spec::contract_spec;
pub use state::{EntryState, LookupFault, PreState, StateError, UpstreamError};
pub use targets::Targets;
pub use thread_clock::ThreadClock;

/// Lifetimes of entries in ledgers, used where the network's settings are unknown: those of the
/// public network.
const MIN_TEMPORARY_TTL: u32 = 17_280;
const MIN_PERSISTENT_TTL: u32 = 2_073_600;
const MAX_TTL: u32 = 3_110_400;

/// Why a module cannot be loaded or the engine cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime rejects its configuration or the definition of a host function.
    #[error("wasmtime could not be set up: {0}")]
    Wasmtime(String),
    /// The module cannot be compiled or linked.
    #[error("the module cannot be compiled: {0}")]
    Compile(String),
    /// Compiling exceeded the compiler's CPU time or memory.
    #[error(
        "compiling the module takes more than {COMPILER_PROCESSOR} s or {} of memory: split its \
         largest functions",
        Bytes(COMPILER_MEMORY as usize)
    )]
    CompileLimits,
    /// Compiling exceeded its wall-clock time, which other load may have caused. Contains the limit
    /// in seconds.
    #[error("compiling the module took more than {0} s: try again, or split its largest functions")]
    CompileTime(u64),
    /// The compiled form is too large. Contains the limit in bytes.
    #[error("the module's compiled form has more than {}: make the module smaller", Bytes(*.0 as usize))]
    CompiledSize(u64),
    /// The module is not accepted.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The module failed to compile a short while ago. Contains the message of that failure.
    #[error("{0}")]
    RefusedBefore(String),
    /// The compiler process cannot compile any module.
    #[error("the compiler process failed: {0}")]
    Compiler(io::Error),
    /// A file operation in the directory of compiled modules failed.
    #[error("{}: {source}; compiled programs are kept there, so it has to be writable", path.display())]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("a thread for programs could not be started: {0}")]
    Thread(io::Error),
}

impl EngineError {
    /// Returns whether the module is the cause, rather than the machine or the directory.
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

/// Compiles and runs programs. Cheap to clone; may be used from many threads.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasmtime: wasmtime::Engine,
    linker: Linker<Guest>,
    compiler: Compiler,
    compiled: CompiledModules,
    /// Loaded modules that are still in use.
    loaded: Mutex<HashMap<Hash32, Weak<module::Inner>>>,
    /// Recently loaded modules that belong to no program, and recent compile failures.
    recent: Mutex<RecentModules>,
    run_slots: RunSlots,
    watch: Watch,
    /// See [`guest::Run::marker`].
    marker: [u8; 32],
}

/// Short-lived cache for modules that are likely to be requested again soon.
#[derive(Default)]
struct RecentModules {
    /// Modules loaded by [`Engine::check_and_load`], which may have no other owner.
    modules: VecDeque<Module>,
    /// Modules that cannot be compiled, with the reason.
    failures: VecDeque<(Hash32, String)>,
}

/// Maximum number of modules held in [`RecentModules`]. Each may be as large as the longest answer of
/// [`compiler`].
const MAX_RECENT_MODULES: usize = 4;
/// Maximum number of modules that are remembered as impossible to compile.
const MAX_RECENT_FAILURES: usize = 64;

impl RecentModules {
    fn add(&mut self, module: &Module) {
        if self.modules.iter().any(|known| known.sha256() == module.sha256()) {
            return;
        }
        self.modules.push_back(module.clone());
        if self.modules.len() > MAX_RECENT_MODULES {
            self.modules.pop_front();
        }
    }

    fn add_failure(&mut self, sha256: Hash32, why: String) {
        self.failures.push_back((sha256, why));
        if self.failures.len() > MAX_RECENT_FAILURES {
            self.failures.pop_front();
        }
    }

    fn failure_reason(&self, sha256: Hash32) -> Option<&str> {
        self.failures.iter().find(|(known, _)| *known == sha256).map(|(_, why)| why.as_str())
    }
}

impl Engine {
    /// Creates an engine and starts the thread that watches its runs.
    ///
    /// # Errors
    /// When wasmtime, the cache directory or the thread cannot be set up.
    pub fn new(settings: EngineSettings) -> Result<Self, EngineError> {
        let setup = |error: wasmtime::Error| EngineError::Wasmtime(format!("{error:#}"));
        let wasmtime = wasmtime::Engine::new(&settings::running(&settings)).map_err(setup)?;
        let mut linker = Linker::new(&wasmtime);
        interface::define(&mut linker).map_err(setup)?;
        interface::define_protocol(&mut linker).map_err(setup)?;
        guest_memory::define(&mut linker).map_err(setup)?;
        emitting::define(&mut linker).map_err(setup)?;
        let compiled = CompiledModules::new(&settings)?;
        let run_slots = RunSlots::new(&settings);
        let compiler = Compiler::new(settings.compiler, settings.instance_memory);
        let watch = Watch::start(wasmtime.clone()).map_err(EngineError::Thread)?;
        let mut marker = [0; 32];
        rand::rng().fill_bytes(&mut marker);
        let (loaded, recent) = (Mutex::default(), Mutex::default());
        let inner = Inner {
            wasmtime,
            linker,
            compiler,
            compiled,
            loaded,
            recent,
            run_slots,
            watch,
            marker,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the usage of the slots for runs and compilers.
    pub fn usages(&self) -> impl Iterator<Item = Usage> {
        self.inner.run_slots.usages().into_iter().chain([self.inner.compiler.usage()])
    }

    /// Checks whether a module may be a program, and returns what it declares about itself.
    /// Compiles nothing.
    ///
    /// # Errors
    /// [`Refused`]: the reason in one sentence, for the user who sent the module.
    pub fn check(&self, code: &[u8], rules: &CheckRules) -> Result<ModuleFacts, Refused> {
        check::check(code, rules)
    }

    /// Returns the module ready to run: from memory while it is in use, else from the cache, else
    /// compiled in a process of its own. Does not write it to the cache: see [`cache`](Self::cache).
    /// The caller must [`check`](Self::check) the module first, because this compiles any input.
    ///
    /// # Errors
    /// When it cannot be compiled.
    pub fn load(&self, code: &[u8]) -> Result<Module, EngineError> {
        let sha256 = Hash32(Sha256::digest(code).into());
        Ok(self.load_with(code, sha256, || Ok(()))?.0)
    }

    /// Loads the module like [`load`](Self::load). If it was compiled now and `cache_guard` returns a
    /// guard, writes it to the cache and holds the guard until then, so that it cannot be forgotten
    /// in the meantime.
    ///
    /// # Errors
    /// When it cannot be compiled.
    pub fn load_and_cache<G>(
        &self,
        code: &[u8],
        cache_guard: impl FnOnce() -> Option<G>,
    ) -> Result<Module, EngineError> {
        let sha256 = Hash32(Sha256::digest(code).into());
        let (module, is_new) = self.load_with(code, sha256, || Ok(()))?;
        if is_new && let Some(_guard) = cache_guard() {
            self.cache(&module);
        }
        Ok(module)
    }

    /// Loads the module like [`load`](Self::load), but checks it before compiling, and keeps it in
    /// memory along with the last few others. For code that belongs to no program.
    ///
    /// # Errors
    /// When it is refused or cannot be compiled.
    pub fn check_and_load(&self, code: &[u8], rules: &CheckRules) -> Result<Module, EngineError> {
        let sha256 = Hash32(Sha256::digest(code).into());
        let check = || self.check(code, rules).map(drop).map_err(EngineError::from);
        let module = self.load_with(code, sha256, check).map(|(module, _)| module);
        if let Ok(module) = &module {
            self.inner.recent.lock().add(module);
        }
        module
    }

    /// Returns the module, and whether it was newly compiled.
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
                load::compiled_module(wasmtime, &answer).map_err(unusable)?
            }
        };
        let module = Module::link(&module, linker, sha256).map_err(unusable)?;
        let mut loaded = loaded.lock();
        loaded.retain(|_, known| known.strong_count() > 0);
        loaded.insert(sha256, module.downgrade());
        Ok((module, is_new))
    }

    /// Compiles a module, unless it recently failed to compile.
    fn compile(&self, code: &[u8], sha256: Hash32) -> Result<Vec<u8>, EngineError> {
        if let Some(why) = self.inner.recent.lock().failure_reason(sha256) {
            return Err(EngineError::RefusedBefore(why.to_owned()));
        }
        let compiled = self.inner.compiler.compile(code);
        match &compiled {
            // Not remembered as a failure, because the machine may have been busy.
            Err(EngineError::CompileTime(_)) | Ok(_) => {}
            Err(error) if error.is_about_the_module() => {
                self.inner.recent.lock().add_failure(sha256, error.to_string());
            }
            Err(_) => {}
        }
        compiled
    }

    /// Writes the compiled form of a module to the cache, so that the next process need not compile
    /// it. A failed write is only logged.
    pub fn cache(&self, module: &Module) {
        let sha256 = module.sha256();
        if let Err(error) = self.inner.compiled.write(module.compiled(), sha256) {
            tracing::warn!(module = %sha256, "a compiled module cannot be kept: {error}");
        }
    }

    /// Removes the compiled forms of all modules except these.
    ///
    /// # Errors
    /// When one exists and cannot be removed.
    pub fn remove_cached_except(&self, modules: &BTreeSet<Hash32>) -> Result<(), EngineError> {
        self.inner.compiled.remove_others(modules)
    }

    /// Removes the cached compiled form of a module that no program needs any more.
    ///
    /// # Errors
    /// When the file exists and cannot be removed.
    pub fn remove_cached(&self, sha256: Hash32) -> Result<(), EngineError> {
        self.inner.compiled.remove(sha256)
    }
}

/// Returns the ledger information for the host, which accepts no protocol but its own.
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
