//! Sends requests to the server with the published client library of smart accounts.
//! `ORRERY_TEST_CLIENTS` is the directory of the package that `npm pack smart-account-kit@0.2.10`
//! makes, unpacked; without it, or without Node, the test is skipped. The published passkey-kit has
//! no client of an indexer, so its requests are made as its reference describes.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::world::{PASSKEY, SMART, World};
use orrery_testkit::account_events::passkey::{added, secp256r1, storage, unlimited};
use orrery_testkit::account_events::smart::{event, external, passkey, rule_by_ids};
use orrery_testkit::account_events::{contract, contract_id};
use orrery_testkit::values::fields;

/// Returns a world with a wallet and a smart account that have the same passkey, and their
/// contract.
fn world() -> (World, String) {
    let world = World::new();
    let signer = external(&contract(2), &passkey(&[0xab; 20]));
    let key = secp256r1(&[0xab; 20]);
    let of = [
        event("signer_registered", 0, fields([("signer", signer)])),
        rule_by_ids(0, &[0], &[]),
        added(&key, unlimited(&key), storage("Persistent")),
    ];
    world.add(10, &[of.map(|made| (contract_id(1), made)).to_vec()]);
    (world, contract_id(1).to_string())
}

#[test]
fn the_published_smart_account_client_works() {
    let Some(package) = std::env::var_os("ORRERY_TEST_CLIENTS").map(PathBuf::from) else {
        println!("skipped: ORRERY_TEST_CLIENTS names no package");
        return;
    };
    let (world, account) = world();
    let base = format!("http://{}{SMART}/", world.server.address);
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accounts/clients");
    let (credential, verifier) =
        ("0XABABABABABABABABABABABABABABABABABABABAB", contract(2).to_string());
    let ran = Command::new("node")
        .current_dir(&scripts)
        .args(["--import", "./resolve.mjs", "smart_accounts.mjs"])
        .arg(package)
        .args([&base, &credential.replace("0X", "0x"), &verifier, &account])
        .arg(contract_id(9).to_string())
        .output();
    let ran = match ran {
        Ok(ran) => ran,
        Err(error) => {
            println!("skipped: Node cannot be run: {error}");
            return;
        }
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let output: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let ask = |target: &str| world.ask(&format!("{SMART}{target}")).json();
    assert_eq!(output["healthy"], true);
    // The client converts six members to numbers, which they are already, so its result equals the
    // response.
    assert_eq!(output["credential"], ask(&format!("/api/lookup/{}", "ab".repeat(20))));
    assert_eq!(output["credential"]["contracts"][0]["contract_id"], account);
    assert_eq!(output["address"], ask(&format!("/api/lookup/address/{verifier}")));
    assert_eq!(output["detail"], ask(&format!("/api/contract/{account}")));
    assert_eq!(output["unknown"], Value::Null);
    assert_eq!(output["nobody"]["contracts"], json!([]));
    assert_eq!(output["stats"], ask("/api/stats"));
    assert_eq!(output["refused"], json!({ "name": "IndexerError", "status": 400 }));
}

/// Origin of a page of the same machine, which may read a private network.
const PAGE: &str = "http://localhost:5173";

/// `health`, `findWallets` and `getSigners` send these requests and read these members.
#[test]
fn requests_of_the_passkey_wallet_client_are_answered() {
    let (world, wallet) = world();
    let ask = |target: &str| {
        let headers = [("accept", "application/json"), ("origin", PAGE)];
        world.server.connect().request("GET", &format!("{PASSKEY}{target}"), &headers)
    };
    assert_eq!(ask("/").json()["status"], "ok");
    let found = ask(&format!("/api/lookup/{}", "ab".repeat(20))).json();
    assert_eq!(found["wallets"][0]["contract_id"], wallet);
    let by_nobody = ask(&format!("/api/lookup/address/{}", contract_id(9)));
    assert_eq!((by_nobody.status, &by_nobody.json()["wallets"]), (200, &json!([])));
    let signers = ask(&format!("/api/wallet/{wallet}")).json();
    let signer = &signers["signers"][0];
    assert_eq!(signer["key"], json!({ "type": "secp256r1", "value": "ab".repeat(20) }));
    // The client treats `null` as an object, so members without a value must be absent.
    assert!(signer.as_object().unwrap().values().all(|member| !member.is_null()));
    // The client treats 404 as an empty result, which a web page must be able to read (CORS).
    let nobody = ask(&format!("/api/wallet/{}", contract_id(9)));
    assert_eq!(nobody.status, 404);
    assert_eq!(nobody.json()["error"], "Wallet not found");
    assert_eq!(nobody.header("access-control-allow-origin"), Some(PAGE));
}
