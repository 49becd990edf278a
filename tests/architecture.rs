//! Checks the rules of ARCHITECTURE.md that the compiler cannot: which module of the product may use
//! which, which crate links a library, and what is in which folder. Also checks that ARCHITECTURE.md
//! and `docs/architecture` name what exists.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};

/// Modules of the product's own crate, each with what it may use: modules above it in the list, and
/// other crates under the names that the product gives them. What those use is in their manifests.
const MAY_USE: &[(&str, &[&str])] = &[
    ("notify", &["net", "webhooks"]),
    ("config", &["auth", "domain", "postgres", "settings", "validators"]),
    ("control", &["domain", "sinks", "stall"]),
    (
        "service",
        &[
            "accounts",
            "api",
            "attestation",
            "auth",
            "checkpoint",
            "config",
            "contract_data",
            "control",
            "decode",
            "domain",
            "durable",
            "executables",
            "export",
            "membership",
            "net",
            "notify",
            "observe",
            "pipeline",
            "priority",
            "programs",
            "rpc",
            "sandbox",
            "settings",
            "sinks",
            "source",
            "steady",
            "store",
            "supervision",
            "tables",
            "validators",
            "verify",
            "webhooks",
        ],
    ),
    ("backup", &["auth", "domain", "durable", "net", "sandbox", "service", "steady", "store"]),
];

/// Crates of `src`, each with the others that it uses.
const BORDERS: &[(&str, &[&str])] = &[
    // Closed ledgers, whoever yields or stores them.
    ("ledger", &[]),
    ("interfaces", &["ledger"]),
    // Values that have names, wherever they come from.
    ("conditions", &["interfaces", "ledger"]),
    // What any process needs, and no part that uses it.
    ("runtime", &["ledger"]),
    // HTTP, TLS and buckets, whatever is requested.
    ("net", &[]),
    ("settings", &["ledger", "runtime"]),
    // No consumer of what is stored.
    ("store", &["ledger", "runtime"]),
    // Sources never see the store.
    ("source", &["ledger", "net", "runtime"]),
    // Whoever vouches for a header, and wherever the state goes.
    ("checkpoint", &["ledger", "net", "runtime"]),
    ("sandbox", &["ledger", "runtime"]),
    // One module on one transaction: no store, no SQL.
    ("engine", &["ledger", "runtime", "settings"]),
    // Rows become tables, wherever they come from.
    ("tables", &["interfaces", "ledger", "runtime", "settings"]),
    ("accounts", &["ledger", "store"]),
    ("contract_data", &["checkpoint", "ledger", "store"]),
    ("executables", &["interfaces", "ledger", "store"]),
    ("membership", &["executables", "interfaces", "ledger", "store"]),
    ("auth", &["ledger", "settings"]),
    // Neither particular sources nor particular readers.
    ("pipeline", &["ledger", "runtime", "store"]),
    // HTTP as a client alone.
    (
        "webhooks",
        &[
            "conditions",
            "contract_data",
            "executables",
            "interfaces",
            "ledger",
            "membership",
            "net",
            "runtime",
            "settings",
            "store",
        ],
    ),
    // No HTTP, no webhooks and no accounts.
    (
        "programs",
        &[
            "contract_data",
            "engine",
            "executables",
            "interfaces",
            "ledger",
            "membership",
            "runtime",
            "settings",
            "store",
            "tables",
        ],
    ),
    // A server of PostgreSQL and rows for it, wherever they come from.
    ("postgres", &[]),
    // Rows of projects and where they go: neither webhooks nor HTTP.
    (
        "sinks",
        &["interfaces", "ledger", "postgres", "programs", "runtime", "settings", "store", "tables"],
    ),
    // JSON-RPC over any transport, with any node.
    ("rpc", &["contract_data", "ledger", "store"]),
    // Files, whatever is stored.
    ("site", &["runtime"]),
    // No source, no bucket and no engine.
    (
        "api",
        &[
            "accounts",
            "auth",
            "conditions",
            "contract_data",
            "executables",
            "iceberg",
            "interfaces",
            "ledger",
            "membership",
            "pipeline",
            "programs",
            "rpc",
            "runtime",
            "settings",
            "site",
            "store",
            "tables",
            "webhooks",
        ],
    ),
    // Bytes of metadata, whatever the rows are, and wherever they are written.
    ("iceberg", &[]),
    // Neither the service nor its interfaces.
    (
        "export",
        &[
            "executables",
            "iceberg",
            "interfaces",
            "ledger",
            "net",
            "pipeline",
            "programs",
            "runtime",
            "store",
            "tables",
        ],
    ),
];

