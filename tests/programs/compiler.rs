//! The process that compiles one module: its resource limits, its number of threads, and how many
//! deploys may start one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use orrery::domain::{ContractId, Network, Owner};
use orrery::executables::Interfaces;
use orrery::observe::health::Health;
use orrery::programs::engine::{Engine, EngineSettings};
use orrery::programs::manifest::Manifest;
use orrery::programs::{Deploy, ProgramDeps, ProgramError, Programs, Replace, storage};
use orrery::settings::{self, Queries};
use orrery::store::Store;
use orrery::tables::{Tables, TablesSettings, Tunables};
use tempfile::TempDir;

use crate::network::built;
use crate::service::PASSPHRASE;
use orrery_testkit::binary::orrery;
use orrery_testkit::costly::shapes;
use orrery_testkit::program::{self, with_foreign_file};
use orrery_testkit::wait::{LIMIT, wait_until};

/// Waits until `found` returns the expected value.
#[track_caller]
fn wait_for<T: PartialEq + std::fmt::Debug>(expected: &T, mut found: impl FnMut() -> T) {
    wait_until(&format!("it is {expected:?}"), || {
        let found = found();
        if found == *expected { Ok(()) } else { Err(found) }
    });
}

/// A compiler process, started as the service starts one; killed on drop.
struct Compiler(Child);

impl Compiler {
    fn begin() -> Self {
        let mut command = orrery();
        command.args(["compile", "--instance-memory", "67108864"]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Reads a file of the process in `/proc`.
    fn proc_file(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap()
    }

    /// Returns the soft and the hard limit of a resource, by its name in proc_pid_limits(5).
    fn limit(&self, name: &str) -> [String; 2] {
        let limits = self.proc_file("limits");
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let mut words = line.split_whitespace().map(str::to_owned);
        std::array::from_fn(|_| words.next().unwrap())
    }

    fn threads(&self) -> usize {
        let status = self.proc_file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_compiler_is_limited_before_it_reads_a_module() {
    let compiler = Compiler::begin();
    let limits = [
        ("Max address space", 2_u64 << 30),
        ("Max cpu time", 60),
        ("Max open files", 8),
        ("Max file size", 0),
        ("Max core file size", 0),
    ];
    let expected = limits.map(|(name, most)| (name, [most.to_string(), most.to_string()]));
    let expected = BTreeMap::from(expected);
    // The process reads only after it has set its limits, and has been sent nothing yet.
    wait_for(&expected, || expected.keys().map(|name| (*name, compiler.limit(name))).collect());
}

#[test]
fn a_compiler_uses_one_thread() {
    let mut compiler = Compiler::begin();
    let mut input = compiler.0.stdin.take().unwrap();
    let shapes = shapes(16, 16 << 10);
    let (_, code) = shapes.iter().find(|(name, _)| *name == "loads and stores").unwrap();
    input.write_all(code).unwrap();
    drop(input);
    // The process blocks until its output is read, which does not fit into the pipe; the threads of
    // a pool would still exist.
    let mut output = compiler.0.stdout.take().unwrap();
    // The length of the frame, `runtime::frames`.
    let mut start = [0; 12];
    output.read_exact(&mut start).unwrap();
    let length = u32::from_le_bytes(*start.first_chunk().unwrap());
    assert!(length > 128 << 10, "{length} bytes");
    // The thread that compiled may be just ending.
    wait_for(&1, || compiler.threads());
    let mut code = Vec::new();
    output.read_to_end(&mut code).unwrap();
    assert_eq!(code.len(), length as usize);
    assert!(compiler.0.wait().unwrap().success());
}

/// RocksDB opens a directory without close-on-exec before it writes a table file.
#[test]
fn a_compiler_closes_an_inherited_file_and_starts() {
    let directory = tempfile::tempdir().unwrap();
    let compiler = with_foreign_file(&program::orrery(), directory.path());
    let engine = Engine::new(EngineSettings::new(compiler)).unwrap();
    engine.load(&built("counter_program")).unwrap();
    assert!(directory.path().join("foreign").exists(), "it was opened");
}

/// Programs with a compiler that waits for a sign file, and then ends without output.
struct Waiting {
    programs: Programs,
    tables: Tables,
    directory: TempDir,
}

/// Receives the result of a deploy.
type Outcome = Receiver<Result<Manifest, ProgramError>>;

impl Waiting {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("begun")).unwrap();
        // A file that was just written cannot be executed while another thread forks, so the
        // compiler is a symbolic link.
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/waiting_compiler.sh");
        let compiler = root.join("compiler");
        symlink(script, &compiler).unwrap();
        let network = Network::from_passphrase(PASSPHRASE);
        let tables = Tables::open(TablesSettings {
            directory: root.join("tables"),
            worker: env!("CARGO_BIN_EXE_orrery").into(),
            queries: Queries { allow_unconfined: true, ..Queries::default() },
            chain: None,
            tunables: Tunables::default(),
        });
        let tables = tables.unwrap();
        let data = root.join("data");
        let store = Store::open_with(&data, Some(&network), storage::extensions()).unwrap();
        let store = Arc::new(store);
        let interfaces = Interfaces::new(Arc::clone(&store), None);
        let programs = Programs::start(ProgramDeps {
            store,
            tables: tables.clone(),
            interfaces,
            health: Arc::new(Health::default()),
            settings: settings::Programs::default(),
            index: settings::Index::default(),
            upstream: None,
            clock: Arc::new(|| 0),
            compiler,
            code_key: [7; 32],
        });
        Self { programs: programs.unwrap(), tables, directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a deploy on its own thread, and returns without waiting for its result.
    fn deploy<'s>(
        &'s self,
        scope: &'s std::thread::Scope<'s, '_>,
        owner: &str,
        project: &str,
    ) -> Outcome {
        let (owner, deploy) = (
            Owner(owner.to_owned()),
            Deploy {
                code: built("counter_program"),
                project_name: project.to_owned(),
                contracts: vec![ContractId([1; 32])],
                public: None,
                replace: Replace::No,
                allow_unfit: false,
            },
        );
        let (done, outcome) = channel();
        scope.spawn(move || done.send(self.programs.deploy(&owner, deploy)).unwrap());
        outcome
    }

    /// Number of compilers that have started.
    fn begun(&self) -> usize {
        fs::read_dir(self.path().join("begun")).unwrap().count()
    }
}

/// Creates the sign file on drop, also when the test fails.
struct ReleaseOnDrop<'p>(&'p Path);

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        fs::write(self.0.join("sign"), "").unwrap();
    }
}

