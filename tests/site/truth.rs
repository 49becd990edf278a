//! Pages do not go on as if nothing was the matter when the service, the network or the token ends.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use orrery_testkit::binary::token;
use orrery_testkit::program;

use crate::browser;
use crate::world::Demo;

/// The id of a token.
fn id(token: &str) -> String {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    claims["jti"].as_str().unwrap().to_owned()
}

fn revocation(data_dir: &Path, token: &str) -> Value {
    let id = id(token);
    let arguments = ["token", "revoke", "--data-dir", data_dir.to_str().unwrap(), id.as_str()];
    let arguments = arguments.map(str::to_owned);
    let program = program::orrery().to_string_lossy().into_owned();
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().into()
}

#[test]
fn every_page_says_when_the_service_the_network_or_the_token_is_gone() {
    if browser::modules().is_none() {
        return;
    }
    let demo = Demo::running();
    let data_dir = demo.data_dir();
    let revoked = token(&data_dir, "demo");
    let more = json!({
        "process": demo.service.id(),
        "key": data_dir.join("secrets/token-signing-key"),
        "revoke": revocation(&data_dir, &revoked),
        "revoked": revoked,
    });
    let Some(told) = browser::run("truth.mjs", &demo.service.base, &demo.token, more) else {
        return;
    };
    browser::assert_quiet(&told);
    println!("seconds until every page says so: {}", told["seconds"]);
    for state in ["stopped", "offline", "killed"] {
        for (page, seen) in told[state].as_object().unwrap() {
            let outage = seen["outage"].as_str().unwrap();
            assert!(outage.starts_with("The service does not answer"), "{state}, {page}: {outage}");
        }
    }
    assert_eq!(told["emptied"], json!([]), "what was read stays");
    assert_eq!(told["said_wrong"], json!([]));
    assert_eq!(told["never_came"], json!([]), "{}", told["opened_offline"]);
    for (page, seen) in told["opened_offline"].as_object().unwrap() {
        assert!(seen["heading"].is_string(), "{page}: {seen}");
        assert!(seen["text"].as_str().unwrap().contains("does not answer"), "{page}: {seen}");
    }
    let pages = told["stopped"].as_object().unwrap().len();
    assert!(pages >= 14, "{pages} pages");
    for state in ["expired", "revoked"] {
        assert_eq!(told[state].as_object().unwrap().len(), pages, "{state}");
    }
    assert_eq!(told["again"]["gone"], json!([]), "another token brings the page back");
}
