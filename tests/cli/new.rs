//! `orrery new`: what is refused, what a project contains, and that a built project has the
//! interface it was generated from.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use orrery::programs::engine::contract_spec;
use orrery::sandbox::network::Sandbox;
use stellar_xdr::{Limits, ScSpecEntry, ScSpecTypeDef, ScSpecTypeResult, WriteXdr};

use crate::interfaces::{edges, event, function, list, module, named, structure};
use crate::wasm::compiler;
use orrery_testkit::binary::{Ran, Service, orrery_in, run, token};
use orrery_testkit::signal::Signal;

/// Test modules: contracts, programs for them, and one whose interface has no types.
const MODULES: [&str; 10] = [
    "caller",
    "counter",
    "counter_program",
    "deposit",
    "evolving_names",
    "heavy",
    "inner",
    "raw",
    "types",
    "types_program",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn built(name: &str) -> PathBuf {
    root().join(format!("tests/programs/built/{name}.wasm"))
}

fn market() -> PathBuf {
    root().join("src/sandbox/network/market/market.wasm")
}

/// Content of all files below a folder, by relative path.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn assert_created(ran: &Ran) {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout.lines().count(), 3, "{}", ran.stdout);
}

#[test]
fn invalid_projects_are_refused_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for name in [
        "",
        "a b",
        "ä",
        "a/b",
        "..",
        "1st",
        "_a",
        "-",
        "program_1",
        "fn",
        "Self",
        "std",
        "soroban-sdk",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain(["a".repeat(65)])
    {
        let ran = run(at, &["new", "--", &name]);
        ran.refuses(2, &[&format!("the name of the project is '{name}")]);
    }
    for arguments in [
        &["new"][..],
        &["new", "a", "--contract", "CA"],
        &[
            "new",
            "a",
            "--wasm",
            "x",
            "--contract",
            "CCETIR6MVMUVW2SMQZV25IKSMOFN5P2TAOSKJ5MDJ4F2XXRHQACEMXVU",
        ],
    ] {
        assert_eq!(run(at, arguments).code, 2, "{arguments:?}");
    }
    assert!(names_in(at).is_empty(), "{:?}", names_in(at));

    fs::create_dir(at.join("full")).unwrap();
    fs::write(at.join("full/notes"), "mine").unwrap();
    fs::write(at.join("file"), "mine").unwrap();
    let module_of = |entries: &[ScSpecEntry]| {
        fs::write(at.join("made.wasm"), module(entries)).unwrap();
    };
    fs::write(at.join("plain.wasm"), wat::parse_str("(module (memory 1))").unwrap()).unwrap();
    fs::write(at.join("cut.wasm"), &fs::read(built("deposit")).unwrap()[..900]).unwrap();
    module_of(&[function("f", &[], &[])]);
    let nothing_new = names_in(at);
    run(at, &["new", "full"]).refuses(1, &["full exists and is not empty", "--dir"]);
    run(at, &["new", "file"]).refuses(1, &["file cannot be a folder"]);
    run(at, &["new", "a", "--dir", "no/such/a"]).refuses(1, &["the parent folder of no/such/a"]);
    run(at, &["new", "a", "--wasm", "nowhere.wasm"]).refuses(1, &["cannot read nowhere.wasm"]);
    run(at, &["new", "a", "--wasm", "full/notes"])
        .refuses(1, &["full/notes: this is not a WebAssembly module"]);
    run(at, &["new", "a", "--wasm", "cut.wasm"]).refuses(1, &["cut.wasm: this is no valid"]);
    run(at, &["new", "a", "--wasm", "plain.wasm"])
        .refuses(1, &["the interface of plain.wasm has no function", "contractspecv0"]);
    // The folder is refused even if the module is valid.
    run(at, &["new", "full", "--wasm", "made.wasm"]).refuses(1, &["full exists and is not empty"]);

    let contract =
        Sandbox::market_contract(&orrery::domain::Network::from_name_or_passphrase("local"));
    let contract = contract.unwrap().to_string();
    let asked = |base: &str| run(at, &["new", "a", "--base", base, "--contract", &contract]);
    asked("http://127.0.0.1:1/rest")
        .refuses(1, &["the RPC server http://127.0.0.1:1/rpc cannot be asked", "--wasm"]);
    asked("http://127.0.0.1:1/").refuses(2, &["does not end in /rest"]);
    assert_eq!(names_in(at), nothing_new);

    let u32 = ScSpecTypeDef::U32;
    let result = ScSpecTypeDef::Result(Box::new(ScSpecTypeResult {
        ok_type: Box::new(u32.clone()),
        error_type: Box::new(ScSpecTypeDef::Error),
    }));
    let f = || function("f", &[], &[]);
    for (entries, reason) in [
        (vec![structure("A", &[("a", u32.clone())])], "has no function"),
        (vec![function("move", &[], &[])], "calls a function 'move'"),
        (vec![function("new", &[], &[])], "calls a function 'new'"),
        (vec![function("f", &[("a", named("a; b"))], &[])], "calls a type 'a; b'"),
        (vec![function("f", &[("a", list(result.clone()))], &[])], "has a Result within"),
        (vec![f(), structure("Vec", &[])], "calls a type 'Vec'"),
        (vec![f(), structure(&"L".repeat(900), &[])], "calls a type 'LLLL"),
        (vec![f(), structure("Error", &[])], "calls a type 'Error'"),
        (vec![f(), structure("A", &[("type", u32.clone())])], "calls a field 'type'"),
        (vec![f(), structure("A", &[("a", named("A"))])], "a type 'A' that can have no value"),
        (
            vec![f(), structure("A", &[("a", named("B"))]), structure("B", &[("b", named("A"))])],
            "a type 'A'",
        ),
    ] {
        module_of(&entries);
        run(at, &["new", "a", "--wasm", "made.wasm"])
            .refuses(1, &["the interface of made.wasm", reason]);
    }
    assert_eq!(names_in(at), nothing_new);
}

