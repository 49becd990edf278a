//! The forms that events of an asset's contract have had.

use orrery_interfaces::{Params, asset_contract, declaration, is_asset_contract};
use orrery_ledger::domain::{Network, asset_contract_id, parse_asset};
use orrery_testkit::account_events::{account, address, contract};
use orrery_testkit::values::{bytes, fields, i128, list, string, symbol};
use serde_json::{Value, json};
use stellar_xdr::ScVal;

const ASSET: &str = "USD:GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN";

fn params(topics: &[ScVal], data: &ScVal) -> Value {
    let interfaces = [asset_contract()];
    let matched = declaration(&interfaces, topics, data).unwrap();
    assert!(matched.rest.is_empty());
    json!([matched.name(), Params(&matched)])
}

#[test]
fn all_forms_of_one_event_have_one_name() {
    let (a, b, c) = (account(1), account(2), contract(3));
    let (asset, amount) = (|| string(ASSET), || i128(7));
    let topics = |name: &str, who: &[&stellar_xdr::ScAddress]| {
        let who = who.iter().map(|who| address(who));
        [symbol(name)].into_iter().chain(who).chain([asset()]).collect::<Vec<_>>()
    };
    let (text_a, text_b, text_c) = (a.to_string(), b.to_string(), c.to_string());
    let moved = |muxed: Option<Value>| {
        let mut params =
            json!({"from": text_a, "to": text_b, "sep0011_asset": ASSET, "amount": "7"});
        if let Some(muxed) = muxed {
            params["to_muxed_id"] = muxed;
        }
        json!(["transfer", params])
    };
    let transfer = topics("transfer", &[&a, &b]);
    assert_eq!(params(&transfer, &amount()), moved(None));
    for (id, plain) in [
        (ScVal::U64(5), json!("5")),
        (string("memo"), json!("memo")),
        (bytes(&[9; 32]), json!("09".repeat(32))),
        (ScVal::Void, json!(null)),
    ] {
        let data = fields([("amount", amount()), ("to_muxed_id", id.clone())]);
        assert_eq!(params(&transfer, &data), moved(Some(plain.clone())));
        let minted =
            json!({"to": text_a, "sep0011_asset": ASSET, "amount": "7", "to_muxed_id": plain});
        assert_eq!(params(&topics("mint", &[&a]), &data), json!(["mint", minted]));
    }
    let both = |topic: &str, role: &str, key: &str, data: &ScVal, plain: Value| {
        let now = json!({role: text_b, "sep0011_asset": ASSET, key: plain});
        assert_eq!(params(&topics(topic, &[&b]), data), json!([topic, now]));
        let before = json!({"admin": text_c, role: text_b, "sep0011_asset": ASSET, key: plain});
        assert_eq!(params(&topics(topic, &[&c, &b]), data), json!([topic, before]));
    };
    both("mint", "to", "amount", &amount(), json!("7"));
    both("clawback", "from", "amount", &amount(), json!("7"));
    both("set_authorized", "id", "authorize", &ScVal::Bool(true), json!(true));
    let approved = list([amount(), ScVal::U32(9)]);
    let expected = json!({
        "from": text_a, "spender": text_b, "sep0011_asset": ASSET, "amount": "7",
        "live_until_ledger": 9,
    });
    assert_eq!(params(&topics("approve", &[&a, &b]), &approved), json!(["approve", expected]));
    let expected = json!({"admin": text_a, "sep0011_asset": ASSET, "new_admin": text_b});
    assert_eq!(params(&topics("set_admin", &[&a]), &address(&b)), json!(["set_admin", expected]));
}

#[test]
fn only_the_contract_of_the_named_asset_is_one() {
    let network = Network::from_name_or_passphrase("mainnet");
    let other = Network::from_name_or_passphrase("testnet");
    let id = asset_contract_id(network.id(), &parse_asset(ASSET).unwrap());
    let topics = [symbol("transfer"), string(ASSET)];
    assert!(is_asset_contract(&topics, network.id(), &id));
    assert!(!is_asset_contract(&topics, other.id(), &id));
    let native = asset_contract_id(network.id(), &stellar_xdr::Asset::Native);
    assert!(is_asset_contract(&[string("native")], network.id(), &native));
    assert!(!is_asset_contract(&topics, network.id(), &native));
    for topics in [&[][..], &topics[..1], &[string(ASSET), symbol("x")], &[string(b"\xff")]] {
        assert!(!is_asset_contract(topics, network.id(), &id));
    }
    assert!(!is_asset_contract(&[string("native:")], network.id(), &native));
}
