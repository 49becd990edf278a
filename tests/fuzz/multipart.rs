//! Body of a deploy or a trial, as a form or JSON. An input is the media type in its first line,
//! followed by the body. The body is refused in one sentence, or the parsed module is part of it
//! and all fields stay the same when they are sent again as a form and as JSON.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use orrery::api::{ApiError, read_deploy, read_trial};
use orrery::programs::{Deploy, Replace, Trial, TrialSelection};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

/// Maximum number of contract ids and of transactions in a request.
const MAX_CONTRACTS: usize = 1000;
const MAX_TRIED: usize = 100;
/// Upper bound on the length of an error sentence, in characters.
const LONGEST_SENTENCE: usize = 1200;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().build().unwrap());

const CONTRACT: &str = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";

fn form(boundary: &str, parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut form = format!("multipart/form-data; boundary={boundary}\n").into_bytes();
    for (name, content) in parts {
        let head =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        form.extend([head.as_bytes(), content, b"\r\n"].concat());
    }
    form.extend(format!("--{boundary}--\r\n").into_bytes());
    form
}

pub fn seeds() -> Vec<Vec<u8>> {
    let code = &b"\0asm\x01\0\0\0"[..];
    let hash = "ab".repeat(32);
    let both = format!("{CONTRACT}, {CONTRACT}");
    let usual = [("code", code), ("project_name", b"swaps"), ("contracts", CONTRACT.as_bytes())];
    let more: [(&str, &[u8]); 4] = [
        ("contracts", both.as_bytes()),
        ("public", b"true"),
        ("last", b"12"),
        ("transactions", hash.as_bytes()),
    ];
    let json = json!({
        "code": STANDARD.encode(code), "project_name": "swaps", "contracts": [CONTRACT],
        "public": true, "transactions": [hash, hash],
    });
    vec![
        form("x", &usual),
        form("----WebKitFormBoundary7MA4YWxk", &[&usual[..], &more[..2]].concat()),
        form("x", &[&usual[..], &more[2..3]].concat()),
        form("x", &[&usual[..], &more[3..]].concat()),
        form("x", &[("unknown", &[0xff; 300][..]), ("code", b"\r\n--x-\r\n--y")]),
        [b"application/json\n", json.to_string().as_bytes()].concat(),
        [b"\n", json!({"code": [0, 97, 255], "contracts": CONTRACT}).to_string().as_bytes()]
            .concat(),
    ]
}

pub fn check(bytes: &[u8]) {
    let _within = RUNTIME.enter();
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let media_type = std::str::from_utf8(&bytes[..end]).ok();
    let body = Bytes::copy_from_slice(bytes.get(end + 1..).unwrap_or_default());
    match read_deploy(media_type, &body) {
        Ok(deploy) => {
            let is_json = body.trim_ascii_start().starts_with(b"{");
            let code = &deploy.code;
            let is_part = code.is_empty() || body.windows(code.len()).any(|part| part == code);
            assert!(is_json || is_part, "the module is a part of the form");
            is_the_same_again(&deploy);
        }
        Err(error) => is_one_sentence(&error),
    }
    match read_trial(media_type, &body) {
        Ok(Trial { deploy, on }) => {
            match on {
                TrialSelection::Transactions(hashes) => {
                    assert!((1..=MAX_TRIED).contains(&hashes.len()))
                }
                TrialSelection::Last(last) => assert!((1..=MAX_TRIED).contains(&last)),
            }
            is_the_same_again(&deploy);
        }
        Err(error) => is_one_sentence(&error),
    }
}

fn is_one_sentence(error: &ApiError) {
    let is_expected = matches!(
        error,
        ApiError::Body(_) | ApiError::UnknownParameter { .. } | ApiError::BodyTooLarge(_)
    );
    assert!(is_expected, "{error:?}");
    let text = error.to_string();
    assert!(text.chars().count() < LONGEST_SENTENCE, "{} bytes: {text}", text.len());
    assert!(!text.contains(['\n', '\r', '\0']), "{text:?}");
}

fn is_the_same_again(deploy: &Deploy) {
    assert!(deploy.contracts.len() <= MAX_CONTRACTS);
    let contracts: Vec<_> = deploy.contracts.iter().map(ToString::to_string).collect();
    let holds = |text: &str| {
        let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        has(&deploy.code) || has(deploy.project_name.as_bytes())
    };
    let boundary = (0..).map(|number| format!("b{number}")).find(|it| !holds(it)).unwrap();
    let replace = deploy.replace != Replace::No;
    let allow_loss = deploy.replace == Replace::AllowingLoss;
    let flags =
        [("public", deploy.public), ("replace", Some(replace)), ("allow_loss", Some(allow_loss))];
    let flags = flags.map(|(name, flag)| flag.map(|flag| (name, flag.to_string())));
    let contracts_text = contracts.join(",");
    let mut parts = vec![
        ("code", deploy.code.as_slice()),
        ("project_name", deploy.project_name.as_bytes()),
        ("contracts", contracts_text.as_bytes()),
    ];
    parts.extend(flags.iter().flatten().map(|(name, flag)| (*name, flag.as_bytes())));
    let form = form(&boundary, &parts);
    let json = json!({
        "code": STANDARD.encode(&deploy.code), "project_name": deploy.project_name,
        "contracts": contracts, "public": deploy.public, "replace": replace,
        "allow_loss": allow_loss,
    });
    let json = [b"\n", json.to_string().as_bytes()].concat();
    for sent in [form, json] {
        let end = sent.iter().position(|byte| *byte == b'\n').unwrap();
        let media_type = std::str::from_utf8(&sent[..end]).unwrap();
        let again =
            read_deploy(Some(media_type), &Bytes::copy_from_slice(&sent[end + 1..])).unwrap();
        assert_eq!(again.code, deploy.code);
        assert_eq!(again.project_name, deploy.project_name);
        assert_eq!(again.contracts, deploy.contracts);
        assert_eq!((again.public, again.replace), (deploy.public, deploy.replace));
    }
}