/// Asserts that every function, type and member of an interface appears in the source.
fn assert_interface_complete(spec: &[ScSpecEntry], project: &BTreeMap<String, String>) {
    let library = &project["src/lib.rs"];
    let types = project.get("src/interface.rs").map_or("", String::as_str);
    let has = |text: &str, part: String| assert!(text.contains(&part), "{part} is not in\n{text}");
    for entry in spec {
        match entry {
            ScSpecEntry::FunctionV0(one) => {
                has(library, format!("    pub fn {}(", one.name.0));
                one.inputs.iter().for_each(|input| has(library, format!("{}: ", input.name)));
            }
            ScSpecEntry::UdtStructV0(one) => {
                has(types, format!("pub struct {}", one.name));
                let names = one.fields.iter().map(|field| field.name.to_string());
                let names = names.filter(|name| !name.starts_with(|it: char| it.is_ascii_digit()));
                names.for_each(|name| has(types, format!("    pub {name}: ")));
            }
            ScSpecEntry::UdtUnionV0(one) => has(types, format!("pub enum {} {{", one.name)),
            ScSpecEntry::UdtEnumV0(one) => {
                has(types, format!("pub enum {} {{", one.name));
                let cases = one.cases.iter();
                cases.for_each(|it| has(types, format!("    {} = {},", it.name, it.value)));
            }
            ScSpecEntry::UdtErrorEnumV0(one) => {
                has(types, format!("pub enum {} {{", one.name));
                let cases = one.cases.iter();
                cases.for_each(|it| has(types, format!("    {} = {},", it.name, it.value)));
            }
            ScSpecEntry::EventV0(one) => has(types, format!("pub struct {}", one.name)),
        }
    }
}

