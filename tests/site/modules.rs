//! Modules of the site that compute: Node imports them; no browser.

use std::path::Path;
use std::process::Command;

use orrery::domain::{Network, asset_contract_id, parse_asset};
use serde_json::{Value, json};
use stellar_xdr::{Int128Parts, Limits, ScAddress, ScSymbol, ScVal, UInt128Parts, WriteXdr};

const CONTRACT: &str = "CDYCP4CTXHKI2L3SHW33BXRFCHMVPD5J2SQIAMO3QYLX2SG3NQ5ANS3T";
const ACCOUNT: &str = "GAVJCNS3N4CAFWHEATMIHULVAYEOQBK53DESOGNL5GCZKINA6SGQRXVP";

/// Runs an expression, in which `given` is a list of texts, with the names that these modules export,
/// and returns its value; `None` when there is no Node.
fn value_of(modules: &[&str], expression: &str, given: &[String]) -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("package.json"), r#"{"type":"module"}"#).unwrap();
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/site");
    let mut script = String::from("const given = process.argv.slice(2);\n");
    for name in modules {
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
