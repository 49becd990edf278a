//! Runs the commands of the README and of `docs`, document by document, as a user would: next to a
//! running demo network, in the directory that contains its data.
//!
//! Blocks marked `sh` are run in one shell, in order. A word after `sh` says why a block is not
//! run, or what it needs; commands of `orrery` in a block that is not run are still compared with
//! the program's help. Blocks marked `python run` are run between them, by the Python that
//! `ORRERY_TEST_PYTHON` names; it needs pandas, polars, pyarrow and duckdb.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::wasm::{Compiler, compiler};
use orrery_testkit::binary::{Ran, Service, orrery_in, run, token};
use orrery_testkit::client::HTTP;
use orrery_testkit::data::ledgers;
use orrery_testkit::postgres::{self, Server};
use orrery_testkit::signal::Signal;
use orrery_testkit::wait::wait_until;

/// The block starts the demo, which is running already.
const STARTED: &str = "started";
/// The block copies an example of the package, which is there already.
const INSTALLED: &str = "installed";
/// The block needs a compiler for WebAssembly.
const COMPILER: &str = "compiler";
/// The block needs the recorded ledgers, as the directory `lake`.
const RECORDED: &str = "recorded";
/// The block needs a Python with libraries for tables, as `python3`.
const PYTHON: &str = "python";
/// The block is a program for such a Python.
const PROGRAM: &str = "program for python";
/// The block needs a PostgreSQL, which the test starts. One of them starts the demo; those above it are run before.
const POSTGRES: &str = "postgres";
/// How a document runs statements as a superuser.
const AS_SUPERUSER: &str = "sudo -u postgres psql";
/// Blocks that need what no test has: the internet, hours for a build, systemd as the first
/// process, root, Stellar's command line, another toolchain, packages of npm, DuckDB's command line.
const NOT_RUN: [&str; 8] =
    ["public-network", "build", "systemd", "root", "stellar-cli", "rustup", "npm", "duckdb"];

/// Addresses in documents. The first is replaced by that of the demo, the others by free ones.
const ADDRESSES: [&str; 3] = ["127.0.0.1:8484", "127.0.0.1:9100", "127.0.0.1:9000"];
/// The address of a PostgreSQL server in documents.
const POSTGRES_ADDRESS: &str = "127.0.0.1:5432";

struct Block {
    /// The word after `sh`.
    word: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all `sh` blocks of a document. Blocks without a mark are output; asserts that they
/// contain no commands.
fn blocks(document: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(mark)) => open = Some((mark.trim().to_owned(), String::new())),
            (Some(_), Some("")) => {
                let (mark, text) = open.take().unwrap();
                if mark.is_empty() || mark == "console" {
                    let command = text.lines().find(|line| {
                        ["orrery ", "curl ", "$ "].iter().any(|start| line.starts_with(start))
                    });
                    assert_eq!(command, None, "{document}: a command that is not marked as sh");
                }
                if mark == "python run" {
                    blocks.push(Block { word: PROGRAM.to_owned(), text });
                } else if let Some(word) =
                    mark.strip_prefix("sh").filter(|it| it.starts_with([' ']) || it.is_empty())
                {
                    blocks.push(Block { word: word.trim().to_owned(), text });
                }
            }
            (Some((_, text)), _) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{document}: a block is not closed");
    blocks
}

/// What is run of a document.
struct Script {
    /// Before the demo starts.
    before: String,
    /// Beside it.
    beside: String,
    /// Arguments with which the document starts the demo, beside those of every document.
    demo: Vec<String>,
    /// The server that it needs.
    postgres: Option<Server>,
    /// Whether nothing was left out.
    is_whole: bool,
}

/// What the machine has.
struct Tools {
    compiler: Option<Compiler>,
    python: Option<OsString>,
}