#[test]
fn a_project_has_the_whole_interface_of_its_contract() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for path in MODULES.map(built).into_iter().chain([market()]) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let wasm = path.to_str().unwrap();
        assert_created(&run(at, &["new", name, "--wasm", wasm]));
        let project = files(&at.join(name));
        assert_interface_complete(&contract_spec(&fs::read(&path).unwrap()).unwrap(), &project);
        let manifest: toml::Table = project["Cargo.toml"].parse().unwrap();
        assert_eq!(manifest["package"]["name"].as_str(), Some(name));
        assert_eq!(manifest["lib"]["name"].as_str(), Some(name));
        // The versions with which the modules of other tests are built.
        let tried = fs::read_to_string(root().join("tests/programs/modules/Cargo.toml")).unwrap();
        let tried: toml::Table = tried.parse().unwrap();
        let tried = &tried["workspace"]["dependencies"];
        assert_eq!(manifest["dependencies"]["soroban-sdk"], tried["soroban-sdk"]);
        assert_eq!(manifest["dependencies"]["retroshade-sdk"]["version"], tried["retroshade-sdk"]);
        for text in project.values() {
            assert!(!text.contains("{{"), "{text}");
        }
        run(at, &["new", name, "--wasm", wasm]).refuses(1, &["exists and is not empty"]);
        // An empty folder is accepted, and the output is deterministic.
        let again = at.join(format!("{name}.again"));
        fs::create_dir(&again).unwrap();
        assert_created(&run(at, &["new", name, "--wasm", wasm, "--dir", again.to_str().unwrap()]));
        assert_eq!(files(&again), project);
    }
    let lists = files(&at.join("types"));
    for line in [
        "    pub by_address: Map<Address, Vec<u64>>,",
        "    pub tuple: (u32, Symbol, Address),",
        "    pub maybe_place: Option<Place>,",
        "    pub bytes_32: BytesN<32>,",
        "pub struct Pair(pub u32, pub i128);",
        "    Box(i128, i128),",
        "    High = 4294967295,",
        "/// A struct within others.",
    ] {
        assert!(lists["src/interface.rs"].lines().any(|it| it == line), "{line}");
    }
    let deposit = files(&at.join("deposit"));
    assert!(deposit["src/interface.rs"].contains("#[contractevent(topics = [\"deposit\"])]"));
    assert!(deposit["src/lib.rs"].contains("rows::DepositCalled {"), "{}", deposit["src/lib.rs"]);
    assert!(deposit["Makefile"].contains("PROJECT ?= deposit\nCONTRACTS ?=\n"));
}

#[test]
fn the_interface_can_be_fetched_from_the_network() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (demo, _) = Service::demo(at, &[]);
    let contract =
        Sandbox::market_contract(&orrery::domain::Network::from_name_or_passphrase("local"));
    let contract = contract.unwrap().to_string();
    let asked = |arguments: &[&str]| -> Ran {
        let mut command = orrery_in(at);
        command.arg("new").args(arguments);
        command
            .env("ORRERY_BASE", format!("http://{}/rest/", demo.address))
            .output()
            .unwrap()
            .into()
    };
    assert_created(&asked(&["trades", "--contract", &contract]));
    assert_created(&run(
        at,
        &["new", "trades", "--wasm", market().to_str().unwrap(), "--dir", "file"],
    ));
    let (from_network, from_file) = (files(&at.join("trades")), files(&at.join("file")));
    for name in ["src/interface.rs", "src/rows.rs", "src/test.rs", "Cargo.toml"] {
        assert_eq!(from_network[name], from_file[name], "{name}");
    }
    let line = format!("CONTRACTS ?= {contract}\n");
    assert!(from_network["Makefile"].contains(&line), "{}", from_network["Makefile"]);
    assert!(from_network["src/lib.rs"].contains(&contract));

    let elsewhere = "CCJZ5DGASBWQXR5MPFCJXMBI333XE5U3FSJTNQU7RIKE3P5GN2K2WYD5";
    asked(&["a", "--contract", elsewhere])
        .refuses(1, &["there is no contract", elsewhere, "--wasm"]);
    let events = demo.get("/rest/events/by-ledger?limit=200");
    let ids: std::collections::BTreeSet<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["contract_id"].as_str())
        .filter(|id| *id != contract)
        .collect();
    let of_assets = ids.iter().map(|id| asked(&["a", "--contract", id]));
    let of_assets = of_assets.filter(|ran| ran.stderr.contains("a contract of an asset")).count();
    assert!(of_assets > 0, "{ids:?}");
    assert_eq!(demo.end_with(Signal::INT), Some(0));
}

