//! Topics as people write them. Node imports the module of the site; no browser.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use stellar_xdr::{Int128Parts, Limits, ScAddress, ScSymbol, ScVal, UInt128Parts, WriteXdr};

#[test]
fn topics_are_written_as_the_service_takes_them() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/site/topics.js");
    std::fs::copy(source, at.join("topics.mjs")).unwrap();
    let address = |text: &str| ScVal::Address(text.parse::<ScAddress>().unwrap());
    let contract = "CDYCP4CTXHKI2L3SHW33BXRFCHMVPD5J2SQIAMO3QYLX2SG3NQ5ANS3T";
    let account = "GAVJCNS3N4CAFWHEATMIHULVAYEOQBK53DESOGNL5GCZKINA6SGQRXVP";
    let topics = [
        (ScVal::Symbol(ScSymbol("transfer".try_into().unwrap())), "transfer"),
        (address(contract), contract),
        (address(account), account),
        (ScVal::U64(u64::MAX), "u64:18446744073709551615"),
        (ScVal::I64(-5), "i64:-5"),
        (ScVal::U32(7), "u32:7"),
        (ScVal::Bool(true), "bool:true"),
        (ScVal::I128(Int128Parts { hi: -1, lo: u64::MAX - 2 }), "i128:-3"),
        (ScVal::U128(UInt128Parts { hi: 1 << 36, lo: 0 }), "u128:1267650600228229401496703205376"),
    ];
    let encoded = topics.iter().map(|(value, _)| value.to_xdr_base64(Limits::none()).unwrap());
    let script = "import { topicText } from './topics.mjs';
        console.log(JSON.stringify(process.argv.slice(1).map(topicText)));";
    let mut node = Command::new("node");
    node.args(["--input-type=module", "--eval", script]).args(encoded);
    let ran = match node.current_dir(at).output() {
        Ok(ran) => ran,
        Err(error) => {
            println!("skipped: Node cannot be run: {error}");
            return;
        }
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let texts: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let expected: Vec<_> = topics.iter().map(|(_, text)| json!(text)).collect();
    assert_eq!(texts, json!(expected));
}