/// Libraries, each with the only modules of the product that may use it.
const LIBRARY_USERS: &[(&str, &[&str])] = &[
    ("clap", &["cli", "main"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("hyper", &["cli", "control"]),
    ("indicatif", &["cli"]),
    ("sd_notify", &["service"]),
    ("tokio", &["backup", "cli", "control", "notify", "service"]),
];

/// Libraries, each with the only crates that may link it; `.` is the product's own.
const LINKED_BY: &[(&str, &[&str])] = &[
    ("arrow", &["export", "tables"]),
    ("clap", &["."]),
    ("duckdb", &["tables"]),
    ("hyper", &["api", "webhooks", "."]),
    ("jsonwebtoken", &["auth"]),
    ("landlock", &["runtime"]),
    ("libc", &["runtime"]),
    ("object_store", &["net"]),
    ("parquet", &["export", "tables"]),
    ("prometheus", &["runtime"]),
    ("reqwest", &["net"]),
    ("rocksdb", &["store"]),
    ("rustls", &["net", "postgres"]),
    ("seccompiler", &["runtime"]),
    ("soroban-env-host", &["engine", "sandbox"]),
    (
        "tokio",
        &[
            "api",
            "checkpoint",
            "export",
            "net",
            "postgres",
            "runtime",
            "sandbox",
            "sinks",
            "source",
            "webhooks",
            ".",
        ],
    ),
    ("tokio-postgres", &["postgres"]),
    ("warp", &["api"]),
    ("wasmparser", &["engine", "interfaces"]),
    ("wasmtime", &["engine"]),
];

/// The only files that may contain unsafe code.
const UNSAFE_FILES: &[&str] = &["runtime/process.rs", "engine/load.rs", "tables/ffi.rs"];

/// Paths that the crates in `PURE` may not use.
const INPUT_AND_OUTPUT: &[&str] = &["std::fs", "std::net", "std::process", "std::io"];
const PURE: &[&str] = &["conditions", "iceberg", "interfaces", "ledger"];
/// Folders of other crates whose files may not use these paths either, nor libraries that do.
const PURE_FOLDERS: &[&str] = &["tables/event_tables"];
const LIBRARIES_THAT_DO: &[&str] = &["arrow", "duckdb"];

/// Floors of the store, from the lowest: a file uses only modules of its own floor and of those before.
const FLOORS: &[&str] = &["encoding", "indexes", "db", "state", "ingest", "feed", "read", "upkeep"];

/// Maximum number of lines of a source file.
const MAX_LINES: usize = 800;

/// A source file of the product, as the compiler reads it: reached from the root file of the crate
/// through `mod` items, without the items that exist only in tests.
struct Source {
    path: PathBuf,
    /// Name of the crate that the file belongs to; in the product's own crate that of the module,
    /// or `lib` or `main`.
    top: String,
    /// All paths in the code, those to modules of the crate from its root on.
    names: BTreeSet<Name>,
    has_unsafe_code: bool,
    /// Macros in the code, also in arguments of other macros, that panic when a stream cannot be written.
    panicking_prints: BTreeSet<String>,
}

impl Source {
    /// `module` is the path of the file's module in the crate, without `crate`.
    fn new(path: PathBuf, top: &str, module: &[String], syntax: &syn::File) -> Self {
        let mut names = BTreeSet::new();
        collect_names(module, &syntax.items, &mut names);
        let mut unsafe_code = UnsafeCode(false);
        unsafe_code.visit_file(syntax);
        let mut panicking_prints = BTreeSet::new();
        find_prints(syntax.to_token_stream(), &mut panicking_prints);
        let has_unsafe_code = unsafe_code.0;
        Self { path, top: top.to_owned(), names, has_unsafe_code, panicking_prints }
    }

    fn is_of_product(&self) -> bool {
        !CRATES.contains(&self.top)
    }

    /// Returns the modules of the crate that the file uses.
    fn used_modules(&self) -> BTreeSet<&str> {
        let in_crate = self.names.iter().filter(|name| name[0] == "crate");
        in_crate.filter_map(|name| name.get(1)).map(String::as_str).collect()
    }
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn root() -> PathBuf {
    project().join("src")
}

fn manifest(folder: &Path) -> toml::Table {
    fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap()
}

/// The folders of the workspace's members other than the product itself.
fn members() -> Vec<String> {
    let members = manifest(project())["workspace"]["members"].as_array().unwrap().clone();
    members.iter().map(|member| member.as_str().unwrap().to_owned()).collect()
}

/// The crates below `src` that are not the product itself, by the names of their folders.
static CRATES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let members = members().into_iter();
    members.filter_map(|member| member.strip_prefix("src/").map(str::to_owned)).collect()
});

/// All files of the product, in all crates.
static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let mut found = Vec::new();
    for name in ["lib", "main"] {
        read(&root(), root().join(name).with_extension("rs"), name, &[], &mut found);
    }
    let product = found.len();
    for name in CRATES.iter() {
        let folder = root().join(name);
        read(&folder, folder.join("lib.rs"), name, &[], &mut found);
    }
    assert!(product > 60 && found.len() > 500, "the sources are where they are expected");
    found
});