fn sorted(spec: &[ScSpecEntry]) -> Vec<Vec<u8>> {
    let mut entries: Vec<_> =
        spec.iter().map(|entry| entry.to_xdr(Limits::none()).unwrap()).collect();
    entries.sort();
    entries
}

/// Parameter names that Rust does not allow are replaced in the source; callers of a function do
/// not depend on them.
#[test]
fn parameters_that_rust_does_not_allow_are_renamed() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let u32 = ScSpecTypeDef::U32;
    let names = ["env", "type", "self", "2x", "", "ä", "r#in", "_", "a", "a"];
    let inputs = names.map(|name| (name, u32.clone()));
    fs::write(at.join("made.wasm"), module(&[function("f", &inputs, &[])])).unwrap();
    assert_created(&run(at, &["new", "a", "--wasm", "made.wasm"]));
    let library = &files(&at.join("a"))["src/lib.rs"];
    let signature = "    pub fn f(
        env: Env,
        env_: u32,
        type_: u32,
        self_: u32,
        argument_4: u32,
        argument_5: u32,
        argument_6: u32,
        argument_7: u32,
        argument_8: u32,
        a: u32,
        a_: u32,
    ) {
";
    assert!(library.contains(signature), "{library}");
}

/// Libraries that a contract is made of bring types of the same name, events have several forms, and
/// types of the SDK's library derive less than others.
#[test]
fn interfaces_of_several_libraries_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let u32 = ScSpecTypeDef::U32;
    let entries = [
        function("f", &[("key", named("DataKey")), ("list", list(named("Holder")))], &[]),
        function("f", &[], &[]),
        event("Burn", &["burn"], &["a"]),
        event("DataKey", &["data_key"], &[]),
        structure("DataKey", &[("a", u32.clone())]),
        structure("DataKey", &[("b", u32.clone())]),
        structure("DataKey", &[("a", u32.clone())]),
        structure("DataKey2", &[("c", u32.clone())]),
        structure("DataKey", &[("d", u32)]),
        event("Burn", &["burn"], &["a", "b"]),
        event("Burn", &["burn"], &["a", "b", "c"]),
        structure("Context3", &[("context", named("Context"))]),
        structure("Holder", &[("inner", list(named("Context3")))]),
    ];
    fs::write(at.join("made.wasm"), module(&entries)).unwrap();
    assert_created(&run(at, &["new", "a", "--wasm", "made.wasm"]));
    let project = files(&at.join("a"));
    let types = &project["src/interface.rs"];
    let comment = |name: &str| {
        format!("// The module calls this {name}, too, and the first of that name has kept it.\n")
    };
    for (original, name, field) in [
        (None, "DataKey", "a"),
        (Some("DataKey"), "DataKey4", "b"),
        (None, "DataKey2", "c"),
        (Some("DataKey"), "DataKey5", "d"),
    ] {
        let comment = original.map(comment).unwrap_or_default();
        let text = format!(
            "\n{comment}#[contracttype]\n#[derive(Clone, Debug, PartialEq, Eq)]\npub struct {name} {{\n    pub {field}: u32,\n}}\n"
        );
        assert!(types.contains(&text), "{text}{types}");
    }
    assert_eq!(types.matches("pub struct ").count(), 10, "{types}");
    for (original, name, topic) in [
        (None, "Burn", "burn"),
        (Some("Burn"), "Burn2", "burn"),
        (Some("Burn"), "Burn3", "burn"),
        (Some("DataKey"), "DataKey3", "data_key"),
    ] {
        let comment = original.map(comment).unwrap_or_default();
        let text = format!("\n{comment}#[contractevent(topics = [\"{topic}\"])]\n");
        let (_, after) = types.split_once(&format!("pub struct {name} {{")).expect(name);
        assert!(!after.is_empty());
        let before = types.split(&format!("pub struct {name} {{")).next().unwrap();
        assert!(
            before.ends_with(&format!("{text}#[derive(Clone, Debug, PartialEq, Eq)]\n")),
            "{name}: {types}"
        );
    }
    for name in ["Context3", "Holder"] {
        let text = format!("#[contracttype]\n#[derive(Clone)]\npub struct {name} {{");
        assert!(types.contains(&text), "{types}");
    }
    let rows = &project["src/rows.rs"];
    assert!(rows.contains("#[derive(Clone, Retroshade)]"), "{rows}");
}

