//! What the service tells of contracts for the pages that show them.

use serde_json::{Value, json};

use super::browser;
use orrery_testkit::binary::{Service, run};
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

/// Waits for a value of the decoded events, of which `find` picks one.
fn found<T>(service: &Service, token: &str, find: impl Fn(&Value) -> Option<T>) -> T {
    wait_until("there is such an event", || {
        let (_, events) = service.ask("/rest/events/by-ledger?limit=200&decoded=true", Some(token));
        events.as_array()?.iter().find_map(&find)
    })
}

#[test]
fn addresses_have_names_that_say_who_chose_them() {
    let directory = tempfile::tempdir().unwrap();
    let (demo, told) = Service::demo(directory.path(), &["--close-time", "200"]);
    let token = told["token"].as_str().unwrap();
    let (asset, asset_name, holder) = found(&demo, token, |event| {
        let params = &event["decoded"]["params"];
        let name = params["sep0011_asset"].as_str().filter(|name| name.contains(':'))?.to_owned();
        let holder = params["to"].as_str().filter(|it| it.starts_with('G'))?.to_owned();
        Some((event["contract_id"].as_str()?.to_owned(), name, holder))
    });
    let code = asset_name.split(':').next().unwrap().to_owned();
    let (_, programs) = demo.ask("/rest/retroshade/list", Some(token));
    let market = programs[0]["contracts"][0].as_str().unwrap().to_owned();
    let of = |service: &Service, addresses: &str| {
        service.ask(&format!("/rest/contracts/labels?addresses={addresses}"), Some(token))
    };
    let all = format!("{holder},{asset},{market}");
    let asset_label = json!({ "address": asset, "name": code, "kind": "asset" });
    assert_eq!(of(&demo, &all), (200, json!([asset_label])));

    let (status, refused) = of(&demo, &vec![asset.as_str(); 51].join(","));
    assert_eq!((status, &refused["code"]), (400, &json!("bad_parameter")), "{refused}");
    assert_eq!(of(&demo, "CA").0, 400);

    let called = |service: &Service, name: &str| {
        service.ask(&format!("/rest/contracts/named?name={name}"), Some(token)).1
    };
    let finds = |name: &str, label: &Value| {
        let found = called(&demo, name);
        assert!(found.as_array().unwrap().contains(label), "{name}: {found}");
    };
    finds(&code.to_lowercase(), &asset_label);
    assert_eq!(called(&demo, &asset_name.replace(':', "%3A")), json!([asset_label]));
    let native = called(&demo, "xlm");
    assert_eq!((&native[0]["name"], &native[0]["kind"]), (&json!("XLM"), &json!("asset")));
    assert_eq!(called(&demo, "nothing%20of%20this%20name"), json!([]));
    for wrong in ["", "name=", &format!("name={}", "x".repeat(81))] {
        let (status, refused) = demo.ask(&format!("/rest/contracts/named?{wrong}"), Some(token));
        assert_eq!((status, &refused["code"]), (400, &json!("bad_parameter")), "{refused}");
    }

    if let Some(told) = browser::run("labels.mjs", &demo.base, token, json!({ "name": code })) {
        browser::assert_quiet(&told);
        let asked: Vec<u64> = serde_json::from_value(told["asked"].clone()).unwrap();
        // Half as many at a time as before.
        assert!(asked.len() > 2 && asked[1] <= 25 && asked[2] <= 13, "{asked:?}");
        let text = told["text"].as_str().unwrap();
        assert!(text.contains(&code) && text.contains("the code of an asset"), "{text}");
    }
    demo.stop();

    // What the operator says counts more than what strangers chose.
    let file = directory.path().join("labels");
    std::fs::write(&file, format!("# ours\n{holder} Treasury, cold\n{asset} Ours\n")).unwrap();
    let labels = [("ORRERY_SITE_LABELS", file.to_str().unwrap())];
    let service = Service::start_with(&directory.path().join("d"), &labels);
    let operator =
        |address: &str, name: &str| json!({ "address": address, "name": name, "kind": "operator" });
    let named = json!([operator(&holder, "Treasury, cold"), operator(&asset, "Ours")]);
    assert_eq!(of(&service, &all), (200, named));
    assert_eq!(called(&service, "treasury"), json!([operator(&holder, "Treasury, cold")]));
    assert_eq!(called(&service, "ours"), json!([operator(&asset, "Ours")]));
    assert_eq!(service.ask(&format!("/rest/contracts/labels?addresses={asset}"), None).0, 401);
    service.stop();

    // A mistake is told when the service starts.
    std::fs::write(&file, format!("{holder} a\u{202e}b\n")).unwrap();
    let path = file.to_str().unwrap();
    std::fs::write(directory.path().join("orrery.toml"), format!("[site]\nlabels = '{path}'\n"))
        .unwrap();
    let serve = ["--config", "orrery.toml", "serve", "--no-source", "--data-dir", "d"];
    run(directory.path(), &serve).refuses(1, &["site.labels", "line 1", "U+202E"]);
}
