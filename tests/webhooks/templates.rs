//! Templates of messages: generated ones against what they should say, which is put together with them, and
//! each mistake with its sentence.

use orrery::webhooks::message::body::Body;
use orrery::webhooks::message::format::Format;
use orrery::webhooks::message::template::{LONGEST_TEMPLATE, MOST_NAMES, Template};
use orrery::webhooks::message::{Facts, Message};
use orrery_testkit::histories;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
const ACCOUNT: &str = "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ";

/// A random value of a parameter, as plain JSON has it.
fn value(rng: &mut ChaCha8Rng, depth: usize) -> Value {
    match rng.random_range(0..if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => rng.random_bool(0.5).into(),
        2 => rng.random::<u32>().into(),
        3 => rng.random::<i128>().to_string().into(),
        4 => (*[CONTRACT, ACCOUNT, "USDC:GA…", "{amount}", "ü", ""].choose(rng).unwrap()).into(),
        5 => "x".repeat(rng.random_range(0..20)).into(),
        6 => (0..rng.random_range(0..4)).map(|_| value(rng, depth - 1)).collect(),
        _ => {
            let members =
                (0..rng.random_range(0..4)).map(|at| (format!("m{at}"), value(rng, depth - 1)));
            Value::Object(members.collect())
        }
    }
}

/// What a message shows of a value.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => "null".to_owned(),
        Some(Value::String(text)) if text.trim().is_empty() => "(empty)".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A name with what it stands for: a parameter, and a random way into it.
fn name(rng: &mut ChaCha8Rng, params: &Map<String, Value>) -> (String, Option<Value>) {
    let root = format!("p{}", rng.random_range(0..8));
    // SQL folds letters of ASCII, also in quotes.
    let mut written = match rng.random_range(0..3) {
        0 => root.to_ascii_uppercase(),
        1 => format!("\"{root}\""),
        _ => root.clone(),
    };
    let Some(mut value) = params.get(&root).cloned() else { return (written, None) };
    while rng.random_bool(0.6) {
        let (step, part) = match rng.random_bool(0.5) {
            true => {
                let number = rng.random_range(1..5_usize);
                (
                    format!("[{number}]"),
                    value.as_array().and_then(|all| all.get(number - 1)).cloned(),
                )
            }
            false => {
                let member = format!("m{}", rng.random_range(0..5));
                let part = value.as_object().and_then(|all| all.get(&member)).cloned();
                (format!(".{member}"), part)
            }
        };
        written.push_str(&step);
        value = part.unwrap_or(Value::Null);
    }
    (written, Some(value))
}

/// Puts the point into a number, digit by digit.
fn in_units(text: &str, decimals: u32) -> String {
    let Ok(number) = text.parse::<i128>() else { return text.to_owned() };
    let mut digits: Vec<u8> = number.unsigned_abs().to_string().into_bytes();
    while digits.len() <= decimals as usize {
        digits.insert(0, b'0');
    }
    digits.insert(digits.len() - decimals as usize, b'.');
    while digits.last() == Some(&b'0') {
        digits.pop();
    }
    if digits.last() == Some(&b'.') {
        digits.pop();
    }
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", String::from_utf8(digits).unwrap())
}

fn history(seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let params: Map<String, Value> = (0..6).map(|at| (format!("p{at}"), value(rng, 3))).collect();
    let event = json!({
        "contract_id": CONTRACT, "body": { "v0": { "topics": [{ "symbol": "t" }, { "i128": "-5" }], "data": "void" } },
        "id": 7, "ledger": 9, "name": "sold", "params": params,
    });
    let body = json!({ "event": event, "tx_hash": "ab" }).to_string().into_bytes();
    let (mut template, mut expected, mut decimals) = (String::new(), String::new(), Vec::new());
    for _ in 0..rng.random_range(1..15) {
        match rng.random_range(0..7) {
            0 => {
                template.push_str("{{}}");
                expected.push_str("{}");
            }
            1 => {
                let own = [
                    ("name", "sold"),
                    ("LEDGER", "9"),
                    ("_ledger", "9"),
                    ("tx", "ab"),
                    ("topics[2]", "-5"),
                    ("topics[3]", "null"),
                    ("topics", "[\"t\",\"-5\"]"),
                    ("contract_id|short", "CAS3…OWMA"),
                ];
                let (written, shown) = own.choose(rng).unwrap();
                template.push_str(&format!("{{ {written} }}"));
                expected.push_str(shown);
            }
            2 => {
                let words = ["sold ", "größe", "\n", " | ", "[1]", ".x", "@", "|short"]
                    .choose(rng)
                    .unwrap();
                template.push_str(words);
                expected.push_str(words);
            }
            3 => {
                let (written, value) = name(rng, &params);
                let known = rng.random_bool(0.7).then(|| rng.random_range(0..10));
                let token = [String::new(), format!(":{CONTRACT}"), ": p1".to_owned()];
                template.push_str(&format!("{{{written} | units{}}}", token.choose(rng).unwrap()));
                decimals.push(known);
                let number = shown(value.as_ref());
                expected.push_str(
                    &known.map_or(number.clone(), |decimals| in_units(&number, decimals)),
                );
            }
            4 => {
                let (written, value) = name(rng, &params);
                let letters: Vec<char> = match value {
                    Some(Value::String(text)) => text,
                    other => shown(other.as_ref()),
                }
                .chars()
                .collect();
                template.push_str(&format!("{{{written}|short}}"));
                let whole = || letters.iter().collect::<String>();
                expected.push_str(&match letters.len() {
                    0 => "(empty)".to_owned(),
                    1..10 => whole(),
                    length => {
                        letters[..4].iter().chain(&['…']).chain(&letters[length - 4..]).collect()
                    }
                });
            }
            _ => {
                let (written, value) = name(rng, &params);
                template.push_str(&format!("{{{written}}}"));
                expected.push_str(&shown(value.as_ref()));
            }
        }
    }
    if expected.trim().is_empty() {
        return;
    }
    let message = Message::parse(Format::Text, &template).unwrap();
    let facts = Facts { subscription: 1, decimals: &decimals, public_url: None };
    let written = String::from_utf8(message.write(&body, &facts).to_vec()).unwrap();
    let expected = expected.replace('\u{0}', "\u{fffd}");
    assert_eq!(written, expected, "{template}");
    assert_eq!(Template::parse(&template).unwrap().text(), template);
}

