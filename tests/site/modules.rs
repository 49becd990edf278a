//! Modules of the site that compute: Node imports them; no browser.

use std::path::Path;
use std::process::Command;

use orrery::domain::{Network, asset_contract_id, parse_asset};
use serde_json::{Value, json};
use stellar_xdr::{
    Int128Parts, Limits, MuxedAccount, MuxedAccountMed25519, ScAddress, ScSymbol, ScVal,
    UInt128Parts, WriteXdr,
};

const CONTRACT: &str = "CDYCP4CTXHKI2L3SHW33BXRFCHMVPD5J2SQIAMO3QYLX2SG3NQ5ANS3T";
const ACCOUNT: &str = "GAVJCNS3N4CAFWHEATMIHULVAYEOQBK53DESOGNL5GCZKINA6SGQRXVP";

/// Runs an expression, in which `given` is a list of texts, with the names that these modules export,
/// and returns its value; `None` when there is no Node.
fn value_of(modules: &[&str], expression: &str, given: &[String]) -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("package.json"), r#"{"type":"module"}"#).unwrap();
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/site");
    let mut script = String::from("const given = process.argv.slice(2);\n");
    for name in modules {
        std::fs::create_dir_all(at.join(name).parent().unwrap()).unwrap();
        std::fs::copy(site.join(name), at.join(name)).unwrap();
        script += &format!("Object.assign(globalThis, await import('./{name}'));\n");
    }
    std::fs::write(
        at.join("run.js"),
        format!("{script}console.log(JSON.stringify({expression}));"),
    )
    .unwrap();
    let ran = match Command::new("node").arg("run.js").args(given).current_dir(at).output() {
        Ok(ran) => ran,
        Err(error) => {
            println!("skipped: Node cannot be run: {error}");
            return None;
        }
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(serde_json::from_slice(&ran.stdout).unwrap())
}

/// Names that pages write into statements mean the same as in quotes, whatever words SQL has.
#[test]
fn names_in_statements_are_quoted_where_they_have_to_be() {
    let connection = duckdb::Connection::open_in_memory().unwrap();
    let mut statement = connection.prepare("select keyword_name from duckdb_keywords()").unwrap();
    let words = statement.query_map([], |row| row.get(0)).unwrap();
    let mut names: Vec<String> = words.map(Result::unwrap).collect();
    assert!(names.len() > 300, "{names:?}");
    names.extend(["a-b", "1a", "a b", "a\"b", "A_1"].map(str::to_owned));
    let Some(written) = value_of(&["sql/names.js"], "given.map((it) => quoted(it))", &names) else {
        return;
    };
    for (name, written) in names.iter().zip(written.as_array().unwrap()) {
        let (all, written) = (name.replace('"', "\"\""), written.as_str().unwrap());
        let table = format!("create or replace temp table \"{all}\" as select 1 as \"{all}\"");
        connection.execute_batch(&table).unwrap();
        let query = format!("select {written} from {written}");
        assert!(connection.prepare(&query).is_ok_and(|mut it| it.query([]).is_ok()), "{query}");
        // As the command line writes it.
        assert_eq!(written, orrery::tables::written(name));
    }
}

#[test]
fn topics_are_written_as_the_service_takes_them() {
    let address = |text: &str| ScVal::Address(text.parse::<ScAddress>().unwrap());
    let topics = [
        (ScVal::Symbol(ScSymbol("transfer".try_into().unwrap())), "transfer"),
        (address(CONTRACT), CONTRACT),
        (address(ACCOUNT), ACCOUNT),
        (ScVal::U64(u64::MAX), "u64:18446744073709551615"),
        (ScVal::I64(-5), "i64:-5"),
        (ScVal::U32(7), "u32:7"),
        (ScVal::Bool(true), "bool:true"),
        (ScVal::I128(Int128Parts { hi: -1, lo: u64::MAX - 2 }), "i128:-3"),
        (ScVal::U128(UInt128Parts { hi: 1 << 36, lo: 0 }), "u128:1267650600228229401496703205376"),
    ];
    let encoded: Vec<_> =
        topics.iter().map(|(value, _)| value.to_xdr_base64(Limits::none()).unwrap()).collect();
    let Some(texts) = value_of(&["topics.js"], "given.map((it) => topicText(it))", &encoded) else {
        return;
    };
    let expected: Vec<_> = topics.iter().map(|(_, text)| json!(text)).collect();
    assert_eq!(texts, json!(expected));
}

