//! Messages of the built binary: templates are checked, numbers have the unit of their token, links lead to
//! the site, and the address of a chat shows nowhere.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::receiver::{Receiver, answer};
use super::service::{Owner, SETTINGS, directory, store};
use orrery_testkit::binary::Service;
use orrery_testkit::wait::wait_until;

const TOKEN: &str = "SecretTokenOfTheChannel";
const SITE: &str = "https://orrery.example/base";

/// Returns a contract of an asset that has emitted a transfer.
fn asset_contract(owner: &Owner) -> String {
    let events = owner.get("events/by-ledger?limit=1000&decoded=true");
    let is_transfer = |event: &&Value| {
        event["decoded"]["name"] == "transfer"
            && event["decoded"]["params"]["sep0011_asset"].is_string()
    };
    let event = events.as_array().unwrap().iter().find(is_transfer).expect("assets move");
    event["contract_id"].as_str().unwrap().to_owned()
}

/// Writes stroops with seven decimals, without zeros at the end.
fn units(stroops: &str) -> String {
    let stroops: i128 = stroops.parse().unwrap();
    let whole = format!("{}.{:07}", stroops / 10_000_000, stroops % 10_000_000);
    whole.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn short(address: &Value) -> String {
    let address = address.as_str().unwrap();
    format!("{}…{}", &address[..4], &address[address.len() - 4..])
}

#[test]
fn a_service_says_what_templates_ask_for() {
    let directory = directory();
    let settings =
        [&SETTINGS[..], &[("ORRERY_HTTP_PUBLIC_URL", "https://orrery.example/base/")]].concat();
    let service = Service::start_with(directory.path(), &settings);
    let ana = Owner::new(directory.path(), &service, "ana");
    store(directory.path(), 0..20);
    let contract = asset_contract(&ana);
    let [texts, bodies, chat] = [(); 3].map(|()| Receiver::start(|_| answer(200)));
    let new = |receiver: &Receiver, path: &str, format: &str, message: Option<&str>| {
        json!({
            "webhook_endpoint": receiver.url(path), "contract_ids": [contract], "topic1": "transfer",
            "format": format, "message": message,
        })
    };
    let template = "{from|short} > {to|short}: {amount|units} ({amount}) {link} {{}}";
    ana.post("webhooks/new", &new(&texts, "/", "text", Some(template)));
    ana.post("webhooks/new", &new(&bodies, "/", "service", None));
    let path = format!("/api/webhooks/77/{TOKEN}");
    let discord = new(&chat, &path, "discord", Some("{amount|units} {sep0011_asset}"));
    let id = ana.post("webhooks/new", &discord)["ids"][0].clone();
    let (status, twice) = ana.ask("POST", "webhooks/new", Some(&discord));
    assert_eq!((status, &twice["code"]), (409, &json!("webhook_exists")));
    let other = new(&chat, &path, "discord", Some("{amount}"));
    assert_eq!(ana.ask("POST", "webhooks/new", Some(&other)).0, 200, "it says something else");
    for (message, sentence) in [
        ("{amout}", "no event that the contracts declare has 'amout': is 'amount' meant?"),
        ("{amount|money}", "has the filter 'money'"),
        ("{from.x}", "'from' is a text and has no members"),
    ] {
        let (status, refused) =
            ana.ask("POST", "webhooks/new", Some(&new(&texts, "/x", "text", Some(message))));
        assert_eq!(status, 400, "{refused}");
        assert!(refused["error"].as_str().unwrap().contains(sentence), "{refused}");
    }

    store(directory.path(), 20..60);
    wait_until("as many messages as bodies arrive", || {
        let counts = (texts.count(), bodies.count(), chat.count());
        if counts.0 == counts.1 && counts.0 > 5 && counts.2 >= 3 { Ok(()) } else { Err(counts) }
    });
    let said: BTreeMap<u64, String> = texts
        .received()
        .iter()
        .map(|it| {
            let text = String::from_utf8(it.body.clone()).unwrap();
            let id = text.split("/event/").nth(1).unwrap().split(' ').next().unwrap();
            (id.parse().unwrap(), text)
        })
        .collect();
    for received in bodies.received() {
        let event = &received.json()["event"];
        let (id, params) = (event["id"].as_u64().unwrap(), &event["params"]);
        let amount = params["amount"].as_str().unwrap();
        let expected = format!(
            "{} > {}: {} ({amount}) {SITE}/event/{id} {{}}",
            short(&params["from"]),
            short(&params["to"]),
            units(amount),
        );
        assert_eq!(said[&id], expected);
    }
    let message = chat.received()[0].json();
    assert_eq!(message["flags"], 4);
    let content = message["content"].as_str().unwrap();
    assert!(
        content.starts_with('`') && content.ends_with('`') && content.matches('`').count() <= 4,
        "{content}"
    );

    let listed = ana.get("webhooks/list");
    let hook = listed.as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
    assert_eq!(hook["webhook_endpoint"], json!(format!("http://{}/…nnel", chat.address)));
    assert_eq!(
        (&hook["format"], &hook["message"]),
        (&json!("discord"), &json!("{amount|units} {sep0011_asset}"))
    );
    let shown = [listed.clone(), ana.get(&format!("webhooks/{id}/deliveries?body=true"))];
    assert!(!json!(shown).to_string().contains(TOKEN));
    let test = ana.post(&format!("webhooks/{id}/test"), &json!({}));
    let test = test["delivery_id"].as_str().unwrap();
    wait_until("the test has arrived", || {
        let row = &ana.get(&format!("webhooks/{id}/deliveries?delivery_id={test}&body=true"))[0];
        let text = format!(r"Test of Orrery\: subscription {id}");
        row["status"] == "delivered"
            && row["body"].as_str().unwrap().contains(&text.replace('\\', "\\\\"))
    });
}