/// Reads a file and the files of its modules, whose directory is `below`.
fn read(below: &Path, path: PathBuf, top: &str, module: &[String], found: &mut Vec<Source>) {
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut syntax = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    WithoutTests.visit_file_mut(&mut syntax);
    for item in &syntax.items {
        let syn::Item::Mod(child) = item else { continue };
        if child.content.is_some() {
            continue;
        }
        let name = child.ident.to_string();
        let (beside, inside) = (below.join(format!("{name}.rs")), below.join(&name));
        let path = if beside.exists() { beside } else { inside.join("mod.rs") };
        let top = if ["lib", "main"].contains(&top) { &*name } else { top };
        read(&inside, path, top, &[module, std::slice::from_ref(&name)].concat(), found);
    }
    found.push(Source::new(path, top, module, &syntax));
}

/// Removes everything under `#[cfg(test)]`.
struct WithoutTests;

impl WithoutTests {
    fn is_test(attributes: &[syn::Attribute]) -> bool {
        attributes.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
        })
    }
}

impl VisitMut for WithoutTests {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| !Self::is_test(attributes_of(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !Self::is_test(attributes_of(item)));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        block.items.retain(|item| match item {
            syn::ImplItem::Fn(function) => !Self::is_test(&function.attrs),
            syn::ImplItem::Const(constant) => !Self::is_test(&constant.attrs),
            _ => true,
        });
        visit_mut::visit_item_impl_mut(self, block);
    }
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// A path in a source, as far as it names modules: `crate::store::Store`.
type Name = Vec<String>;

/// Returns all paths of two or more names in the tokens. A list in braces gives one path for each
/// of its members. Doc comments are attributes, and contain no tokens but their text.
fn paths(tokens: TokenStream) -> Vec<Name> {
    let mut found = Vec::new();
    collect(&tokens.into_iter().collect::<Vec<_>>(), &[], &mut found);
    found
}

fn collect(tokens: &[TokenTree], prefix: &[String], found: &mut Vec<Name>) {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            // The new name in `x as y` names no module.
            TokenTree::Ident(ident) if ident == "as" => at += 2,
            TokenTree::Ident(ident) => {
                let mut name = prefix.to_vec();
                name.push(ident.to_string());
                at += 1;
                while is_separator(&tokens[at..]) {
                    match tokens.get(at + 2) {
                        Some(TokenTree::Ident(next)) => name.push(next.to_string()),
                        Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Brace => {
                            let list: Vec<_> = list.stream().into_iter().collect();
                            collect(&list, &name, found);
                        }
                        _ => break,
                    }
                    at += 3;
                }
                if name.len() > 1 {
                    found.push(name);
                }
            }
            TokenTree::Group(group) => {
                collect(&group.stream().into_iter().collect::<Vec<_>>(), prefix, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Whether the tokens begin with `::`.
fn is_separator(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(tokens.first()) && is_colon(tokens.get(1))
}

/// Adds all paths in the items. `module` is the module in which they stand.
fn collect_names(module: &[String], items: &[syn::Item], names: &mut BTreeSet<Name>) {
    for item in items {
        match item {
            syn::Item::Mod(syn::ItemMod { ident, content: Some((_, items)), .. }) => {
                collect_names(&[module, &[ident.to_string()]].concat(), items, names);
            }
            item => {
                let found = paths(item.to_token_stream());
                names.extend(found.into_iter().map(|name| from_root(module, name)));
            }
        }
    }
}

/// Replaces `super` at the beginning of a path, so that it begins with `crate`.
fn from_root(module: &[String], name: Name) -> Name {
    let ups = name.iter().take_while(|part| *part == "super").count();
    match module.len().checked_sub(ups) {
        Some(base) if ups > 0 => [&["crate".to_owned()], &module[..base], &name[ups..]].concat(),
        _ => name,
    }
}

#[test]
fn modules_use_only_their_allowed_modules() {
    let rules: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let mut offences = Vec::new();
    for source in SOURCES.iter().filter(|source| source.is_of_product()) {
        let (path, top) = (source.path.display(), &*source.top);
        if ["lib", "main", "cli"].contains(&top) {
            continue;
        }
        let Some(allowed) = rules.get(top) else {
            panic!("{path}: say in MAY_USE what '{top}' may use");
        };
        for used in source.used_modules() {
            if used != top && !allowed.contains(&used) {
                offences.push(format!("{path} uses {used}"));
            }
        }
    }
    assert!(offences.is_empty(), "{offences:#?}");
}

/// Each module may use only modules above it in the list, which excludes cycles.
#[test]
fn the_rules_have_no_cycle() {
    let modules: BTreeSet<_> = MAY_USE.iter().map(|(module, _)| module).collect();
    let mut above = BTreeSet::new();
    for (module, allowed) in MAY_USE {
        for other in allowed.iter().filter(|other| modules.contains(other)) {
            assert!(above.contains(other), "{module} may use {other}, which is below it");
        }
        above.insert(module);
    }
}

/// Names of the crate's root are not used either: it re-exports items of all floors.
#[test]
fn the_store_uses_no_floor_above() {
    let floor = |name: &str| FLOORS.iter().position(|floor| *floor == name);
    let folder = root().join("store");
    let mut seen = BTreeSet::new();
    for source in SOURCES.iter().filter(|source| source.top == "store") {
        let path = source.path.strip_prefix(&folder).unwrap();
        let own = path.iter().next().and_then(|top| top.to_str()).unwrap();
        if own == "lib.rs" {
            continue;
        }
        let at = floor(own).unwrap_or_else(|| panic!("{own} is not in FLOORS"));
        seen.insert(at);
        for used in source.used_modules() {
            let below = floor(used).is_some_and(|used| used <= at);
            assert!(below, "{} uses {used}, which is no floor below", path.display());
        }
    }
    assert_eq!(seen.len(), FLOORS.len(), "the folders of the floors exist");
}

/// What benches try out is out of the product's reach: no file outside the store names it.
#[test]
fn only_benches_tune_the_database() {
    let (mut outside, mut inside) = (0, 0);
    for source in SOURCES.iter() {
        let text = fs::read_to_string(&source.path).unwrap();
        let names_it = text.to_lowercase().contains("tuning");
        match source.top == "store" {
            true => inside += usize::from(names_it),
            false => {
                outside += 1;
                assert!(!names_it, "{} tunes the database", source.path.display());
            }
        }
    }
    assert!(outside > 100 && inside > 0, "{outside} files, and {inside} of the store");
}

#[test]
fn libraries_are_used_only_by_their_modules() {
    for source in SOURCES.iter().filter(|source| source.is_of_product()) {
        for (library, users) in LIBRARY_USERS {
            let used = source.names.iter().any(|name| name[0] == *library);
            assert!(
                !used || users.contains(&&*source.top),
                "{} uses {library}, which only {users:?} may",
                source.path.display()
            );
        }
    }
}

#[test]
fn libraries_are_linked_only_by_their_crates() {
    for name in CRATES.iter().map(String::as_str).chain(["."]) {
        let folder = if name == "." { project().to_owned() } else { root().join(name) };
        for linked in manifest(&folder)["dependencies"].as_table().unwrap().keys() {
            let rule = LINKED_BY.iter().find(|(library, _)| library == linked);
            let may = rule.is_none_or(|(_, crates)| crates.contains(&name));
            assert!(may, "{name} links {linked}, which only {rule:?} may");
        }
    }
}

#[test]
fn crates_use_only_the_crates_that_they_may_know() {
    let borders: BTreeSet<_> = BORDERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(borders, CRATES.iter().map(String::as_str).collect(), "every crate");
    for (name, allowed) in BORDERS {
        let manifest = manifest(&root().join(name));
        let used = manifest["dependencies"].as_table().unwrap().keys();
        // Folders are named as in code.
        let used =
            used.filter_map(|name| name.strip_prefix("orrery-")).map(|it| it.replace('-', "_"));
        let used: BTreeSet<_> = used.collect();
        let allowed = allowed.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(used, allowed, "{name}: its manifest, and what it may use");
    }
}

/// Macros that end the process when standard output or standard error is full or has no reader.
const PANICKING_PRINTS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

fn find_prints(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => find_prints(group.stream(), found),
            TokenTree::Ident(name) => {
                let is_macro = matches!(tokens.get(at + 1), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
                let name = name.to_string();
                if is_macro && PANICKING_PRINTS.contains(&name.as_str()) {
                    found.insert(name);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn nothing_prints_in_a_way_that_may_panic() {
    for source in SOURCES.iter() {
        let (path, found) = (source.path.display(), &source.panicking_prints);
        assert!(found.is_empty(), "{path} uses {found:?}: use output::print, tell or note");
    }
    let mut found = BTreeSet::new();
    let code = "fn f() { select! { a => { eprintln!(\"x\") } } } // println!()";
    find_prints(code.parse().unwrap(), &mut found);
    assert_eq!(found, BTreeSet::from(["eprintln".to_owned()]));
}

#[test]
fn unsafe_code_is_only_in_listed_files() {
    let files = SOURCES.iter().filter(|source| source.has_unsafe_code);
    let files: BTreeSet<_> = files.map(|it| it.path.strip_prefix(root()).unwrap()).collect();
    assert_eq!(files, UNSAFE_FILES.iter().map(Path::new).collect());
}

/// Finds unsafe blocks, functions and impls, and attributes that allow them.
struct UnsafeCode(bool);

impl<'ast> Visit<'ast> for UnsafeCode {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let text = attribute.meta.to_token_stream().to_string();
        let allows = ["allow", "expect"].iter().any(|level| attribute.path().is_ident(level));
        self.0 |= allows && text.contains("unsafe_code");
    }

    fn visit_expr_unsafe(&mut self, _: &'ast syn::ExprUnsafe) {
        self.0 = true;
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.0 |= signature.unsafety.is_some();
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        self.0 |= block.unsafety.is_some();
        visit::visit_item_impl(self, block);
    }
}

#[test]
fn pure_modules_do_no_input_or_output() {
    for source in SOURCES.iter().filter(|source| PURE.contains(&&*source.top)) {
        for name in source.names.iter().map(|name| name.join("::")) {
            for forbidden in INPUT_AND_OUTPUT {
                let uses = name == *forbidden || name.starts_with(&format!("{forbidden}::"));
                assert!(!uses, "{} uses {name}", source.path.display());
            }
        }
    }
}

#[test]
fn pure_folders_do_no_input_or_output() {
    for folder in PURE_FOLDERS.iter().map(|folder| root().join(folder)) {
        let sources: Vec<_> = SOURCES.iter().filter(|it| it.path.starts_with(&folder)).collect();
        assert!(!sources.is_empty(), "{} exists", folder.display());
        for source in sources {
            for name in source.names.iter().map(|name| name.join("::")) {
                for forbidden in INPUT_AND_OUTPUT.iter().chain(LIBRARIES_THAT_DO) {
                    let uses = name == *forbidden || name.starts_with(&format!("{forbidden}::"));
                    assert!(!uses, "{} uses {name}", source.path.display());
                }
            }
        }
    }
}

#[test]
fn every_file_has_an_overview_and_at_most_the_allowed_lines() {
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let is_tests = path.ends_with("tests.rs") || path.ends_with("tests/mod.rs");
                let (lines, path) = (text.lines().count(), path.display());
                assert!(lines <= MAX_LINES, "{path} has {lines} lines: split it");
                assert!(is_tests || text.starts_with("//!"), "{path} begins without a //! line");
            }
        }
    }
}

/// A file that is left when its contents have moved is compiled by nobody, and read by everybody.
#[test]
fn every_file_is_a_module_of_its_crate() {
    let folders = CRATES.iter().map(|name| root().join(name)).chain([root()]);
    let roots =
        folders.flat_map(|folder| ["lib.rs", "main.rs", "build.rs"].map(|it| folder.join(it)));
    let mut reached = BTreeSet::new();
    roots.filter(|file| file.exists()).for_each(|file| reach(file, &mut reached));
    let mut files = Vec::new();
    add_files(&root(), &mut files);
    files.retain(|file| file.extension().is_some_and(|it| it == "rs") && !reached.contains(file));
    assert!(reached.len() > 1000, "the modules are found");
    assert!(files.is_empty(), "no module: {files:#?}");
}

/// Adds a file and those of its modules, also those of tests.
fn reach(file: PathBuf, reached: &mut BTreeSet<PathBuf>) {
    let syntax = syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap();
    let folder = file.parent().unwrap().to_owned();
    let own = match file.file_stem().unwrap().to_str().unwrap() {
        "lib" | "main" | "build" | "mod" => folder.clone(),
        name => folder.join(name),
    };
    reached.insert(file);
    for item in &syntax.items {
        let syn::Item::Mod(syn::ItemMod { ident, content: None, attrs, .. }) = item else {
            continue;
        };
        let named = attrs.iter().find(|it| it.path().is_ident("path")).map(|it| match &it.meta {
            syn::Meta::NameValue(value) => folder.join(quoted_in(&value.value)),
            _ => panic!("a path has a value"),
        });
        let beside = own.join(format!("{ident}.rs"));
        let file = named.unwrap_or(match beside.exists() {
            true => beside,
            false => own.join(ident.to_string()).join("mod.rs"),
        });
        reach(file, reached);
    }
}

/// The text of a literal.
fn quoted_in(expression: &syn::Expr) -> String {
    expression.to_token_stream().to_string().trim_matches('"').to_owned()
}

/// ARCHITECTURE.md and the documents of the parts, by their paths in the project.
fn documents() -> Vec<(PathBuf, String)> {
    let parts = fs::read_dir(project().join("docs/architecture")).unwrap();
    let parts = parts.map(|entry| entry.unwrap().path());
    let paths: Vec<_> = [project().join("ARCHITECTURE.md")].into_iter().chain(parts).collect();
    assert!(paths.len() > 5 && paths.iter().all(|path| path.extension().unwrap() == "md"));
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Returns what stands between backticks, outside of indented blocks of code.
fn quoted(text: &str) -> Vec<String> {
    let outside = text.split("```").step_by(2).collect::<String>();
    let parts: Vec<_> = outside.split('`').collect();
    assert!(parts.len() % 2 == 1, "every backtick has a second one");
    parts.iter().skip(1).step_by(2).map(|part| part.replace('\n', " ")).collect()
}

/// Returns the cells of the rows of tables below the heading, up to the next heading of its level.
fn rows_below<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, below) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let level = heading.split(' ').next().unwrap();
    let section = below.split(&format!("\n{level} ")).next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    rows.map(|row| row.split(" | ").map(str::trim).collect()).collect()
}

/// Adds the paths of all files below a folder.
fn add_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && path.file_name().is_some_and(|it| it != "target" && it != ".git") {
            add_files(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Every word between backticks occurs in what is built, tested or packaged, and every path there is
/// one of a file or folder: from the root, from `src`, or the end of one below `src`.
#[test]
fn documents_name_what_exists() {
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches", "examples", "packaging", "schema", "systemd"] {
        add_files(&project().join(folder), &mut files);
    }
    for name in ["Cargo.toml", "Makefile", "deny.toml", "rust-toolchain.toml"] {
        files.push(project().join(name));
    }
    let mut known = HashSet::new();
    let mut sources = Vec::new();
    for path in &files {
        let below = path.strip_prefix(project()).unwrap().to_str().unwrap();
        known.extend(words(below).map(str::to_owned));
        let text = fs::read_to_string(path).unwrap_or_default();
        known.extend(words(&text).map(str::to_owned));
        if let Some(source) = below.strip_prefix("src/") {
            sources.push(source);
        }
    }
    let exists = |name: &str| {
        let name = name.trim_end_matches('/');
        project().join(name).exists() || {
            let forms = [format!("/{name}"), format!("/{name}.rs"), format!("/{name}/")];
            sources.iter().map(|source| format!("/{source}")).any(|source| {
                source.ends_with(&forms[0])
                    || source.ends_with(&forms[1])
                    || source.contains(&forms[2])
            })
        }
    };
    let mut wrong = Vec::new();
    for (document, text) in documents() {
        for name in quoted(&text) {
            let is_known = words(&name).all(|it| it.parse::<u64>().is_ok() || known.contains(it));
            let is_path = name.contains('/')
                && !name.starts_with('/')
                && words(&name).all(|word| word.chars().any(char::is_lowercase))
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "/_-.".contains(c));
            if !is_known || is_path && !exists(&name) {
                wrong.push(format!("{}: {name}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The table of crates has each member of the workspace, and a crate uses only those above it.
#[test]
fn the_code_map_has_every_crate_in_order() {
    let text = fs::read_to_string(project().join("ARCHITECTURE.md")).unwrap();
    let rows = rows_below(&text, "## Code map");
    let map: Vec<_> = rows.iter().filter_map(|row| quoted(row[0]).pop()).collect();
    let mut folders: BTreeMap<_, _> = members()
        .into_iter()
        .map(|member| (member.rsplit('/').next().unwrap().to_owned(), project().join(&member)))
        .collect();
    folders.insert("orrery".to_owned(), project().to_owned());
    assert_eq!(map.iter().collect::<BTreeSet<_>>(), folders.keys().collect(), "every member");
    for (at, name) in map.iter().enumerate() {
        for used in manifest(&folders[name])["dependencies"].as_table().unwrap().keys() {
            let Some(used) = used.strip_prefix("orrery-") else { continue };
            // Folders are named as in code.
            let used = used.replace('-', "_");
            assert!(map[..at].contains(&used), "{name} uses {used}, which is not above it");
        }
    }
}

/// A row of a recipe names a file, what in it shows the place, and what is to be done there.
#[test]
fn recipes_name_places_that_exist() {
    let text = fs::read_to_string(project().join("docs/architecture/how-to-add.md")).unwrap();
    let recipes = text.lines().filter(|line| line.starts_with("## ")).collect::<Vec<_>>();
    assert!(recipes.len() >= 7, "{recipes:?}");
    for recipe in recipes {
        let rows = rows_below(&text, recipe);
        let places = rows.iter().filter(|row| row.len() == 3 && row[0].starts_with('`'));
        let mut count = 0;
        for row in places {
            let path = project().join(&quoted(row[0])[0]);
            let found = fs::read_to_string(&path);
            let found = found.unwrap_or_else(|e| panic!("{recipe}: {}: {e}", path.display()));
            for place in quoted(row[1]) {
                assert!(found.contains(&place), "{recipe}: {} has no {place}", path.display());
            }
            count += 1;
        }
        assert!(count > 0, "{recipe} names a place");
    }
}

/// Where the project is published is decided in one file; until then the address is one that no
/// server can have.
#[test]
fn the_address_of_publication_is_in_one_file() {
    let mut files = vec![project().join("Cargo.toml"), project().join("Makefile")];
    for folder in ["src", "packaging", "docs", "systemd", "schema", "examples", ".github"] {
        add_files(&project().join(folder), &mut files);
    }
    files.extend(
        fs::read_dir(project())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|it| it.extension().is_some_and(|extension| extension == "md")),
    );
    let has_address = |path: &&PathBuf| {
        fs::read_to_string(path).is_ok_and(|text| text.contains("orrery.invalid"))
    };
    let with_address: Vec<_> = files.iter().filter(has_address).collect();
    assert_eq!(with_address, [&project().join("packaging/publication")]);
}

#[test]
fn paths_are_found_in_every_position_outside_tests() {
    let text = "
        use crate::{api::{x, y as z}, domain::Z};
        use super::super::store::feed;
        #[cfg(test)]
        mod tests { use crate::service::S; }
        #[cfg(test)]
        use crate::backup::B;
        /// See [`crate::export`].
        impl A {
            #[cfg(test)]
            fn only_in_tests() { crate::webhooks::f() }
            fn f() { vec![crate::rpc::g(), super::h()] }
        }
        mod inner { use super::super::super::tables::T; }
    ";
    let mut syntax = syn::parse_file(text).unwrap();
    WithoutTests.visit_file_mut(&mut syntax);
    let module = ["programs", "engine"].map(str::to_owned);
    let source = Source::new(PathBuf::new(), "programs", &module, &syntax);
    let used: Vec<_> = source.used_modules().into_iter().collect();
    assert_eq!(used, ["api", "domain", "programs", "rpc", "store", "tables"]);
    assert!(!source.has_unsafe_code);
}