impl Script {
    fn of(document: &str, blocks: Vec<Block>, tools: &Tools, at: &Path) -> Self {
        let needs_postgres = blocks.iter().any(|block| block.word == POSTGRES);
        let has_postgres = needs_postgres && !postgres::is_missing();
        let mut script = Self {
            before: String::new(),
            beside: String::new(),
            demo: Vec::new(),
            postgres: has_postgres.then(|| Server::start(&[])),
            is_whole: true,
        };
        let mut is_started = false;
        for Block { word, text } in blocks {
            match word.as_str() {
                "" => script.beside.push_str(&text),
                COMPILER if tools.compiler.is_some() => script.beside.push_str(&text),
                PYTHON if tools.python.is_some() => script.beside.push_str(&text),
                PROGRAM if tools.python.is_some() => {
                    script.beside.push_str(&format!("python3 - <<'PROGRAM'\n{text}PROGRAM\n"));
                }
                PYTHON | PROGRAM => {
                    println!("{document}: skipped a block: ORRERY_TEST_PYTHON names no Python");
                    script.skip(document, &text);
                }
                COMPILER => script.skip(document, &text),
                POSTGRES if !has_postgres => script.skip(document, &text),
                POSTGRES => match text.strip_prefix("orrery demo --data-dir my-network") {
                    Some(more) => {
                        is_started = true;
                        script.demo.extend(more.split_whitespace().map(str::to_owned));
                    }
                    None if is_started => script.beside.push_str(&text),
                    None => script.before.push_str(&text),
                },
                INSTALLED => {
                    assert_eq!(text, "cp /usr/share/doc/orrery/examples/trades.wasm .\n");
                }
                STARTED => assert!(
                    text.starts_with("orrery demo ") && text.contains("--data-dir my-network"),
                    "{text}"
                ),
                RECORDED => match ledgers() {
                    Some(ledgers) => {
                        std::os::unix::fs::symlink(ledgers.join("pubnet"), at.join("lake"))
                            .unwrap();
                        script.beside.push_str(&text);
                    }
                    None => script.is_whole = false,
                },
                word if NOT_RUN.contains(&word) => check_spelling(document, &text),
                other => panic!("{document}: nothing is known of blocks marked 'sh {other}'"),
            }
        }
        script
    }

    /// Leaves a block out.
    fn skip(&mut self, document: &str, text: &str) {
        self.is_whole = false;
        check_spelling(document, text);
    }

    /// Runs lines in one shell. `base` is where the demo answers; empty before it does.
    fn run(&self, document: &str, lines: &str, tools: &Tools, at: &Path, base: &str) -> Ran {
        let programs = Path::new(env!("CARGO_BIN_EXE_orrery")).parent().unwrap();
        let mut path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        if tools.python.is_some() {
            path = format!("{}:{path}", at.join("python").display());
        }
        let lines = format!("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nset -eux\n{lines}");
        let mut shell = Command::new("bash");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ORRERY_") {
                shell.env_remove(name);
            }
        }
        shell.args(["-c", &self.with_addresses(&lines)]).current_dir(at);
        shell.stdin(Stdio::null()).env("PATH", path);
        if !base.is_empty() {
            shell.env("ORRERY_BASE", base);
        }
        if let Some(compiler) = &tools.compiler {
            compiler.apply(&mut shell);
        }
        if let Some(server) = &self.postgres {
            shell.env("PGHOST", &server.directory).env("PGPORT", server.port.to_string());
            shell.env("PGUSER", "root").env("PGDATABASE", "postgres");
        }
        let ran: Ran = shell.output().unwrap().into();
        assert_eq!(ran.code, 0, "{document}\n{}\n{}", ran.stdout, ran.stderr);
        ran
    }

    /// Puts the server that was started into the place of the one in the document.
    fn with_addresses(&self, lines: &str) -> String {
        let Some(server) = &self.postgres else { return lines.to_owned() };
        let own = format!("127.0.0.1:{}", server.port);
        lines.replace(POSTGRES_ADDRESS, &own).replace(AS_SUPERUSER, "psql")
    }
}

