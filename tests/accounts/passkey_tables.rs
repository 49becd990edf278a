//! Each row of the event table of passkey wallets, in both generations and in each supported
//! layout; and similar events of other contracts.

use orrery::accounts::passkey::event::{
    Change, Event, Expiration, Key, Kind, Limits, Signer, Storage, recognise,
};
use orrery::accounts::smart;
use stellar_xdr::ScVal;

use orrery_testkit::account_events::passkey::{
    added, ed25519, legacy, policy, removed, secp256r1, storage, unlimited, updated, upgraded, val,
    wrapped,
};
use orrery_testkit::account_events::{Made, account, address, contract, number, public_key};
use orrery_testkit::values::{bytes, fields, list, map, symbol};

pub fn read(made: &Made) -> Option<Event> {
    let topics = made.topics_xdr();
    let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
    recognise(&topics, &made.data_xdr())
}

fn put(made: &Made) -> Option<(Kind, Key, Signer)> {
    match read(made)? {
        Event { kind, change: Change::Put(key, signer, _) } => Some((kind, key, signer)),
        other => panic!("{other:?}"),
    }
}

fn keys() -> [(ScVal, Key, Option<Vec<u8>>); 4] {
    [
        (secp256r1(&[0xab; 20]), Key::Secp256r1(vec![0xab; 20]), Some(public_key(9))),
        (ed25519(3), Key::Ed25519([3; 32]), None),
        (policy(&contract(4)), Key::Policy(contract(4)), None),
        (policy(&account(4)), Key::Policy(account(4)), None),
    ]
}

/// Returns limits as contracts emit them, with the expected decoded values.
fn limits() -> Vec<(ScVal, Limits)> {
    let (token, other) = (contract(5), account(6));
    vec![
        (fields([]), vec![]),
        (map([(address(&token), ScVal::Void)]), vec![(token.clone(), None)]),
        (map([(address(&token), list([]))]), vec![(token.clone(), Some(vec![]))]),
        (
            map([
                (address(&token), list([ed25519(3), secp256r1(b"x"), policy(&other)])),
                (address(&other), ScVal::Void),
            ]),
            vec![
                (other.clone(), None),
                (
                    token,
                    Some(vec![
                        Key::Ed25519([3; 32]),
                        Key::Secp256r1(b"x".to_vec()),
                        Key::Policy(other),
                    ]),
                ),
            ],
        ),
    ]
}

#[test]
fn every_v1_event_is_parsed() {
    let both = [("Persistent", Storage::Persistent), ("Temporary", Storage::Temporary)];
    for (made_key, key, public_key) in keys() {
        for (name, kept) in both {
            let never = (ScVal::Void, None);
            let times = [never, (ScVal::U64(u64::MAX), Some(Expiration::Unix(u64::MAX)))];
            for (time, expiration) in times {
                let all = limits().into_iter().map(|(made, read)| (made, Some(read)));
                for (made_limits, limits) in all.chain([(ScVal::Void, None)]) {
                    let val = val(&made_key, [wrapped(time.clone()), wrapped(made_limits)]);
                    let signer = Signer {
                        public_key: public_key.clone(),
                        expiration,
                        limits,
                        storage: kept,
                    };
                    let add = added(&made_key, val.clone(), storage(name));
                    assert_eq!(put(&add), Some((Kind::SignerAdded, key.clone(), signer.clone())));
                    let update = updated(&made_key, val, storage("Temporary"), storage(name));
                    assert_eq!(put(&update), Some((Kind::SignerUpdated, key.clone(), signer)));
                }
            }
            let gone = read(&removed(&made_key, storage(name)));
            assert_eq!(
                gone,
                Some(Event { kind: Kind::SignerRemoved, change: Change::Removed(key.clone()) })
            );
        }
    }
    for old in [None, Some([2; 32])] {
        let expected = Event { kind: Kind::Upgraded, change: Change::Upgraded };
        assert_eq!(read(&upgraded(old)), Some(expected));
    }
}

