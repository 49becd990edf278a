//! Configuration of wasmtime: which WebAssembly proposals a module may use, what makes a run
//! deterministic on every machine, and how many instances the pool holds.

use std::path::PathBuf;
use std::{fmt, thread};

use orrery_settings::Programs;
use wasmparser::WasmFeatures;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

/// Maximum depth of nested frames that the contract host allows (`DEFAULT_HOST_DEPTH_LIMIT`). Each
/// may be an instance of a program.
const FRAMES: u32 = soroban_env_host::DEFAULT_HOST_DEPTH_LIMIT;

/// Maximum stack of the code of one instance, in bytes. A contract on the network has less.
const WASM_STACK: usize = 512 << 10;

/// Maximum stack of a run in bytes: every frame of the deepest nesting may use its whole share, and
/// the host and the interpreter need stack in addition.
pub(super) const RUN_STACK: usize = FRAMES as usize * (WASM_STACK + (1 << 20));

/// Stack size of threads that run programs, in bytes. Only the part that is used occupies physical
/// memory.
pub const THREAD_STACK: usize = RUN_STACK + (1 << 20);

/// Maximum number of concurrent runs of low priority. Equal to the number of threads for them, so
/// that a long run never makes another wait.
pub const BACKGROUND_RUNS: usize = 10;

/// Maximum number of tables per module: with reference types, a module may have a table of other
/// references beside its function table. The network allows one.
pub(super) const MAX_TABLES: u32 = 2;

/// Maximum number of elements per table. The network allows 1,000.
pub(super) const MAX_TABLE_ELEMENTS: usize = 20_000;

/// Maximum size of an instance's own record in bytes; it holds imports, globals and function
/// references.
const INSTANCE_RECORD: usize = 4 << 20;

/// Settings of an [`Engine`](super::engine::Engine).
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Executable that is started as the compiler process: this program.
    pub compiler: PathBuf,
    /// Where compiled modules are cached; with `None`, every process compiles them again.
    pub cache: Option<CacheSettings>,
    /// Maximum number of concurrent runs of normal priority; further runs wait.
    pub concurrent_runs: usize,
    /// Maximum number of concurrent runs of low priority; further runs wait.
    pub background_runs: usize,
    /// Maximum linear memory of one instance, in bytes. Address space is reserved, but no memory is
    /// allocated.
    pub instance_memory: usize,
}

impl EngineSettings {
    /// Returns the default settings, without a cache.
    pub fn new(compiler: PathBuf) -> Self {
        let concurrent_runs = thread::available_parallelism().map_or(2, usize::from);
        Self {
            compiler,
            cache: None,
            concurrent_runs,
            background_runs: BACKGROUND_RUNS,
            instance_memory: Programs::default().memory_mib.bytes() as usize,
        }
    }
}

/// Settings of the cache of compiled modules.
#[derive(Clone)]
pub struct CacheSettings {
    /// Directory that contains nothing but compiled modules.
    pub directory: PathBuf,
    /// Secret key that authenticates each file, because the content of a file is executed.
    pub key: [u8; 32],
}

impl fmt::Debug for CacheSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheSettings").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// The proposals that a module may use: those of the network's own interpreter, and those that
/// newer compilers enable by default (reference types, multi-value). Excludes threads and
/// everything whose result depends on the processor.
pub(super) const FEATURES: WasmFeatures = WasmFeatures::WASM1
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::EXTENDED_CONST);

/// Returns the configuration shared by compiling and running.
fn common(instance_memory: usize) -> Config {
    let mut config = Config::new();
    config
        .wasm_tail_call(false)
        .wasm_reference_types(true)
        .wasm_multi_value(true)
        .wasm_bulk_memory(true)
        .wasm_extended_const(true)
        .wasm_simd(false)
        .wasm_relaxed_simd(false)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        .wasm_wide_arithmetic(false)
        .wasm_custom_page_sizes(false)
        // Fuel is the limit that is the same on every machine; epochs interrupt what fuel does not
        // end in time.
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK)
        // The location of a trap in the code is not used.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        // Small reservations: with the default of four gigabytes per memory, a pool does not fit
        // into a limited address space. Compiled code checks accesses instead.
        .memory_reservation(instance_memory as u64)
        .memory_guard_size(64 << 10)
        .guard_before_linear_memory(false)
        .memory_may_move(false);
    config
}

/// Returns the configuration of a process that compiles modules and runs none.
pub(super) fn compiling(instance_memory: usize) -> Config {
    let mut config = common(instance_memory);
    config
        // The bits of a NaN differ between processors.
        .cranelift_nan_canonicalization(true)
        .cranelift_opt_level(OptLevel::Speed)
        .parallel_compilation(false);
    config
}

/// Returns the configuration of a process that runs modules and cannot compile any.
pub(super) fn running(settings: &EngineSettings) -> Config {
    let runs = settings.concurrent_runs.max(1).saturating_add(settings.background_runs.max(1));
    let instances = u32::try_from(runs).unwrap_or(u32::MAX).saturating_mul(FRAMES + 1);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(instances)
        .total_memories(instances)
        .total_tables(instances.saturating_mul(MAX_TABLES))
        .total_gc_heaps(instances)
        .max_core_instance_size(INSTANCE_RECORD)
        .max_memories_per_module(1)
        .max_tables_per_module(MAX_TABLES)
        .max_memory_size(settings.instance_memory)
        .table_elements(MAX_TABLE_ELEMENTS)
        .max_unused_warm_slots(instances.min(64))
        .linear_memory_keep_resident(1 << 20)
        // Resets only the pages that were written, where the kernel reports them (Linux 6.7): a
        // module has a megabyte of memory and writes a few pages of it.
        .pagemap_scan(Enabled::Auto)
        .table_keep_resident(16 << 10);
    let mut config = common(settings.instance_memory);
    config.enable_compiler(false).allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    #[test]
    fn the_running_engine_loads_compiled_modules_and_compiles_none() {
        let settings = EngineSettings { concurrent_runs: 1, ..EngineSettings::new("".into()) };
        let running = wasmtime::Engine::new(&running(&settings)).unwrap();
        let code = wat::parse_str("(module (memory 1) (func (export \"f\")))").unwrap();
        assert!(wasmtime::Module::new(&running, &code).is_err());
        let compiler = |memory| wasmtime::Engine::new(&compiling(memory)).unwrap();
        let compiled = compiler(settings.instance_memory).precompile_module(&code).unwrap();
        assert!(load::compiled_module(&running, &compiled).is_ok());
        let other = compiler(settings.instance_memory / 2).precompile_module(&code).unwrap();
        assert!(load::compiled_module(&running, &other).is_err(), "for other instances");
    }
}
