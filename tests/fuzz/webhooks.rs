//! Input from users and senders of webhooks: endpoints, filters and signatures. Accepted input has
//! the meaning that it states, and refused input gets one short sentence.

use std::net::IpAddr;

use orrery::webhooks::filter::Filter;
use orrery::webhooks::signature;
use orrery::webhooks::target::{Endpoint, Policy};
use orrery::webhooks::{Secret, Secrets};

const SECRET: &str = "whsec_c2VjcmV0";
const BODY: &[u8] = b"{}";
const NOW: u64 = 1_800_000_000;

fn signed() -> [(&'static str, String); 6] {
    let present = Secret::chosen(SECRET.to_owned()).unwrap();
    signature::headers(&Secrets { present, previous: Vec::new() }, "d1", NOW * 1000, BODY)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "https://example.com:8443/events?a=b",
        "http://[2606:4700::1111]/",
        "http://3232235777/",
        "AAAAEgAAAAHXkotywnA8z+r365/0701QSlWouXn8m0UOoshCtNHOYQ==",
        "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ",
        "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA",
    ];
    let headers = signed().map(|(_, value)| value.into_bytes());
    texts.iter().map(|text| text.as_bytes().to_vec()).chain(headers).collect()
}

pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Endpoint>() {
        Ok(endpoint) => {
            assert_eq!(endpoint.as_str(), text);
            assert!(text.starts_with(|c: char| c.eq_ignore_ascii_case(&'h')), "{text}");
            // However the host was written, the parsed origin contains a plain name or address.
            let origin = endpoint.origin();
            let host = origin.split_once("://").unwrap().1;
            assert!(
                !host.is_empty() && !host.contains(['@', '/', '\\', ' ', '%']),
                "{text}: {host}"
            );
            let bare = host.trim_start_matches('[').split(']').next().unwrap();
            if let Ok(address) = bare.parse::<IpAddr>() {
                // An address gets the same verdict as its canonical form.
                let policy = Policy::default();
                let judged = policy.check(address).is_ok();
                assert_eq!(judged, policy.check(address.to_canonical()).is_ok(), "{text}");
            }
        }
        Err(error) => assert_one_sentence(&error.to_string()),
    }
    for filter in [
        Filter::parse(Some(text), [None; 4], None),
        Filter::parse(None, [Some(text), None, None, None], None),
        Filter::parse(None, [None; 4], Some(text)),
    ] {
        match filter {
            Ok(filter) => {
                let [topic, ..] = filter.topics.clone();
                let topics = [topic.or(filter.address.clone()).unwrap_or_default()];
                let topics = topics.each_ref().map(Vec::as_slice);
                assert!(filter.matches(filter.contract.as_ref(), &topics), "{text}");
                assert!(!filter.matches(Some(&[0; 32]), &[]), "{text}");
            }
            Err(error) => assert_one_sentence(&error.to_string()),
        }
    }
    for at in 0..6 {
        let mut headers = signed();
        let is_other = std::mem::replace(&mut headers[at].1, text.to_owned()) != text;
        let header = |name: &str| {
            headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
        };
        let verified = signature::verify(SECRET, header, BODY, NOW).is_ok();
        // Further signatures may follow the right one, and the hex digits of the plain signature
        // may be in either case.
        let still_there = at == 5 && text.split(' ').any(|one| one == signed()[5].1)
            || at == 0 && text.eq_ignore_ascii_case(&signed()[0].1);
        let not_signed = at == 1 || at == 2;
        assert_eq!(verified, !is_other || still_there || not_signed, "{at}: {text}");
    }
}

fn assert_one_sentence(sentence: &str) {
    assert!(!sentence.contains('\n') && sentence.len() < 600, "{sentence}");
}