/// `ORRERY_TEST_SIZE=full` takes 100,000 templates.
#[test]
fn templates_say_what_they_are_made_to_say() {
    histories::run(3000, 100_000, history);
}

#[test]
fn each_mistake_of_a_template_has_its_sentence() {
    let long = "x".repeat(LONGEST_TEMPLATE + 1);
    let many = "{a}".repeat(MOST_NAMES + 1);
    for (template, sentence) in [
        ("", "is empty: give a text, such as"),
        (" \n", "is empty"),
        (&long, "is 4097 bytes long: give 4096 at the most"),
        (&many, "has more than 50 names"),
        ("a\u{7}", "has a control character at character 2"),
        ("größe {amount", "has a '{' at character 7 that is not closed"),
        ("{", "has a '{' at character 1 that is not closed"),
        ("a } b", "has a '}' at character 3 that closes nothing: write '}}' for a brace"),
        ("{}", "has braces without a name"),
        ("ü {1}", "(at character 4)"),
        ("{a b}", "has 'b' at character 4, where '}' or a filter behind '|' was expected"),
        ("{a[0]}", "'0' was found, and the number of an item, from 1 is expected"),
        ("{a|upper}", "has the filter 'upper' at character 4: give 'short', 'units', or 'units:'"),
        ("{a|}", "has the filter ''"),
        ("{a|short:x}", "has the filter 'short'"),
        ("{a|units:}", "has braces without a name"),
        ("{a|units:5}", "has braces without a name"),
        ("{a|units|short}", "has '|' at character 9"),
    ] {
        let error = Template::parse(template).unwrap_err().to_string();
        assert!(error.contains(sentence), "{template}: {error}");
    }
    for template in [
        "{a}",
        "{ a . b [ 1 ] | units : c . d }",
        "{\"a b\"|short}",
        "{link}",
        "}}{{",
        "{\"link\"}",
    ] {
        assert!(Template::parse(template).is_ok(), "{template}");
    }
}

fn said(template: &str, body: &Value) -> String {
    let message = Message::parse(Format::Text, template).unwrap();
    let facts = Facts { subscription: 3, decimals: &[], public_url: Some("https://o.example") };
    String::from_utf8(message.write(body.to_string().as_bytes(), &facts).to_vec()).unwrap()
}

#[test]
fn events_without_a_declaration_have_the_names_of_their_tables() {
    let event = |pending: bool| {
        json!({ "event": {
            "contract_id": CONTRACT, "id": 5, "ledger": 6, "names_pending": pending,
            "body": { "v0": {
                "topics": [{ "symbol": "add_pool" }, { "address": ACCOUNT }],
                "data": { "vec": [{ "address": CONTRACT }, { "u32": 30 }] },
            } },
        }, "tx_hash": "cd" })
    };
    let template = "{name} {value_1|short} {value_2} {value} {topic_2} {link}";
    let expected = format!("add_pool CAS3…OWMA 30 null {ACCOUNT} https://o.example/event/5");
    assert_eq!(said(template, &event(false)), expected);
    let pending = "add_pool null null null null https://o.example/event/5";
    assert_eq!(said(template, &event(true)), pending, "what is not known yet is not guessed");
}

