//! The engine: checks modules, compiles them, and keeps those that are in use.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};

use orrery_ledger::domain::Hash32;
use orrery_runtime::budget::Usage;
use parking_lot::Mutex;
use rand::RngCore;
use sha2::{Digest, Sha256};
use wasmtime::Linker;

use super::check::{self, CheckRules, ModuleFacts};
use super::compiled::CompiledModules;
use super::compiler::Compiler;
use super::error::EngineError;
use super::guest::Guest;
use super::module::{self, Module};
use super::refused::Refused;
use super::run_slots::RunSlots;
use super::settings::{self, EngineSettings};
use super::watch::Watch;
use super::{emitting, guest_memory, interface, load};

/// Compiles and runs programs. Cheap to clone; may be used from many threads.
#[derive(Clone)]
pub struct Engine {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    wasmtime: wasmtime::Engine,
    linker: Linker<Guest>,
    compiler: Compiler,
    compiled: CompiledModules,
    /// Loaded modules that are still in use.
    loaded: Mutex<HashMap<Hash32, Weak<module::Inner>>>,
    /// Recently loaded modules that belong to no program, and recent compile failures.
    recent: Mutex<RecentModules>,
    pub(super) run_slots: RunSlots,
    pub(super) watch: Watch,
    /// See [`Run::marker`](super::guest::Run::marker).
    pub(super) marker: [u8; 32],
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
/// [`compiler`](super::compiler).
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
