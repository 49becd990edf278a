//! Rejected parameters and the exact error messages.

use serde_json::{Value, json};

use crate::world::{Chain, World};

fn refused(world: &World, method: &str, params: &Value) -> (i64, String) {
    match world.call(method, params) {
        Ok(_) => panic!("{method} {params} is answered"),
        Err(error) => {
            let data = &error["data"];
            assert!(data.is_null() || data.is_string(), "the Python client takes text only");
            (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
        }
    }
}

#[test]
fn invalid_parameters_of_pages_are_refused() {
    let chain = Chain::made();
    let world = World::of(&chain);
    let of = |raw: &Vec<u8>| orrery::decode::header(raw).unwrap().sequence.0;
    let (a, b) = (of(&chain.ledgers[0]), of(chain.ledgers.last().unwrap()));
    let outside = |start: u32| {
        format!(
            "start ledger ({start}) must be between the oldest ledger: {a} and the latest ledger: {b} for this rpc \
             instance"
        )
    };
    let both = format!("startLedger ({a}) and cursor (7) cannot both be set");
    let limit = "limit must not exceed 200";
    let format = "got 'xml': expected base64, json for optional 'xdrFormat'";
    for method in ["getLedgers", "getTransactions"] {
        let is_refused = |params: Value, message: &str| {
            let error = refused(&world, method, &params);
            assert_eq!(error, (-32600, message.to_owned()), "{method} {params}");
        };
        is_refused(json!({ "startLedger": a, "pagination": { "cursor": "7" } }), &both);
        for start in [0, a - 1, b + 1, u32::MAX] {
            is_refused(json!({ "startLedger": start }), &outside(start));
            is_refused(json!({ "startLedger": start, "pagination": {} }), &outside(start));
        }
        for absent in [json!({}), Value::Null, json!({ "startLedger": null, "pagination": null })] {
            is_refused(absent, &outside(0));
        }
        is_refused(json!({ "pagination": { "cursor": "", "limit": null } }), &outside(0));
        for most in [201, 10_000, u64::from(u32::MAX), u64::MAX] {
            is_refused(json!({ "startLedger": a, "pagination": { "limit": most } }), limit);
        }
        is_refused(json!({ "pagination": { "cursor": "7", "limit": 201 } }), limit);
        is_refused(json!({ "startLedger": a, "xdrFormat": "xml" }), format);
        is_refused(
            json!({ "startLedger": a, "xdrFormat": "JSON" }),
            &format.replace("xml", "JSON"),
        );
        // The error is the first problem of the pagination, followed by that of the format.
        let much = json!({ "limit": 201 });
        is_refused(
            json!({ "startLedger": a, "pagination": much, "xdrFormat": "xml" }),
            &format!("{limit}\n{format}"),
        );
        is_refused(
            json!({ "startLedger": b + 1, "pagination": much, "xdrFormat": "xml" }),
            &format!("{}\n{format}", outside(b + 1)),
        );
        is_refused(json!({ "startLedger": 0, "pagination": much }), &outside(0));
        let much = json!({ "limit": 201, "cursor": "7" });
        is_refused(
            json!({ "startLedger": a, "pagination": much, "xdrFormat": "xml" }),
            &format!("{both}\n{format}"),
        );
        // The format is checked before the cursor.
        is_refused(json!({ "pagination": { "cursor": "x" }, "xdrFormat": "xml" }), format);
        for cursor in [
            "x",
            "-1",
            "1.5",
            "0x10",
            " 5",
            "9223372036854775808",
            "18446744073709551615",
            "99999999999999999999",
        ] {
            let request = json!({ "pagination": { "cursor": cursor } });
            assert_eq!(refused(&world, method, &request).0, -32602, "{method} {cursor}");
        }
        for params in [json!([a]), json!({ "startLedger": "5" }), json!({ "startLedger": -1 })] {
            let error = refused(&world, method, &params);
            assert_eq!(error, (-32602, "invalid parameters".to_owned()), "{params}");
        }
        let params = json!({ "startLedger": a, "xdrFormat": "", "what": [1] });
        assert!(world.call(method, &params).is_ok());
    }
    for cursor in [0, a - 2, b, b + 1, u32::MAX] {
        let request = json!({ "pagination": { "cursor": cursor.to_string() } });
        let message = format!(
            "cursor ('{cursor}') must be between the oldest ledger: {a} and the latest ledger: {b} for this rpc \
             instance"
        );
        assert_eq!(refused(&world, "getLedgers", &request), (-32602, message));
    }
    let request = json!({ "pagination": { "cursor": (a - 1).to_string() } });
    assert_eq!(world.call("getLedgers", &request).unwrap()["ledgers"][0]["sequence"], a);
    let cursor = (u64::from(a - 1) << 32).to_string();
    let request = json!({ "pagination": { "cursor": cursor } });
    let message = format!("database does not contain metadata for ledger: {}", a - 1);
    assert_eq!(refused(&world, "getTransactions", &request), (-32602, message));
}

#[test]
fn invalid_hashes_are_refused() {
    let chain = Chain::made();
    let world = World::of(&chain);
    for (hash, length) in
        [("", 0), ("ab", 2), (&"a".repeat(63), 63), (&"a".repeat(65), 65), (&"ä".repeat(33), 66)]
    {
        let error = refused(&world, "getTransaction", &json!({ "hash": hash }));
        assert_eq!(error, (-32602, format!("unexpected hash length ({length})")));
    }
    for absent in [json!({}), json!({ "hash": null }), Value::Null] {
        let error = refused(&world, "getTransaction", &absent);
        assert_eq!(error, (-32602, "unexpected hash length (0)".to_owned()));
    }
    for hash in ["x".repeat(64), "ä".repeat(32), format!("0x{}", "a".repeat(62))] {
        let (code, message) = refused(&world, "getTransaction", &json!({ "hash": hash }));
        assert_eq!(code, -32602);
        assert!(message.starts_with("incorrect hash: "), "{message}");
    }
    let request = json!({ "hash": "a", "xdrFormat": "xml" });
    let format = "got 'xml': expected base64, json for optional 'xdrFormat'";
    assert_eq!(refused(&world, "getTransaction", &request), (-32602, format.to_owned()));
    let hash = "AB".repeat(32);
    for format in [json!(null), json!(""), json!("base64"), json!("json")] {
        let request = json!({ "hash": hash, "xdrFormat": format });
        let answer = world.call("getTransaction", &request).unwrap();
        assert_eq!(answer["status"], "NOT_FOUND");
        assert_eq!(answer["txHash"], hash, "as it was given");
        assert_eq!(answer["events"], json!({}));
        assert_eq!(answer["createdAt"], "0");
        assert_eq!(answer.as_object().unwrap().len(), 11, "{answer}");
    }
}

/// The reference reads positions as signed numbers of 64 bits.
#[test]
fn positions_beyond_signed_numbers_are_malformed() {
    let chain = Chain::made();
    let world = World::of(&chain);
    for toid in ["9223372036854775808", "18446744073709551615"] {
        let cursor = format!("{toid}-0000000000");
        let error =
            world.call("getEvents", &json!({ "pagination": { "cursor": cursor } })).unwrap_err();
        let wanted = json!({
            "code": -32602,
            "message": "invalid parameters",
            "data": format!("invalid event id {cursor}"),
        });
        assert_eq!(error, wanted);
    }
    // The greatest one is read, and lies beyond the newest ledger.
    let greatest = i64::MAX;
    let request = json!({ "pagination": { "cursor": format!("{greatest}-0000000000") } });
    assert_eq!(refused(&world, "getEvents", &request).0, -32600);
    let request = json!({ "pagination": { "cursor": greatest.to_string() } });
    let page = world.call("getTransactions", &request).unwrap();
    assert_eq!(page["cursor"], greatest.to_string());
}

#[test]
fn unknown_methods_are_refused() {
    let world = World::empty(&Chain::made().network);
    for method in ["getLedgerEntry", "rpc.discover", "getledgers", ""] {
        let error = world.call(method, &Value::Null).unwrap_err();
        let wanted = json!({ "code": -32601, "message": "method not found", "data": method });
        assert_eq!(error, wanted);
    }
}

/// Lists stand for parameters by position, which no method has, wherever an object is expected.
#[test]
fn lists_in_place_of_objects_are_refused() {
    let chain = Chain::made();
    let world = World::of(&chain);
    let first = orrery::decode::header(&chain.ledgers[0]).unwrap().sequence.0;
    for method in ["getHealth", "getNetwork", "getVersionInfo", "getLatestLedger", "getFeeStats"] {
        for params in [json!([]), json!([1]), json!([{}]), json!(7), json!("x")] {
            let error = refused(&world, method, &params);
            assert_eq!(error, (-32602, "invalid parameters".to_owned()), "{method} {params}");
        }
        for params in [json!(null), json!({}), json!({ "more": 1 })] {
            let answered = world.call(method, &params);
            let code = answered.err().map(|error| error["code"].as_i64().unwrap());
            assert_ne!(code, Some(-32602), "{method} {params}");
        }
    }
    for method in ["getLedgers", "getTransactions", "getEvents"] {
        for pagination in [json!([]), json!([null, 1]), json!(["7"]), json!("7"), json!(1)] {
            let params = json!({ "startLedger": first, "pagination": pagination });
            assert_eq!(refused(&world, method, &params).0, -32602, "{method} {params}");
        }
        let params = json!({ "startLedger": first, "pagination": null });
        assert!(world.call(method, &params).is_ok(), "{method}");
    }
    let params = json!({ "startLedger": first, "filters": [["contract"]] });
    assert_eq!(refused(&world, "getEvents", &params).0, -32602);
    assert!(world.call("getEventsV2", &json!({ "filters": [[]] })).is_err());
}