/// Runs a document and returns its output; `None` if there was nothing to run or a part was left
/// out.
fn try_out(document: &str) -> Option<Ran> {
    try_out_when(document, |_, _| ())
}

/// As [`try_out`], once something is so of the PostgreSQL server, if the document needs one.
fn try_out_when(document: &str, wait: impl FnOnce(&Server, &Path)) -> Option<Ran> {
    let blocks = blocks(document);
    let compiler = match blocks.iter().any(|block| block.word == COMPILER) {
        true => compiler(),
        false => None,
    };
    let tools = Tools { compiler, python: std::env::var_os("ORRERY_TEST_PYTHON") };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let script = Script::of(document, blocks, &tools, at);
    if script.beside.is_empty() {
        return None;
    }
    if let Some(python) = &tools.python {
        add_python(Path::new(python), at);
    }
    script.run(document, &script.before, &tools, at, "");
    let mut arguments = vec!["--close-time", "200"];
    arguments.extend(script.demo.iter().map(String::as_str));
    let (demo, _) = Service::demo(at, &arguments);
    std::os::unix::fs::symlink("d", at.join("my-network")).unwrap();
    let module = root().join("src/sandbox/network/market/market_program.wasm");
    std::fs::copy(module, at.join("trades.wasm")).unwrap();
    wait_for_demo_data(&demo, at);
    if let Some(server) = &script.postgres {
        wait(server, at);
    }

    let free =
        || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut lines = script.beside.clone();
    for (number, address) in ADDRESSES.iter().enumerate() {
        let own = if number == 0 { demo.address.clone() } else { free() };
        lines = lines.replace(address, &own);
    }
    let base = format!("http://{}/rest", demo.address);
    let ran = script.run(document, &lines, &tools, at, &base);
    assert_eq!(demo.end_with(Signal::INT), Some(0));
    script.is_whole.then_some(ran)
}

/// Makes this Python what is found as `python3` in the directory `python`.
fn add_python(python: &Path, at: &Path) {
    let own = at.join("python");
    std::fs::create_dir(&own).unwrap();
    let launcher = own.join("python3");
    // A link would hide where the libraries are.
    std::fs::write(&launcher, format!("#!/bin/sh\nexec {} \"$@\"\n", python.display())).unwrap();
    std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits until the demo has data of all kinds, as it does after some seconds: a trade, accounts,
/// and a few ledgers.
fn wait_for_demo_data(demo: &Service, at: &Path) {
    let token = token(&at.join("d"), "demo");
    let base = format!("{}/rest", demo.base);
    wait_until("there is a trade", || {
        let question = json!({ "query": "select count(*) as trades from market_trade" });
        let request = HTTP.post(format!("{base}/retroshade/query")).bearer_auth(&token);
        let answer: serde_json::Value = request.json(&question).send().ok()?.json().ok()?;
        answer[0]["trades"].as_u64().filter(|trades| *trades > 0)
    });
    wait_until("there are accounts", || {
        let wallet =
            "passkey-indexer/api/wallet/CDOZWAWA7OOOZ6MJJHNRCS4YHB6HQF3JOVTS6AUCVUUNQQ66HNNT52P4";
        let account = "smart-account-indexer/api/contract/CCETIR6MVMUVW2SMQZV25IKSMOFN5P2TAOSKJ5MDJ4F2XXRHQACEMXVU";
        let is_there = |path: &str| {
            HTTP.get(format!("{base}/{path}")).send().is_ok_and(|it| it.status() == 200)
        };
        is_there(wallet) && is_there(account)
    });
    wait_until("there are ledgers", || {
        demo.health()["service_latest_ledger"].as_u64().filter(|latest| *latest > 20)
    });
}

/// Asserts that the program has every command and every flag in the text.
fn check_spelling(document: &str, text: &str) {
    let joined = text.replace("\\\n", " ");
    for line in joined.lines() {
        let line = line.split(" #").next().unwrap_or_default();
        let mut from = 0;
        while let Some(start) = line[from..].find("orrery ").map(|start| from + start) {
            from = start + "orrery ".len();
            if start > 0 && !line[..start].ends_with([' ', '(', '/']) {
                continue;
            }
            let command = line[from..].split(['|', ';', '&', ')', '>']).next().unwrap_or_default();
            let words: Vec<_> = command.split_whitespace().collect();
            // `orrery` is also the name of a user account.
            let is_verb = |verb: &&&str| !verb.starts_with('-') && **verb != "orrery";
            let Some(verb) = words.first().filter(is_verb) else { continue };
            let mut verbs = vec![*verb];
            let help = |verbs: &[&str]| -> Ran {
                orrery_in(Path::new("/")).args(verbs).arg("--help").output().unwrap().into()
            };
            let mut ran = help(&verbs);
            if ran.stdout.contains("\nCommands:") {
                verbs.extend(words.get(1));
                ran = help(&verbs);
            }
            assert_eq!(ran.code, 0, "{document}: {line}: {}", ran.stderr);
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap();
                assert!(ran.stdout.contains(flag), "{document}: {line}: there is no {flag}");
            }
        }
    }
}