/// Before anything is compiled, `make build` says what the compiler lacks.
#[test]
fn a_compiler_without_the_library_for_webassembly_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    assert_created(&run(at, &["new", "my-poll"]));
    let tools = at.join("tools");
    let tool = |name: &str, text: String| {
        fs::create_dir_all(&tools).unwrap();
        fs::write(tools.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    // A compiler that names the directory of the library, and a cargo that notes what it is asked.
    tool("rustc", format!("echo \"$@\" >> {0}/asked; echo {0}/library", at.display()));
    let built = "target/wasm32v1-none/release";
    tool(
        "cargo",
        format!(
            "echo \"$@\" >> {}/ran; mkdir -p {built}; touch {built}/my_poll.wasm",
            at.display()
        ),
    );
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let make = |arguments: &[&str]| -> Ran {
        let mut make = Command::new("make");
        for of_another_build in ["CARGO", "RUSTC", "CARGO_TARGET_DIR", "MAKEFLAGS"] {
            make.env_remove(of_another_build);
        }
        make.args(arguments).current_dir(at.join("my-poll")).env("PATH", &path);
        make.output().unwrap().into()
    };
    for what in ["build", "contract"] {
        let refused = make(&[what]);
        assert_eq!(refused.code, 2, "{what}: {}", refused.stderr);
        let mend = "rustup target add wasm32v1-none\n";
        assert!(refused.stderr.contains(mend), "{what}: {}", refused.stderr);
        assert!(!at.join("ran").exists(), "{what}: cargo was run");
    }
    let asked = fs::read_to_string(at.join("asked")).unwrap();
    assert_eq!(asked.lines().next().unwrap(), "--print target-libdir --target wasm32v1-none");
    // Another cargo may build the library.
    let own = tools.join("cargo");
    assert_eq!(make(&["build", &format!("CARGO={}", own.display())]).code, 0);
    fs::create_dir(at.join("library")).unwrap();
    let built = make(&["build"]);
    assert_eq!(built.code, 0, "{}", built.stderr);
    let ran = fs::read_to_string(at.join("ran")).unwrap();
    assert_eq!(ran.lines().count(), 2, "{ran}");
    assert!(at.join("my-poll/program.wasm").exists());
}

#[test]
fn a_built_project_has_the_interface_it_was_generated_from() {
    let Some(compiler) = compiler() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let succeeded = |ran: Ran| assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    fs::write(at.join("edges.wasm"), module(&edges())).unwrap();
    let mut modules: Vec<_> =
        ["counter", "deposit", "heavy", "types"].map(|name| (name, built(name))).into();
    modules.extend([("market", market()), ("edges", at.join("edges.wasm"))]);
    for (name, path) in &modules {
        let project = at.join(name);
        assert_created(&run(at, &["new", name, "--wasm", path.to_str().unwrap()]));
        succeeded(compiler.make(&project, &["contract"]));
        let asked = contract_spec(&fs::read(path).unwrap()).unwrap();
        let compiled = contract_spec(&fs::read(project.join("contract.wasm")).unwrap()).unwrap();
        assert_eq!(sorted(&compiled), sorted(&asked), "{name}: {compiled:#?}");
        succeeded(compiler.make(&project, &["build"]));
        let program = contract_spec(&fs::read(project.join("program.wasm")).unwrap()).unwrap();
        let more: Vec<_> = program.iter().filter(|entry| !asked.contains(entry)).collect();
        let [ScSpecEntry::UdtStructV0(row)] = more.as_slice() else { panic!("{name}: {more:#?}") };
        let rows = fs::read_to_string(project.join("src/rows.rs")).unwrap();
        assert!(rows.contains(&format!("pub struct {} {{", row.name)), "{rows}");
    }
    // The generated tests compile, and are ignored until the functions are implemented.
    for name in ["counter", "market"] {
        let tested = compiler.make(&at.join(name), &["test"]);
        assert!(tested.stdout.contains("0 passed; 0 failed; 1 ignored"), "{}", tested.stderr);
    }
    // The SDK's test environment does not support some types.
    for (name, types) in [("edges", "Holder"), ("types", "Anythings, Compounds")] {
        let tested = compiler.make(&at.join(name), &["test"]);
        let error = format!("does not support the types {types} in a native test");
        assert!(tested.code == 2 && tested.stderr.contains(&error), "{}", tested.stderr);
        assert!(!at.join(name).join("src/test.rs").exists());
    }

    assert_created(&run(at, &["new", "my-poll"]));
    let poll = at.join("my-poll");
    let tested = compiler.make(&poll, &["test"]);
    assert!(tested.stdout.contains("1 passed; 0 failed"), "{}{}", tested.stdout, tested.stderr);
    // A test that checks a row detects a wrong one.
    let library = fs::read_to_string(poll.join("src/lib.rs")).unwrap();
    let wrong = library.replace("            votes,\n", "            votes: votes - 1,\n");
    assert_ne!(wrong, library);
    fs::write(poll.join("src/lib.rs"), wrong).unwrap();
    let tested = compiler.make(&poll, &["test"]);
    assert!(tested.stdout.contains("0 passed; 1 failed"), "{}{}", tested.stdout, tested.stderr);
    fs::write(poll.join("src/lib.rs"), library).unwrap();
    succeeded(compiler.make(&poll, &["contract", "build"]));
    assert_ne!(
        fs::read(poll.join("contract.wasm")).unwrap(),
        fs::read(poll.join("program.wasm")).unwrap()
    );

    let refused = compiler.make(&poll, &["deploy"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("CONTRACTS=C"), "{}", refused.stderr);

    deploys(at, &modules.iter().map(|(name, _)| *name).chain(["my-poll"]).collect::<Vec<_>>());
}

/// Deploys the built programs to a service.
fn deploys(at: &Path, projects: &[&str]) {
    let (demo, _) = Service::demo(at, &[]);
    let contract =
        Sandbox::market_contract(&orrery::domain::Network::from_name_or_passphrase("local"));
    let contract = contract.unwrap().to_string();
    let token = token(&at.join("d"), "demo");
    let asked = |arguments: &[&str]| -> Ran {
        let mut command = orrery_in(at);
        command.args(arguments).args(["--jwt", &token]);
        command.args(["--base", &format!("http://{}/rest", demo.address)]);
        command.output().unwrap().into()
    };
    for project in projects {
        let code = format!("{project}/program.wasm");
        // The demo already has a project named `market`.
        let name = format!("{project}-rows");
        let deploy = ["deploy", "--project", &name, "--code-path", &code, "--contract", &contract];
        // The example is a contract itself, and has none of the market's functions.
        let unfit: &[&str] = if *project == "my-poll" { &["--allow-unfit"] } else { &[] };
        let deployed = asked(&[&deploy[..], unfit].concat()).json();
        let tables = deployed["tables"].to_string();
        assert!(
            tables.contains(if *project == "my-poll" { "vote" } else { "called" }),
            "{deployed}"
        );
    }
    let plain = format!("{}/contract.wasm", projects[0]);
    let deploy = ["deploy", "--project", "plain", "--code-path", &plain, "--contract", &contract];
    asked(&deploy).refuses(1, &["the module emits nothing"]);
    assert_eq!(demo.end_with(Signal::INT), Some(0));
}