#[test]
fn every_legacy_event_is_parsed_in_its_three_layouts() {
    for (made_key, key, public_key) in keys() {
        for (action, kind) in [("add", Kind::Add), ("update", Kind::Update)] {
            let event = |rest: Vec<ScVal>| {
                let data = list([val(&made_key, rest), storage("Temporary")]);
                put(&legacy(action, &made_key, data))
            };
            let expected = |expiration: Option<u32>, limits| {
                let expiration = expiration.map(Expiration::Ledger);
                let signer = Signer {
                    public_key: public_key.clone(),
                    expiration,
                    limits,
                    storage: Storage::Temporary,
                };
                Some((kind, key.clone(), signer))
            };
            for (made, limits) in limits() {
                // Wrapped expiration, bare expiration, and no expiration.
                let limited = wrapped(made);
                for (time, expiration) in [(ScVal::Void, None), (number(9), Some(9))] {
                    let wrapped_time = event(vec![wrapped(time.clone()), limited.clone()]);
                    assert_eq!(wrapped_time, expected(expiration, Some(limits.clone())));
                    let bare_time = event(vec![time, limited.clone()]);
                    assert_eq!(bare_time, expected(expiration, Some(limits.clone())));
                }
                assert_eq!(event(vec![limited]), expected(None, Some(limits)));
            }
            // Unlimited signers exist only in the wrapped layout.
            let unlimited = wrapped(ScVal::Void);
            assert_eq!(event(vec![wrapped(number(9)), unlimited.clone()]), expected(Some(9), None));
            assert_eq!(event(vec![number(9), unlimited.clone()]), None);
            assert_eq!(event(vec![unlimited]), None);
            // UNIX seconds exist only in v1.
            assert_eq!(event(vec![wrapped(ScVal::U64(9)), wrapped(fields([]))]), None);
        }
        let gone = read(&legacy("remove", &made_key, ScVal::Void));
        assert_eq!(gone, Some(Event { kind: Kind::Remove, change: Change::Removed(key) }));
    }
}

