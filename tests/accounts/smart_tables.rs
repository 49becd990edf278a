//! Each row of the event table of smart accounts, in each layout, and its effect; and similar
//! events of other contracts.

use orrery::accounts::smart::SmartAccounts;
use orrery::accounts::smart::event::{Change, Event, Kind, Reference, Signer, Variant, recognise};
use orrery::accounts::smart::lookup::{self, Account};
use orrery::accounts::{AccountIndex, Emitted, Position, passkey};
use stellar_xdr::{ScAddress, ScVal};

use crate::memory::Memory;
use orrery_testkit::account_events::smart::{
    default_context, delegated, empty, event, external, ids, native, passkey, rule_by_ids,
    rule_inline,
};
use orrery_testkit::account_events::{Made, account, address, contract, contract_id, number};
use orrery_testkit::values::{bytes, fields, i128, list, map, string, symbol};

pub fn read(made: &Made) -> Option<Event> {
    let topics = made.topics_xdr();
    let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
    recognise(&topics, &made.data_xdr())
}

fn fold(events: &[Made]) -> Account {
    let mut memory = Memory::default();
    let emitted = (0..).zip(events).map(|(event_index, made)| {
        let topics = made.topics_xdr();
        let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
        let event = SmartAccounts::recognise(&topics, &made.data_xdr());
        Emitted {
            contract: contract_id(1),
            position: Position { ledger: 1, application_order: 1, event_index },
            event: event.unwrap_or_else(|| panic!("{made:?}")),
        }
    });
    SmartAccounts::apply_events(&mut memory, &emitted.collect::<Vec<_>>()).unwrap();
    lookup::account(&memory, &contract_id(1), usize::MAX).unwrap().unwrap().1
}

