//! Names of addresses in the pages.

use serde_json::json;
use stellar_xdr::{MuxedAccount, MuxedAccountMed25519, Uint256};

use orrery_testkit::binary::Service;
use orrery_testkit::wait::wait_until;

use crate::browser;

#[test]
fn muxed_addresses_have_the_names_of_their_accounts() {
    if browser::modules().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (demo, told) = Service::demo(directory.path(), &["--close-time", "200"]);
    let token = told["token"].as_str().unwrap();
    let path = format!("/rest/txs/by-contract/{}?limit=1", told["contract"].as_str().unwrap());
    let transaction = wait_until("there is a call", || {
        let (_, transactions) = demo.ask(&path, Some(token));
        transactions.get(0).cloned()
    });
    demo.stop();

    let account = transaction["source_account"].as_str().unwrap();
    let MuxedAccount::Ed25519(Uint256(key)) = account.parse().unwrap() else { panic!("{account}") };
    let muxed = MuxedAccountMed25519 { id: 815_359, ed25519: Uint256(key) };
    let muxed = MuxedAccount::MuxedEd25519(muxed).to_string();
    let file = directory.path().join("labels");
    std::fs::write(&file, format!("{account} Treasury\n")).unwrap();
    let labels = [("ORRERY_SITE_LABELS", file.to_str().unwrap())];
    let service = Service::start_with(&directory.path().join("d"), &labels);
    let more = json!({ "account": account, "muxed": muxed, "tx": transaction["tx"] });
    let Some(told) = browser::run("names.mjs", &service.base, token, more) else { return };
    browser::assert_quiet(&told);
    assert_eq!(told["headings"], json!(["✓ Treasury Account", "✓ Treasury Account"]));
    assert!(told["title"].as_str().unwrap().starts_with("✓ Treasury"), "{told}");
    let source = told["source"].as_str().unwrap();
    let short = format!("{}…{}", &muxed[..6], &muxed[63..]);
    assert!(source.starts_with("✓ Treasury") && source.ends_with(&short), "{source}");
}