macro_rules! documents {
    ($($name:ident: $path:literal,)*) => {
        const TRIED: &[&str] = &[$($path),*];
        $(
            #[test]
            fn $name() {
                try_out($path);
            }
        )*
    };
}

documents! {
    readme: "README.md",
    accounts: "docs/accounts.md",
    analysts: "docs/analysts.md",
    api: "docs/api.md",
    backup: "docs/backup.md",
    coming_from: "docs/coming-from.md",
    configuration: "docs/configuration.md",
    doctor: "docs/doctor.md",
    events: "docs/events.md",
    export: "docs/export.md",
    frontend: "docs/frontend.md",
    install: "docs/install.md",
    mcp: "docs/mcp.md",
    metrics: "docs/metrics.md",
    operate: "docs/operate.md",
    programs: "docs/programs.md",
    promises: "docs/promises.md",
    rpc: "docs/rpc.md",
    scale: "docs/scale.md",
    site: "docs/site.md",
    sources: "docs/sources.md",
    state: "docs/state.md",
    trust: "docs/trust.md",
    webhooks: "docs/webhooks.md",
}

/// Has a test of its own, which also checks the output.
const TUTORIAL: &str = "docs/tutorial.md";

#[test]
fn the_tutorial_works() {
    let Some(ran) = try_out(TUTORIAL) else { return };
    assert!(ran.stdout.contains("1 passed; 0 failed"), "{}", ran.stdout);
    // The result of the trial, and that of the query.
    let lines: Vec<serde_json::Value> =
        ran.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let tried = lines.iter().find(|line| line["transactions"].is_array()).unwrap();
    let exact =
        |run: &&serde_json::Value| run["fidelity"] == "exact" && run["rows"][0]["table"] == "sale";
    let runs = tried["transactions"].as_array().unwrap();
    assert!(runs.iter().any(|run| exact(&run)), "{tried:#}");
    assert!(runs.iter().all(|run| run["status"] == "success"), "{tried:#}");
    let rows = lines.iter().find(|line| line[0]["sales"].is_u64()).unwrap();
    assert!(rows[0]["taker"].as_str().is_some_and(|it| it.starts_with('G')), "{rows:#}");
    assert!(ran.stdout.contains("export interface SalesSale {"), "{}", ran.stdout);
}

/// Has a test of its own, too.
const WATCHING: &str = "docs/watching.md";