/// Rules with their id, signers (variant, address, credential id in hexadecimal) and the addresses
/// of their policies.
type Shown = Vec<(u32, Vec<(&'static str, ScAddress, Option<String>)>, Vec<ScAddress>)>;

fn shown(account: &Account) -> Shown {
    let rules = account.rules().map(|(id, rule)| {
        let signers = account
            .signers_of(rule)
            .map(|it| (it.variant.name(), it.address.clone(), it.credential.map(hex::encode)));
        let policies = account.policies_of(rule).map(|(policy, _)| policy.clone());
        (id, signers.collect(), policies.collect())
    });
    rules.collect()
}

fn without(map_of: &ScVal, key: &str) -> ScVal {
    let ScVal::Map(Some(entries)) = map_of else { panic!("a map") };
    let kept = entries.iter().filter(|entry| entry.key != symbol(key));
    map(kept.map(|entry| (entry.key.clone(), entry.val.clone())))
}

#[test]
fn every_event_is_parsed() {
    let (who, verifier) = (account(1), contract(2));
    let key = passkey(&[0xab; 20]);
    let signer = Signer::Known {
        variant: Variant::External,
        address: verifier.clone(),
        key: Some(key.clone()),
    };
    let rows: Vec<(Made, Kind, Change)> = vec![
        (event("context_rule_removed", 4, empty()), Kind::RuleRemoved, Change::RuleRemoved),
        (
            event("signer_deregistered", 4, empty()),
            Kind::SignerDeregistered,
            Change::SignerDeregistered,
        ),
        (
            event("policy_deregistered", 4, empty()),
            Kind::PolicyDeregistered,
            Change::PolicyDeregistered,
        ),
        // Layouts that refer to signers and policies by id.
        (
            event("signer_added", 4, fields([("signer_id", number(7))])),
            Kind::SignerAdded,
            Change::SignerAdded(Reference::Id(7)),
        ),
        (
            event("signer_removed", 4, fields([("signer_id", number(7))])),
            Kind::SignerRemoved,
            Change::SignerRemoved(Reference::Id(7)),
        ),
        (
            event("policy_removed", 4, fields([("policy_id", number(7))])),
            Kind::PolicyRemoved,
            Change::PolicyRemoved(Reference::Id(7)),
        ),
        (
            event("policy_added", 4, fields([("policy_id", number(7))])),
            Kind::PolicyAdded,
            Change::PolicyAdded { policy: Reference::Id(7), install_param: None },
        ),
        (
            event(
                "policy_added",
                4,
                fields([("install_param", i128(9)), ("policy_id", number(7))]),
            ),
            Kind::PolicyAdded,
            Change::PolicyAdded { policy: Reference::Id(7), install_param: Some(i128(9)) },
        ),
        (
            event("signer_registered", 7, fields([("signer", external(&verifier, &key))])),
            Kind::SignerRegistered,
            Change::SignerRegistered(signer.clone()),
        ),
        (
            event("policy_registered", 7, fields([("policy", address(&verifier))])),
            Kind::PolicyRegistered,
            Change::PolicyRegistered(verifier.clone()),
        ),
        // Layouts that contain signers and policies inline.
        (
            event("signer_added", 4, fields([("signer", external(&verifier, &key))])),
            Kind::SignerAdded,
            Change::SignerAdded(Reference::Inline(signer.clone())),
        ),
        (
            event("signer_removed", 4, fields([("signer", external(&verifier, &key))])),
            Kind::SignerRemoved,
            Change::SignerRemoved(Reference::Inline(signer)),
        ),
        (
            event(
                "policy_added",
                4,
                fields([("install_param", fields([("a", number(1))])), ("policy", address(&who))]),
            ),
            Kind::PolicyAdded,
            Change::PolicyAdded {
                policy: Reference::Inline(who.clone()),
                install_param: Some(fields([("a", number(1))])),
            },
        ),
        (
            event("policy_removed", 4, fields([("policy", address(&who))])),
            Kind::PolicyRemoved,
            Change::PolicyRemoved(Reference::Inline(who.clone())),
        ),
    ];
    for (made, kind, change) in rows {
        let id =
            if kind == Kind::SignerRegistered || kind == Kind::PolicyRegistered { 7 } else { 4 };
        assert_eq!(read(&made), Some(Event { kind, id, change }), "{made:?}");
    }
    // Rules whose optional `valid_until` is set, void, or absent.
    for (valid_until, expected) in
        [(Some(number(9)), Some(9)), (Some(ScVal::Void), None), (None, None)]
    {
        let with = |entries: Vec<(&str, ScVal)>| {
            let all = entries.into_iter().chain(valid_until.clone().map(|it| ("valid_until", it)));
            fields(all)
        };
        let rule = |type_: Option<ScVal>| {
            move |change: Change| match change {
                Change::RuleAdded { rule, .. } | Change::RuleUpdated(rule) => {
                    assert_eq!((rule.name.as_slice(), rule.valid_until), (&b"pay"[..], expected));
                    assert_eq!(rule.context_type, type_);
                }
                other => panic!("{other:?}"),
            }
        };
        for context in [
            default_context(),
            list([symbol("CallContract"), address(&verifier)]),
            list([symbol("CreateContract"), bytes(&[3; 32])]),
        ] {
            let by_ids = with(vec![
                ("context_type", context.clone()),
                ("name", string("pay")),
                ("policy_ids", ids(&[1, 2])),
                ("signer_ids", ids(&[])),
            ]);
            let inline = with(vec![
                ("context_type", context.clone()),
                ("name", string("pay")),
                ("policies", list([address(&who)])),
                ("signers", list([delegated(&who), native(&who), external(&verifier, &key)])),
            ]);
            let updated = with(vec![("context_type", context.clone()), ("name", string("pay"))]);
            for data in [by_ids, inline] {
                rule(Some(context.clone()))(
                    read(&event("context_rule_added", 1, data)).unwrap().change,
                );
            }
            rule(Some(context.clone()))(
                read(&event("context_rule_updated", 1, updated)).unwrap().change,
            );
        }
        let meta = with(vec![("name", string("pay"))]);
        rule(None)(read(&event("context_rule_meta_updated", 1, meta)).unwrap().change);
    }
}

#[test]
fn every_kind_of_signer_is_parsed_and_others_are_refused() {
    let (who, verifier) = (account(1), contract(2));
    let registered = |signer: ScVal| {
        read(&event("signer_registered", 0, fields([("signer", signer)]))).map(|it| it.change)
    };
    let known = |variant, address: &ScAddress, key: Option<&[u8]>| {
        let key = key.map(<[u8]>::to_vec);
        Some(Change::SignerRegistered(Signer::Known { variant, address: address.clone(), key }))
    };
    assert_eq!(registered(delegated(&who)), known(Variant::Delegated, &who, None));
    assert_eq!(registered(delegated(&verifier)), known(Variant::Delegated, &verifier, None));
    assert_eq!(registered(native(&who)), known(Variant::Native, &who, None));
    assert_eq!(
        registered(external(&verifier, b"k")),
        known(Variant::External, &verifier, Some(b"k"))
    );
    let first = list([symbol("Delegated"), address(&verifier), bytes(b"k")]);
    assert_eq!(registered(first), known(Variant::Delegated, &verifier, Some(b"k")));
    let new = list([symbol("Quorum"), number(1), number(2)]);
    assert_eq!(registered(new.clone()), Some(Change::SignerRegistered(Signer::Opaque(new))));
    for wrong in [
        list([symbol("Delegated")]),
        list([symbol("Delegated"), bytes(b"k")]),
        list([symbol("Delegated"), address(&who), number(1)]),
        list([symbol("External"), address(&who)]),
        list([symbol("External"), address(&who), string("k")]),
        list([symbol("External"), address(&who), bytes(b"k"), number(1)]),
        list([symbol("Native"), address(&who), bytes(b"k")]),
        list([string("Native"), address(&who)]),
        list([]),
        ScVal::Vec(None),
        address(&who),
    ] {
        assert_eq!(registered(wrong.clone()), None, "{wrong:?}");
    }
}

#[test]
fn similar_events_of_other_contracts_are_ignored() {
    let (who, key) = (contract(1), list([symbol("Ed25519"), bytes(&[1; 32])]));
    let rule = rule_by_ids(1, &[], &[]).data;
    let wrong = [
        Made::new(
            [symbol("signer_added"), key.clone()],
            fields([("storage", number(1)), ("val", number(1))]),
        ),
        Made::new([symbol("signer_removed"), key.clone()], fields([("storage", number(1))])),
        Made::new([symbol("sw_v1"), symbol("add"), key.clone()], number(1)),
        Made::new([symbol("signer_added")], list([number(1), number(2)])),
        Made::new([symbol("signer_added"), address(&who)], number(1)),
        Made::new([symbol("signer_added"), ScVal::U64(1)], address(&who)),
        Made::new([symbol("signer_added"), bytes(&[1; 32])], empty()),
        Made::new(
            [symbol("signer_added")],
            fields([("signer", address(&who)), ("timestamp", ScVal::U64(1))]),
        ),
        Made::new([symbol("signer_added"), number(1)], fields([("signer", address(&who))])),
        Made::new([symbol("signer"), symbol("added")], empty()),
        Made::new(
            [symbol("simple_enforced"), address(&who)],
            fields([("context_rule_id", number(1))]),
        ),
        Made::new([string("signer_added"), number(1)], fields([("signer_id", number(1))])),
        Made::new(
            [symbol("signer_added"), number(1), number(1)],
            fields([("signer_id", number(1))]),
        ),
        event("signer_added", 1, ScVal::Map(None)),
        event("signer_added", 1, list([number(1)])),
        event("signer_added", 1, fields([("signer_id", ScVal::U64(1))])),
        event("policy_added", 1, fields([("policy", bytes(&[1; 32]))])),
        event("policy_registered", 1, fields([("policy_id", number(1))])),
        event("signer_deregistered", 1, number(1)),
        event("signer_deregistered", 1, list([number(1)])),
        event("signer_deregistered", 1, ScVal::Vec(None)),
        event("context_rule_added", 1, without(&rule, "name")),
        event("context_rule_added", 1, without(&rule, "context_type")),
        event("context_rule_added", 1, without(&rule, "signer_ids")),
        event("context_rule_added", 1, without(&rule, "policy_ids")),
        event("context_rule_meta_updated", 1, fields([("name", symbol("pay"))])),
        event(
            "context_rule_meta_updated",
            1,
            fields([("name", string("pay")), ("valid_until", ScVal::U64(1))]),
        ),
        event(
            "context_rule_updated",
            1,
            fields([("context_type", list([])), ("name", string("pay"))]),
        ),
    ];
    for made in &wrong {
        assert_eq!(read(made), None, "{made:?}");
    }
    // All forms of empty data, and unknown keys, are accepted.
    for data in [empty(), ScVal::Void, list([]), fields([("reason", number(1))])] {
        assert!(read(&event("signer_deregistered", 1, data)).is_some());
    }
    let more = fields([("signer_id", number(1)), ("weight", number(1))]);
    assert!(read(&event("signer_added", 1, more)).is_some());
}

#[test]
fn smart_account_events_are_not_parsed_as_wallet_events() {
    let (who, key) = (contract(1), passkey(b"id"));
    let all = [
        rule_by_ids(1, &[1], &[1]),
        rule_inline(1, &[external(&who, &key)], &[]),
        event("signer_added", 1, fields([("signer_id", number(1))])),
        event("signer_added", 1, fields([("signer", external(&who, &key))])),
        event("signer_removed", 1, fields([("signer_id", number(1))])),
    ];
    for made in &all {
        assert!(read(made).is_some());
        let topics = made.topics_xdr();
        let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
        assert_eq!(passkey::event::recognise(&topics, &made.data_xdr()), None);
    }
}

#[test]
fn signers_and_policies_can_be_added_and_removed_by_id() {
    let (verifier, who, policy) = (contract(2), account(1), contract(3));
    let key = passkey(&[0xab; 20]);
    let credential = Some("ab".repeat(20));
    let passkey_signer = ("External", verifier.clone(), credential);
    let register = |id, signer| event("signer_registered", id, fields([("signer", signer)]));
    let add = |rule, id| event("signer_added", rule, fields([("signer_id", number(id))]));
    let remove = |rule, id| event("signer_removed", rule, fields([("signer_id", number(id))]));
    let mut events = vec![
        register(0, external(&verifier, &key)),
        event("policy_registered", 0, fields([("policy", address(&policy))])),
        rule_by_ids(0, &[0], &[0]),
        register(1, delegated(&who)),
        add(0, 1),
        rule_by_ids(1, &[0], &[]),
    ];
    let delegated_signer = ("Delegated", who, None);
    let both = vec![passkey_signer.clone(), delegated_signer.clone()];
    assert_eq!(
        shown(&fold(&events)),
        [(0, both, vec![policy.clone()]), (1, vec![passkey_signer.clone()], vec![]),]
    );
    // When the last reference to a signer goes, its deregistration precedes its removal.
    events.extend([event("signer_deregistered", 1, empty()), remove(0, 1)]);
    // Removed from one of the two rules that have this signer.
    events.push(remove(1, 0));
    assert_eq!(
        shown(&fold(&events)),
        [(0, vec![passkey_signer.clone()], vec![policy.clone()]), (1, vec![], vec![]),]
    );
    // An unknown rule, and a rule that was removed.
    events.extend([add(9, 0), event("context_rule_removed", 1, empty()), add(1, 0)]);
    // A signer that is not registered yet.
    events.push(add(0, 5));
    assert_eq!(shown(&fold(&events)), [(0, vec![passkey_signer.clone()], vec![policy.clone()])]);
    events.push(register(5, native(&policy)));
    let later = ("Native", policy.clone(), None);
    assert_eq!(shown(&fold(&events)), [(0, vec![passkey_signer, later], vec![policy.clone()])]);
    // A rule that is added again replaces its earlier state.
    events.push(rule_by_ids(0, &[], &[0]));
    assert_eq!(shown(&fold(&events)), [(0, vec![], vec![policy])]);
}

#[test]
fn an_upgraded_account_stays_one_account() {
    let (verifier, who, policy) = (contract(2), account(1), contract(3));
    let mut events = vec![
        rule_inline(
            0,
            &[delegated(&who), external(&verifier, b"key")],
            std::slice::from_ref(&policy),
        ),
        // The upgraded contract refers by id to the signer and the policy that were inline.
        event("signer_registered", 0, fields([("signer", delegated(&who))])),
        event("signer_added", 0, fields([("signer_id", number(0))])),
        event("policy_registered", 0, fields([("policy", address(&policy))])),
        event("policy_added", 0, fields([("policy_id", number(0))])),
    ];
    let keyed = ("External", verifier, Some(hex::encode(b"key")));
    let expected = vec![("Delegated", who, None), keyed.clone()];
    assert_eq!(shown(&fold(&events)), [(0, expected, vec![policy])]);
    events.extend([
        event("signer_deregistered", 0, empty()),
        event("signer_removed", 0, fields([("signer_id", number(0))])),
        event("policy_removed", 0, fields([("policy_id", number(0))])),
    ]);
    assert_eq!(shown(&fold(&events)), [(0, vec![keyed], vec![])]);
}

#[test]
fn rule_updates_change_only_the_given_fields() {
    let named = |kind: &str, context: Option<ScVal>, name: &str, until: Option<u32>| {
        let context = context.map(|it| ("context_type", it));
        let until = until.map(|it| ("valid_until", number(it)));
        event(kind, 0, fields([("name", string(name))].into_iter().chain(context).chain(until)))
    };
    let other = list([symbol("CallContract"), address(&contract(1))]);
    let mut events = vec![rule_inline(0, &[], &[])];
    let meta = |events: &[Made]| fold(events).rules().next().unwrap().1.meta.clone();
    assert_eq!(meta(&events).valid_until, Some(99));
    events.push(named("context_rule_meta_updated", None, "b", None));
    let now = meta(&events);
    assert_eq!(
        (now.name, now.valid_until, now.context_type),
        (b"b".to_vec(), None, Some(default_context()))
    );
    events.push(named("context_rule_updated", Some(other.clone()), "c", Some(5)));
    let now = meta(&events);
    assert_eq!(
        (now.name, now.valid_until, now.context_type),
        (b"c".to_vec(), Some(5), Some(other))
    );
}

#[test]
fn event_names_have_the_documented_base64() {
    use base64::Engine;
    let table = [
        ("context_rule_added", "AAAADwAAABJjb250ZXh0X3J1bGVfYWRkZWQAAA=="),
        ("context_rule_updated", "AAAADwAAABRjb250ZXh0X3J1bGVfdXBkYXRlZA=="),
        ("context_rule_meta_updated", "AAAADwAAABljb250ZXh0X3J1bGVfbWV0YV91cGRhdGVkAAAA"),
        ("context_rule_removed", "AAAADwAAABRjb250ZXh0X3J1bGVfcmVtb3ZlZA=="),
        ("signer_added", "AAAADwAAAAxzaWduZXJfYWRkZWQ="),
        ("signer_removed", "AAAADwAAAA5zaWduZXJfcmVtb3ZlZAAA"),
        ("signer_registered", "AAAADwAAABFzaWduZXJfcmVnaXN0ZXJlZAAAAA=="),
        ("signer_deregistered", "AAAADwAAABNzaWduZXJfZGVyZWdpc3RlcmVkAA=="),
        ("policy_added", "AAAADwAAAAxwb2xpY3lfYWRkZWQ="),
        ("policy_removed", "AAAADwAAAA5wb2xpY3lfcmVtb3ZlZAAA"),
        ("policy_registered", "AAAADwAAABFwb2xpY3lfcmVnaXN0ZXJlZAAAAA=="),
        ("policy_deregistered", "AAAADwAAABNwb2xpY3lfZGVyZWdpc3RlcmVkAA=="),
    ];
    for (name, base64) in table {
        let xdr = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
        assert_eq!(orrery_testkit::account_events::xdr(&symbol(name)), xdr, "{name}");
        let known = Kind::ALL.iter().filter(|kind| kind.name() == name).count();
        assert_eq!(known, 1, "{name}");
    }
    assert_eq!(
        orrery_testkit::account_events::xdr(&empty()),
        [0, 0, 0, 17, 0, 0, 0, 1, 0, 0, 0, 0]
    );
}