#[test]
fn triggers_have_the_names_of_their_members() {
    let trigger = json!({
        "trigger": {
            "on": "storage", "contract_id": CONTRACT, "ledger": 8, "application_order": null,
            "key_args": ["a", { "b": 1 }], "value": { "price": "77" }, "previous": null,
        },
        "tx_hash": "ef",
    });
    let template = "{on} {value.price} {key_args[2].b} {previous} {trigger.ledger} {_ledger} {tx_hash} {other} {link}";
    assert_eq!(said(template, &trigger), "storage 77 1 null 8 8 ef null https://o.example/tx/ef");
    let silence = json!({ "trigger": { "on": "silence", "ledger": 8 }, "tx_hash": null });
    assert_eq!(said("{tx} {link}", &silence), "null https://o.example/ledger/8");
}

#[test]
fn values_of_any_depth_are_shown() {
    let deep = format!("{}\"void\"{}", "{\"vec\":[".repeat(120), "]}".repeat(120));
    let body = format!(
        "{{\"event\":{{\"contract_id\":\"\",\"id\":1,\"ledger\":2,\"name\":\"n\",\"params\":{{\"a\":{}7{},\"b\":5}},\
         \"body\":{{\"v0\":{{\"topics\":[{deep}],\"data\":{deep}}}}}}},\"tx_hash\":\"\"}}",
        "[".repeat(300),
        "]".repeat(300),
    );
    let message = Message::parse(Format::Text, "{b} {name} {a} {topics}").unwrap();
    let facts = Facts { subscription: 1, decimals: &[], public_url: None };
    let said = String::from_utf8(message.write(body.as_bytes(), &facts).to_vec()).unwrap();
    assert!(said.starts_with("5 n [[[[[["), "{said}");
}

#[test]
fn a_token_is_the_emitter_only_in_events_of_tokens() {
    let tokens = |name: &str, template: &str| {
        let event = json!({
            "contract_id": CONTRACT, "id": 1, "ledger": 2, "name": name, "params": { "token": CONTRACT, "to": ACCOUNT },
            "body": { "v0": { "topics": [], "data": "void" } },
        });
        let body = json!({ "event": event, "tx_hash": "" }).to_string();
        let message = Message::parse(Format::Text, template).unwrap();
        let tokens = message.tokens(&Body::parse(body.as_bytes()).unwrap());
        tokens.into_iter().map(|token| token.is_some()).collect::<Vec<_>>()
    };
    for (name, is_token) in [
        ("transfer", true),
        ("mint", true),
        ("burn", true),
        ("clawback", true),
        ("approve", true),
        ("swap", false),
    ] {
        assert_eq!(tokens(name, "{a|units} {to}"), [is_token], "{name}");
    }
    let template =
        format!("{{a|units:token}} {{a|units:to}} {{a|units:none}} {{a|units:{CONTRACT}}}");
    assert_eq!(tokens("swap", &template), [true, false, false, true]);
}

#[test]
fn too_long_messages_lose_of_their_longest_values_first() {
    let params = json!({ "long": "l".repeat(9000), "middle": "m".repeat(3000), "little": "s" });
    let event = json!({
        "contract_id": "", "id": 1, "ledger": 2, "name": "n", "params": params,
        "body": { "v0": { "topics": [], "data": "void" } },
    });
    let body = json!({ "event": event, "tx_hash": "" });
    let said = said("{little} and {long} and {middle} end", &body);
    assert_eq!(said.chars().count(), 8000);
    let long = 8000 - "s and  and  end".len() - 3000;
    let expected = format!("s and {}… and {} end", "l".repeat(long - 1), "m".repeat(3000));
    assert_eq!(said, expected);
    // Words that are too long alone are cut, too, behind values that are all cut.
    let message =
        Message::parse(Format::Discord, &format!("{{little}}{}{{long}}", ".".repeat(1500)))
            .unwrap();
    let facts = Facts { subscription: 1, decimals: &[], public_url: None };
    let sent: Value =
        serde_json::from_slice(&message.write(body.to_string().as_bytes(), &facts)).unwrap();
    let content = sent["content"].as_str().unwrap();
    assert!(content.starts_with("`s`\\.\\.") && content.ends_with("\\.…"), "{content}");
    assert!((1998..=2000).contains(&content.chars().count()));
}

#[test]
fn a_test_says_that_it_is_one() {
    let event = json!({
        "contract_id": "", "id": 1, "ledger": 2, "body": { "v0": { "topics": [], "data": "void" } },
    });
    let body = json!({ "event": event, "tx_hash": "", "test": true });
    assert_eq!(said("{name}", &body), "Test of Orrery: subscription 3");
    let trigger = json!({ "trigger": { "on": "ttl" }, "tx_hash": null, "test": true });
    assert_eq!(said("{name}", &trigger), "Test of Orrery: subscription 3");
}
