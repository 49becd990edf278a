//! Kernels without the features that confine workers. They are simulated: a seccomp filter on a
//! thread refuses system calls to it and to every process that it starts.

use std::thread;

use orrery_tables::query::QueryError;
use orrery_tables::{Confinement, Protections};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule};

use super::support::{WORKER, World, owner};
use orrery_testkit::program::with_foreign_file;

/// Makes the kernel refuse some system calls with `error`, in this thread and the processes that it
/// starts.
fn refuse(calls: &[i64], error: i32) {
    let rules = calls.iter().map(|call| (*call, Vec::<SeccompRule>::new())).collect();
    let refused = SeccompAction::Errno(error.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Returns the detected confinement and the result of a query, on a kernel that refuses these
/// calls.
fn without(
    calls: &'static [i64],
    error: i32,
    allow_unconfined: bool,
) -> (Confinement, Result<serde_json::Value, QueryError>) {
    let on_such_a_kernel = move || {
        refuse(calls, error);
        let world = World::with(|settings| settings.queries.allow_unconfined = allow_unconfined);
        let tried = world.tables.try_confinement().unwrap();
        let alice = owner("alice");
        world.tables.set_complete(&alice).unwrap();
        assert_eq!(world.tables.confinement(), Some(tried));
        (tried, world.try_rows(&alice, "SELECT 1 AS a"))
    };
    thread::spawn(on_such_a_kernel).join().unwrap()
}

const LANDLOCK: &[i64] = &[
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
];

#[test]
fn without_landlock_queries_are_refused_unless_the_operator_allows_them() {
    let here = World::new().tables.try_confinement().unwrap();
    let (found, answer) = without(LANDLOCK, libc::ENOSYS, false);
    assert_eq!(found, Confinement { files: false, ..here });
    let error = answer.unwrap_err();
    assert!(matches!(error, QueryError::Unconfined(lack) if lack.contains("Landlock")), "{error}");
    let (found, answer) = without(LANDLOCK, libc::ENOSYS, true);
    assert!(!found.files);
    assert_eq!(answer, Ok(serde_json::json!([{"a": 1}])));
}

/// Landlock's calls fail with EOPNOTSUPP where it is built into the kernel but disabled at boot.
#[test]
fn with_landlock_disabled_at_boot_queries_are_refused() {
    let (found, answer) = without(LANDLOCK, libc::EOPNOTSUPP, false);
    assert!(!found.files);
    assert!(matches!(answer, Err(QueryError::Unconfined(_))), "{answer:?}");
}

#[test]
fn without_seccomp_queries_are_refused() {
    let (found, answer) = without(&[libc::SYS_seccomp], libc::EINVAL, false);
    assert!(!found.calls);
    let error = answer.unwrap_err();
    assert!(error.to_string().contains("seccomp"), "{error}");
}

#[test]
fn a_worker_started_without_confinement_is_reported_as_unconfined() {
    let world = World::with(|settings| {
        settings.tunables.protections = Protections { process: false, ..Protections::default() };
        settings.queries.allow_unconfined = false;
    });
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    let error = world.try_rows(&alice, "SELECT 1").unwrap_err();
    assert!(error.to_string().contains("neither"), "{error}");
}

/// RocksDB opens a directory without close-on-exec before it writes a table file.
#[test]
fn a_worker_closes_an_inherited_file_and_starts() {
    let directory = tempfile::tempdir().unwrap();
    let worker = with_foreign_file(&WORKER, directory.path());
    let world = World::with(|settings| settings.worker = worker);
    world.tables.try_confinement().unwrap();
    let alice = owner("alice");
    world.tables.set_complete(&alice).unwrap();
    assert_eq!(world.rows(&alice, "SELECT 1 AS a"), serde_json::json!([{"a": 1}]));
    assert!(directory.path().join("foreign").exists(), "it was opened");
}
