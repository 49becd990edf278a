//! Checks the rules of ARCHITECTURE.md against the sources: which module may depend on which, and
//! which modules may use a library.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules, each with the modules that it may use. Dependencies have no cycles.
const MAY_USE: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("decode", &["domain"]),
    ("verify", &["decode", "domain"]),
    ("priority", &[]),
    ("store", &["decode", "domain", "priority", "verify"]),
    ("accounts", &["decode", "domain", "store"]),
    ("durable", &[]),
    ("backup", &["domain", "durable", "store"]),
    ("unsafe_code", &[]),
    ("budget", &[]),
    ("confinement", &[]),
    ("observe", &["budget", "domain"]),
    ("auth", &["domain"]),
    ("source", &["decode", "domain", "durable", "observe", "verify"]),
    ("notify", &["source"]),
    ("webhooks", &["budget", "decode", "domain", "observe", "priority", "source", "store"]),
    ("pipeline", &["decode", "domain", "priority", "source", "store", "verify"]),
    ("config", &["auth", "domain", "observe"]),
    ("control", &["domain", "source"]),
    ("tables", &["budget", "confinement", "domain", "durable", "priority", "unsafe_code"]),
    (
        "programs",
        &[
            "budget",
            "confinement",
            "decode",
            "domain",
            "durable",
            "observe",
            "priority",
            "store",
            "tables",
            "unsafe_code",
        ],
    ),
    ("export", &["decode", "domain", "programs", "source", "store", "tables"]),
    ("rpc", &["decode", "domain", "store"]),
    (
        "api",
        &[
            "accounts",
            "auth",
            "budget",
            "decode",
            "domain",
            "observe",
            "priority",
            "programs",
            "rpc",
            "store",
            "tables",
            "unsafe_code",
            "webhooks",
        ],
    ),
    (
        "service",
        &[
            "accounts", "api", "auth", "config", "control", "domain", "durable", "export",
            "notify", "observe", "pipeline", "priority", "programs", "rpc", "source", "store",
            "tables", "verify", "webhooks",
        ],
    ),
];

/// Libraries, each with the only modules that may use it.
const LIBRARY_USERS: &[(&str, &[&str])] = &[
    ("rocksdb", &["store"]),
    ("warp", &["api"]),
    ("jsonwebtoken", &["auth"]),
    ("governor", &["api"]),
    ("soroban_env_host", &["programs", "source"]),
    ("wasmtime", &["programs", "unsafe_code"]),
    ("wasmparser", &["programs"]),
    ("duckdb", &["tables", "unsafe_code"]),
    ("arrow", &["export", "tables"]),
    ("parquet", &["export", "tables"]),
    ("landlock", &["confinement"]),
    ("seccompiler", &["confinement"]),
    ("prometheus", &["observe"]),
    ("reqwest", &["cli", "notify", "source", "webhooks"]),
    ("rustls", &["source"]),
    ("object_store", &["source"]),
    ("clap", &["cli", "main"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("sd_notify", &["service"]),
    ("indicatif", &["cli"]),
    ("anyhow", &["cli", "main"]),
    // For system call numbers, which are constants.
    ("libc", &["confinement", "unsafe_code"]),
];

/// The only module that may contain unsafe code.
const UNSAFE_MODULE: &str = "unsafe_code";

/// Paths that the modules in `PURE` may not use.
const INPUT_AND_OUTPUT: &[&str] =
    &["std::fs", "std::net", "std::process", "std::io", "tokio", "reqwest"];
const PURE: &[&str] = &["domain", "decode", "verify"];

/// Maximum number of lines of a source file.
const MAX_LINES: usize = 500;

struct Source {
    module: String,
    path: PathBuf,
    /// Source code without comments and test modules.
    code: String,
    lines: usize,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(read(&root, path));
            }
        }
    }
    assert!(found.len() > 20, "the sources are where they are expected");
    found
}

fn read(root: &Path, path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).unwrap();
    let parts: Vec<_> = path.strip_prefix(root).unwrap().iter().collect();
    let module = parts[0].to_str().unwrap().trim_end_matches(".rs").to_owned();
    let is_tests = parts.iter().any(|part| *part == "tests" || *part == "tests.rs");
    let shipped = if is_tests { "" } else { text.split("#[cfg(test)]").next().unwrap() };
    let code =
        shipped.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
    Source { module, lines: text.lines().count(), code, path }
}

/// Returns the modules of this crate that a source uses, as `crate::x` or in a list such as
/// `crate::{x::…, y::…}`.
fn named_modules(code: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect()
    };
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => drop(named.insert(word(rest))),
            Some(list) => {
                let mut depth = 0;
                let mut start = true;
                for (i, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        c if start && c.is_alphabetic() => {
                            named.insert(word(&list[i..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    named.remove("");
    named
}

#[test]
fn modules_name_only_what_they_may() {
    let rules: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let free = ["main", "lib", "cli"];
    let mut offences = Vec::new();
    for source in sources() {
        if free.contains(&source.module.as_str()) {
            continue;
        }
        let Some(allowed) = rules.get(source.module.as_str()) else {
            panic!("{}: say in MAY_USE what '{}' may name", source.path.display(), source.module);
        };
        for named in named_modules(&source.code) {
            if named != source.module && !allowed.contains(&named.as_str()) {
                offences.push(format!("{} names {named}", source.path.display()));
            }
        }
    }
    assert!(offences.is_empty(), "{offences:#?}");
}

/// Each module may use only modules above it in the list, which excludes cycles.
#[test]
fn the_rules_have_no_cycle() {
    let mut above: BTreeSet<&str> = BTreeSet::new();
    for (module, allowed) in MAY_USE {
        for other in *allowed {
            assert!(above.contains(other), "{module} may name {other}, which stands below it");
        }
        above.insert(module);
    }
}

#[test]
fn libraries_stay_behind_their_door() {
    for source in sources() {
        for (library, users) in LIBRARY_USERS {
            let named = source.code.contains(&format!("{library}::"));
            assert!(
                !named || users.contains(&source.module.as_str()),
                "{} names {library}, which only {users:?} may",
                source.path.display()
            );
        }
        let unsafe_code = source.code.contains("unsafe ") || source.code.contains("allow(unsafe");
        let may = source.module == UNSAFE_MODULE;
        assert!(may || !unsafe_code, "{} holds unsafe code", source.path.display());
    }
}

#[test]
fn pure_modules_do_no_input_or_output() {
    for source in sources().iter().filter(|s| PURE.contains(&s.module.as_str())) {
        for name in INPUT_AND_OUTPUT {
            assert!(!source.code.contains(name), "{} names {name}", source.path.display());
        }
    }
}

#[test]
fn every_file_says_what_it_knows_and_stays_short() {
    for source in sources() {
        let text = fs::read_to_string(&source.path).unwrap();
        let path = source.path.display();
        assert!(source.lines <= MAX_LINES, "{path} has {} lines: split it", source.lines);
        let is_tests = source.path.file_stem().is_some_and(|stem| stem == "tests");
        assert!(is_tests || text.starts_with("//!"), "{path} begins without a //! line");
    }
}

#[test]
fn the_reader_of_names_finds_them() {
    let named = named_modules("use crate::store::{a, b}; use crate::{api::{x, y}, domain::Z};");
    assert_eq!(named.into_iter().collect::<Vec<_>>(), ["api", "domain", "store"]);
}