#[test]
fn concurrent_deploys_are_limited_to_one_per_owner() {
    let waiting = Waiting::new();
    let is_busy = |outcome: Outcome| {
        let outcome = outcome.recv_timeout(LIMIT).expect("it is refused at once");
        assert!(matches!(outcome, Err(ProgramError::Busy)), "{outcome:?}");
    };
    let had_a_place = |outcome: Outcome| {
        let outcome = outcome.recv_timeout(LIMIT).expect("the compiler has ended");
        assert!(matches!(outcome, Err(ProgramError::Module(_))), "{outcome:?}");
    };
    std::thread::scope(|scope| {
        let release = ReleaseOnDrop(waiting.path());
        let anas = waiting.deploy(scope, "ana", "one");
        wait_for(&1, || waiting.begun());
        is_busy(waiting.deploy(scope, "ana", "two"));
        // There is a second slot, but no third.
        let bobs = waiting.deploy(scope, "bob", "three");
        wait_for(&2, || waiting.begun());
        is_busy(waiting.deploy(scope, "eve", "four"));
        drop(release);
        had_a_place(anas);
        had_a_place(bobs);
        // A slot is free again, also for the deploy that was refused.
        had_a_place(waiting.deploy(scope, "ana", "two"));
    });
    waiting.programs.stop();
    waiting.tables.close();
}