#[test]
fn addresses_have_checksums_and_muxed_ones_an_account_and_an_id() {
    let MuxedAccount::Ed25519(ed25519) = ACCOUNT.parse().unwrap() else { panic!("{ACCOUNT}") };
    let muxed = |id| {
        MuxedAccount::MuxedEd25519(MuxedAccountMed25519 { id, ed25519: ed25519.clone() })
            .to_string()
    };
    let ids = [0, 815_359, u64::MAX];
    let muxed = ids.map(muxed);
    let mut given = vec![CONTRACT.to_owned(), ACCOUNT.to_owned()];
    given.extend(muxed.clone());
    let wrong: Vec<_> = given.iter().map(|it| it.replacen('A', "B", 1)).collect();
    let modules = ["topics.js", "strkey.js"];
    let right = [&given[..], &wrong].concat();
    let Some(checked) = value_of(&modules, "given.map(isRight)", &right) else { return };
    assert_eq!(checked, json!([vec![true; given.len()], vec![false; wrong.len()]].concat()));
    let bases = value_of(&modules, "given.map(baseOf)", &muxed).unwrap();
    let expected = ids.map(|id| json!({ "base": ACCOUNT, "id": id.to_string() }));
    assert_eq!(bases, json!(expected));
}

/// A contract may name any asset in its events; only that of the asset is shown with its unit.
#[test]
fn contracts_of_assets_are_known_by_their_ids() {
    let networks = ["mainnet", "testnet", "local"].map(Network::from_name_or_passphrase);
    let long = format!("ABCDEFGHIJKL:{ACCOUNT}");
    let assets = ["native".to_owned(), format!("USDC:{ACCOUNT}"), format!("a:{ACCOUNT}"), long];
    let mut given = Vec::new();
    let mut expected = Vec::new();
    for network in &networks {
        for asset in &assets {
            given.extend([asset.clone(), network.passphrase().to_owned()]);
            let parsed = parse_asset(asset).unwrap();
            expected.push(json!(asset_contract_id(network.id(), &parsed).to_string()));
        }
    }
    for wrong in ["", "USDC", "USDC:G", "toolongacode1:x", "native:x"] {
        given.extend([wrong.to_owned(), "any".to_owned()]);
        expected.push(Value::Null);
    }
    let pairs = "given.flatMap((it, at) => at % 2 === 0 ? [contractOf(it, given[at + 1])] : [])";
    let modules = ["topics.js", "strkey.js", "sha256.js", "asset.js"];
    let Some(found) = value_of(&modules, pairs, &given) else { return };
    assert_eq!(found, json!(expected));
}

/// What the search field makes of what people paste.
#[test]
fn pasted_texts_are_what_they_were_meant_to_be() {
    const BASE: &str = "https://orrery.example/here/";
    let hash = "0123456789abcdef".repeat(4);
    let (contract, ledger) = (json!({ "name": CONTRACT }), json!({ "path": "ledger/1234567" }));
    let mut given = Vec::new();
    let mut expected = Vec::new();
    let mut add = |text: String, meant: &Value| {
        given.push(text);
        expected.push(meant.clone());
    };
    for name in [CONTRACT.to_owned(), hash.clone(), ACCOUNT.to_owned()] {
        let meant = json!({ "name": name });
        let (one, other) = name.split_at(29);
        for text in [
            name.clone(),
            format!("  {name}\r\n"),
            format!("\u{200b}{name}\u{2060}"),
            format!("\u{feff}\u{200e}{one}\u{200b}{other}\u{200f}"),
            format!("\"{name}\""),
            format!("‘{name}’,"),
            format!("({name})."),
            format!("[{name}]"),
            format!("<{name}>"),
            format!("«{name}»!"),
            format!("`{name}`"),
            format!("**{name}**"),
            format!("{one}\n{other}"),
            format!("{one}\r\n    {other}"),
            format!("it is {name}, as said"),
            format!("address: {name}"),
            format!("id={name}"),
            format!("https://stellar.expert/explorer/public/contract/{name}?filter=x"),
            format!("stellar.expert/explorer/testnet/tx/{name}"),
            format!("https://lab.stellar.org/view?network=x&of={name}&more"),
            format!("https://other.example/#/account/{name}"),
        ] {
            add(text, &meant);
        }
    }
    add(CONTRACT.to_lowercase(), &contract);
    add(hash.to_uppercase(), &json!({ "name": hash.to_uppercase() }));
    for text in [
        "1234567",
        "#1234567",
        "ledger 1234567",
        "Ledger: 1,234,567.",
        "LEDGER #1234567",
        "block 1234567",
        "ledger no. 1234567",
        "1 234 567",
        "https://stellar.expert/explorer/public/ledger/1234567",
        "stellarchain.io/ledgers/1234567",
        "http://localhost:8484/ledger/1234567",
        "https://orrery.example/here/ledger/1234567",
    ] {
        add(text.to_owned(), &ledger);
    }
    add("event 12".to_owned(), &json!({ "path": "event/12" }));
    add(format!("{BASE}event/12#token=x"), &json!({ "path": "event/12" }));
    add(format!("{BASE}tx/{hash}"), &json!({ "path": format!("tx/{hash}") }));
    // What is none of these stays what it is.
    let two = format!("{CONTRACT} {ACCOUNT}");
    for text in ["market.trade", "transfer", "market_trade", "ledger", &two, &CONTRACT[..55]] {
        add(text.to_owned(), &json!({ "name": text }));
    }
    for empty in ["", " \n", "\u{200b}", "\"\""] {
        add(empty.to_owned(), &json!({ "name": "" }));
    }
    let modules = ["topics.js", "strkey.js", "pasted.js"];
    let each = format!("given.map((it) => meant(it, '{BASE}'))");
    let Some(read) = value_of(&modules, &each, &given) else { return };
    for ((text, read), expected) in given.iter().zip(read.as_array().unwrap()).zip(&expected) {
        assert_eq!(read, expected, "{text:?}");
    }
}

