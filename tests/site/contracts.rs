//! What the service tells of contracts for the pages that show them. No browser.

use serde_json::{Value, json};

use orrery_testkit::binary::Service;
use orrery_testkit::wait::wait_until;

#[test]
fn a_service_estimates_contract_sizes() {
    let directory = tempfile::tempdir().unwrap();
    let (demo, _) = Service::demo(directory.path(), &[]);
    let contracts = wait_until("contracts with events", || {
        let (_, status) = demo.ask("/rest/status", None);
        let contracts = &status["contracts"];
        (!contracts["largest"].as_array()?.is_empty()).then(|| contracts.clone())
    });
    assert_eq!(contracts["sampled_ledgers"], contracts["of_ledgers"]);
    let largest: &Vec<Value> = contracts["largest"].as_array().unwrap();
    let shares = largest.iter().map(|it| it["share"].as_f64().unwrap());
    assert!((0.5..1.001).contains(&shares.sum::<f64>()), "{contracts}");
    demo.stop();
}

#[test]
fn contracts_name_the_indexes_that_have_them() {
    let directory = tempfile::tempdir().unwrap();
    let (demo, told) = Service::demo(directory.path(), &["--close-time", "200"]);
    let token = told["token"].as_str().unwrap();
    for (accounts, kind) in
        [("smart_accounts", "smart_account"), ("passkey_wallets", "passkey_wallet")]
    {
        let contract = told[accounts][0].as_str().unwrap();
        wait_until("the contract is known as an account", || {
            let (_, answer) = demo.ask(&format!("/rest/contracts/{contract}"), Some(token));
            (answer["account_kinds"] == json!([kind])).then_some(())
        });
    }
    let (_, programs) = demo.ask("/rest/retroshade/list", Some(token));
    let market = programs[0]["contracts"][0].as_str().unwrap();
    let (_, answer) = demo.ask(&format!("/rest/contracts/{market}"), Some(token));
    assert_eq!(answer["account_kinds"], json!([]));
    demo.stop();
}