#[test]
fn the_pools_of_the_demo_are_watched_as_documented() {
    let Some(ran) = try_out(WATCHING) else { return };
    let lines: Vec<serde_json::Value> =
        ran.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let row = |column: &str| lines.iter().find(|it| !it[0][column].is_null());
    let members = row("since_ledger").unwrap_or_else(|| panic!("no members: {}", ran.stdout));
    let swaps = row("swaps").unwrap_or_else(|| panic!("no swaps: {}", ran.stdout));
    let contracts = |rows: &serde_json::Value| -> BTreeSet<String> {
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row["contract_id"].as_str().unwrap().to_owned()).collect()
    };
    assert!(contracts(swaps).is_subset(&contracts(members)), "{swaps}, {members}");
    let events: Vec<_> = lines.iter().filter(|it| it["decoded"]["name"].is_string()).collect();
    assert_eq!(events.len(), 3, "{}", ran.stdout);

    let tried: Vec<_> = lines.iter().filter(|it| it["matched"].is_u64()).collect();
    let [large, admins, told, upgrades, failed] = tried[..] else { panic!("{tried:#?}") };
    for found in [large, admins, told] {
        assert!(found["matched"].as_u64() > Some(0), "{found}");
    }
    assert_eq!(large["first"][0]["event"]["name"], "swap", "{large}");
    let trigger = &admins["first"][0]["trigger"];
    let kept = (&trigger["key"], &trigger["durability"], &trigger["change"]);
    assert_eq!(kept, (&json!(["Admin"]), &json!("instance"), &json!("created")), "{admins}");
    let message = told["first"][0].as_str().unwrap_or_default();
    let parts = [" has the admin G", ", before null: http://127.0.0.1:"];
    assert!(message.starts_with('C') && parts.iter().all(|it| message.contains(it)), "{told}");
    for found in [upgrades, failed] {
        assert!(found["unjudged"] == 0, "{found}");
    }
}

/// Has a test of its own, too.
const IN_POSTGRES: &str = "docs/postgres.md";

#[test]
fn the_rows_of_the_demo_are_in_postgresql_as_documented() {
    let rows = |server: &Server, table: &str| {
        let counted = server.psql("chain", &format!("select count(*) from {table}"));
        String::from_utf8(counted.stdout).unwrap().trim().parse::<u64>().unwrap_or(0)
    };
    let ran = try_out_when(IN_POSTGRES, |server, at| {
        for table in ["market.trade", "demo.transfer", "pools.swap"] {
            wait_until("the rows are there", || rows(server, table) > 2);
        }
        // While more becomes known of contracts, rows are arranged anew.
        wait_until("nothing is filled in again", || {
            let checked = run(at, &["sink", "check", "main", "--data-dir", "my-network"]);
            if checked.code == 0 { Ok(()) } else { Err(checked) }
        });
    });
    let Some(ran) = ran else { return };
    assert!(ran.stdout.contains("as it should: somebody has removed rows"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("choose-one"), "{}", ran.stdout);
}

/// Documents without commands to run: the list of documents, and those for people who change the code.
const OTHERS: [&str; 5] =
    ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/README.md"];

#[test]
fn every_document_is_tested_and_its_links_exist() {
    let names = std::fs::read_dir(root().join("docs")).unwrap().map(|it| it.unwrap().path());
    let documents: BTreeSet<PathBuf> =
        names.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    let tried = TRIED.iter().chain([&TUTORIAL, &WATCHING, &IN_POSTGRES]);
    let tried: BTreeSet<_> = tried.map(|path| root().join(path)).collect();
    let index = root().join("docs/README.md");
    let missing: Vec<_> = documents.difference(&tried).filter(|it| **it != index).collect();
    assert!(missing.is_empty(), "no test runs {missing:?}");
    let parts = std::fs::read_dir(root().join("docs/architecture")).unwrap();
    let parts = parts.map(|it| it.unwrap().path());
    let others = OTHERS.iter().map(|path| root().join(path)).chain(parts);
    for document in tried.iter().cloned().chain(others) {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with('#') || link.starts_with("http") {
                continue;
            }
            let target = document.parent().unwrap().join(link.split('#').next().unwrap());
            assert!(target.exists(), "{}: {link} leads nowhere", document.display());
        }
    }
}