/// A seed has a checksum, so it is known for what it is wherever it stands. A word that only looks like one
/// may be a seed with a mistake, which gives almost all of it away; within other letters it is searched for.
#[test]
fn secrets_are_known_in_any_text() {
    let Some(seeds) = value_of(
        &["topics.js"],
        "[0, 7, 255].map((byte) => strkey(18 << 3, Array(32).fill(byte)))",
        &[],
    ) else {
        return;
    };
    let mut given = Vec::new();
    let mut expected = Vec::new();
    for seed in seeds.as_array().unwrap().iter().map(|it| it.as_str().unwrap()) {
        let (one, other) = seed.split_at(20);
        for text in [
            seed.to_owned(),
            seed.to_lowercase(),
            format!(" \"{seed}\".\n"),
            format!("{one}\n   {other}"),
            format!("\u{200b}{one}\u{2060}{other}"),
            format!("secret: {seed} of {ACCOUNT}"),
            format!("https://wallet.example/?s={seed}&x"),
            format!("{{\"secret\":\"{seed}\"}}"),
        ] {
            given.push(text);
            expected.push(json!("seed"));
        }
        let last = if seed.ends_with('A') { "B" } else { "A" };
        let mistyped = format!("{}{last}", &seed[..55]);
        for text in [mistyped.clone(), mistyped.to_lowercase(), format!("key: {}", &seed[..55])] {
            given.push(text);
            expected.push(json!("seed"));
        }
        given.push(format!("{}x{}", mistyped.to_lowercase(), &mistyped[..4]));
        expected.push(Value::Null);
    }
    for (text, kind) in [
        (format!("whsec_{}", "ab".repeat(32)), json!("webhook")),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbmEifQ.c2ln".to_owned(), json!("token")),
        (["abandon"; 12].join(" "), json!("phrase")),
        (CONTRACT.to_owned(), Value::Null),
        (ACCOUNT.to_owned(), Value::Null),
        ("ab".repeat(32), Value::Null),
        ("the newest trades of the market".to_owned(), Value::Null),
    ] {
        given.push(text);
        expected.push(kind);
    }
    let modules = ["topics.js", "strkey.js", "pasted.js"];
    let found = value_of(&modules, "given.map((it) => secretIn(it))", &given).unwrap();
    assert_eq!(found, json!(expected));
}

/// Spreadsheets take another sign than the comma for the end of a cell in some languages, and run
/// cells that begin like a formula. Quotes do not help there: they count only where a cell begins.
#[test]
fn no_cell_of_a_file_is_a_formula_whatever_ends_cells() {
    const ENDS: [char; 5] = [';', '\t', '|', '\r', '\n'];
    const SIGNS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    let mut given = vec!["plain".to_owned(), "a,b".to_owned(), "a\"b".to_owned()];
    for sign in SIGNS {
        given.push(format!("{sign}1"));
        given.push(format!("  {sign}1"));
        for end in ENDS {
            for between in ["", " ", "\"", "'", " \"'"] {
                given.push(format!("x{end}{between}{sign}HYPERLINK(A1){end}y"));
            }
        }
    }
    let modules = [
        "csv.js",
        "api.js",
        "address.js",
        "data_dir.js",
        "dom.js",
        "format.js",
        "problem.js",
        "token.js",
    ];
    let file = "await (await csvFile(['n', 't'], given.length, (at) => [at, given[at]])).text()";
    let Some(file) = value_of(&modules, file, &given) else { return };
    let file = file.as_str().unwrap();
    for end in ENDS {
        for cell in file.split([end, '\n']) {
            let begins = cell.trim_matches(['"', ' ', '\r']);
            assert!(!begins.starts_with(SIGNS), "{end:?}: {cell:?}");
        }
    }
    // All texts are in quotes; numbers are not.
    let lines: Vec<_> = file.split("\r\n").take(4).collect();
    assert_eq!(lines, ["\"n\",\"t\"", "0,\"plain\"", "1,\"a,b\"", "2,\"a\"\"b\""]);
}