#[test]
fn similar_events_of_other_contracts_are_ignored() {
    let key = ed25519(3);
    let good = unlimited(&key);
    let persistent = || storage("Persistent");
    let topics = |topics: &[ScVal], data: ScVal| Made::new(topics, data);
    let data = fields([("storage", persistent()), ("val", good.clone())]);
    let with_val = |val: ScVal| added(&key, val, persistent());
    let passkey_key = secp256r1(b"id");
    let wrong = [
        // Smart accounts.
        topics(&[symbol("signer_added"), number(1)], fields([("signer_id", number(1))])),
        topics(&[symbol("signer_removed"), number(1)], fields([("signer_id", number(1))])),
        topics(&[symbol("signer_added"), number(1)], data.clone()),
        // Oracles and timelocks.
        topics(&[symbol("signer_added"), address(&contract(1))], ScVal::Void),
        topics(&[symbol("signer_added")], fields([("signer", address(&contract(1)))])),
        // A multisig with the same tag.
        topics(&[symbol("sw_v1"), symbol("add")], bytes(&[1; 32])),
        topics(&[symbol("sw_v1"), symbol("init"), symbol("add")], bytes(&[1; 32])),
        topics(&[symbol("sw_v1"), symbol("upgrade")], number(1)),
        // Older layouts.
        topics(&[symbol("sw_v1"), symbol("add"), bytes(&[1; 20])], bytes(&[4; 65])),
        topics(
            &[symbol("sw_v1"), symbol("add_sig"), bytes(&[1; 20]), symbol("init")],
            ScVal::Bool(true),
        ),
        legacy("add", &key, good.clone()),
        legacy("add", &key, list([bytes(&[4; 65]), ScVal::Bool(true)])),
        // The name split into two symbols.
        topics(&[symbol("signer"), symbol("added")], data.clone()),
        // Almost valid events.
        legacy("added", &key, list([good.clone(), persistent()])),
        legacy("remove", &key, fields([])),
        legacy("add", &key, list([good.clone(), persistent(), persistent()])),
        topics(&[symbol("signer_added"), key.clone(), key.clone()], data.clone()),
        topics(&[symbol("signer_added"), list([symbol("Ed25519"), bytes(&[1; 31])])], data.clone()),
        topics(&[symbol("signer_added"), list([symbol("Ed25519")])], data.clone()),
        topics(&[symbol("signer_added"), list([symbol("Rsa"), bytes(&[1; 32])])], data.clone()),
        topics(&[symbol("signer_removed"), secp256r1(&[])], fields([("storage", persistent())])),
        topics(
            &[symbol("signer_removed"), secp256r1(&[1; 1024])],
            fields([("storage", persistent())]),
        ),
        topics(&[symbol("signer_removed"), key.clone()], ScVal::Void),
        topics(&[symbol("signer_added"), key.clone()], fields([("val", good.clone())])),
        topics(
            &[symbol("signer_added"), key.clone()],
            fields([("more", number(1)), ("storage", persistent()), ("val", good.clone())]),
        ),
        topics(
            &[symbol("signer_added"), key.clone()],
            fields([("storages", persistent()), ("val", good.clone())]),
        ),
        updated(&key, good.clone(), symbol("Persistent"), persistent()),
        added(&key, good.clone(), storage("Instance")),
        added(&key, good.clone(), list([symbol("Persistent"), number(1)])),
        with_val(unlimited(&passkey_key)),
        with_val(val(&key, [wrapped(ScVal::Void)])),
        with_val(val(&key, [ScVal::Void, wrapped(ScVal::Void)])),
        with_val(val(&key, [wrapped(number(1)), wrapped(ScVal::Void)])),
        with_val(val(&key, [wrapped(ScVal::Void), wrapped(list([]))])),
        with_val(val(&key, [wrapped(ScVal::Void), wrapped(ScVal::Map(None))])),
        with_val(val(&key, [wrapped(ScVal::Void), wrapped(map([(number(1), ScVal::Void)]))])),
        with_val(val(
            &key,
            [wrapped(ScVal::Void), wrapped(map([(address(&contract(1)), list([number(1)]))]))],
        )),
        added(
            &passkey_key,
            list([
                symbol("Secp256r1"),
                bytes(&[4; 64]),
                wrapped(ScVal::Void),
                wrapped(ScVal::Void),
            ]),
            persistent(),
        ),
        topics(&[symbol("upgraded"), number(1)], upgraded(None).data),
        topics(&[symbol("upgraded")], fields([("new_hash", bytes(&[1; 32]))])),
        topics(
            &[symbol("upgraded")],
            fields([("new_hash", bytes(&[1; 31])), ("old_hash", ScVal::Void)]),
        ),
        topics(
            &[symbol("upgraded")],
            fields([("new_hash", ScVal::Void), ("old_hash", ScVal::Void)]),
        ),
        topics(&[], ScVal::Void),
    ];
    for made in &wrong {
        assert_eq!(read(made), None, "{made:?}");
    }
}

#[test]
fn wallet_events_are_not_parsed_as_smart_account_events() {
    for (key, _, _) in keys() {
        let all = [
            added(&key, unlimited(&key), storage("Persistent")),
            updated(&key, unlimited(&key), storage("Persistent"), storage("Temporary")),
            removed(&key, storage("Persistent")),
            upgraded(None),
            legacy("add", &key, list([unlimited(&key), storage("Persistent")])),
            legacy("remove", &key, ScVal::Void),
        ];
        for made in &all {
            assert!(read(made).is_some(), "{made:?}");
            let topics = made.topics_xdr();
            let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
            assert_eq!(smart::event::recognise(&topics, &made.data_xdr()), None);
        }
    }
}

#[test]
fn event_names_have_the_documented_base64() {
    use base64::Engine;
    let table = [
        ("sw_v1", "AAAADwAAAAVzd192MQAAAA=="),
        ("add", "AAAADwAAAANhZGQA"),
        ("update", "AAAADwAAAAZ1cGRhdGUAAA=="),
        ("remove", "AAAADwAAAAZyZW1vdmUAAA=="),
        ("signer_added", "AAAADwAAAAxzaWduZXJfYWRkZWQ="),
        ("signer_updated", "AAAADwAAAA5zaWduZXJfdXBkYXRlZAAA"),
        ("signer_removed", "AAAADwAAAA5zaWduZXJfcmVtb3ZlZAAA"),
        ("upgraded", "AAAADwAAAAh1cGdyYWRlZA=="),
    ];
    for (name, base64) in table {
        let xdr = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
        assert_eq!(orrery_testkit::account_events::xdr(&symbol(name)), xdr, "{name}");
    }
}
