//! Every type that a contract can have, from a contract call to a query's response: values come out
//! unchanged.

use serde_json::{Value, json};
use stellar_xdr::{
    AccountId, Duration, Int256Parts, MuxedContract, MuxedEd25519Account, PublicKey, ScAddress,
    ScError, ScVal, TimePoint, UInt256Parts, Uint256,
};

use crate::network::{Chain, address, built};
use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::values::{bytes, fields, i128, list, map, string, symbol, u128};

const SAFE: u64 = (1 << 53) - 1;

/// Creates the contract `types` on `chain` and a service on which its program is deployed.
fn begin(chain: &mut Chain) -> (orrery::domain::ContractId, Scene, Service, Owner) {
    let types = chain.create("types", Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let code = built("types_program");
    let body = json!({ "code": code, "project_name": "types", "contracts": [types.to_string()] });
    owner.post("deploy", &body);
    (types, scene, service, owner)
}

fn u256(high: u128, low: u128) -> ScVal {
    ScVal::U256(UInt256Parts {
        hi_hi: (high >> 64) as u64,
        hi_lo: high as u64,
        lo_hi: (low >> 64) as u64,
        lo_lo: low as u64,
    })
}

fn i256(high: i128, low: u128) -> ScVal {
    ScVal::I256(Int256Parts {
        hi_hi: (high >> 64) as i64,
        hi_lo: high as u64,
        lo_hi: (low >> 64) as u64,
        lo_lo: low as u64,
    })
}

/// The contract's struct `Numbers`: one number per integer type.
#[derive(Clone, Copy)]
struct Numbers {
    flag: bool,
    u32: u32,
    i32: i32,
    u64: u64,
    i64: i64,
    u128: u128,
    i128: i128,
    u256: (u128, u128),
    i256: (i128, u128),
}

impl Numbers {
    fn argument(&self) -> ScVal {
        fields([
            ("flag", ScVal::Bool(self.flag)),
            ("unsigned_32", ScVal::U32(self.u32)),
            ("signed_32", ScVal::I32(self.i32)),
            ("unsigned_64", ScVal::U64(self.u64)),
            ("signed_64", ScVal::I64(self.i64)),
            ("point_in_time", ScVal::Timepoint(TimePoint(self.u64))),
            ("period", ScVal::Duration(Duration(self.u64))),
            ("unsigned_128", u128(self.u128)),
            ("signed_128", i128(self.i128)),
            ("unsigned_256", u256(self.u256.0, self.u256.1)),
            ("signed_256", i256(self.i256.0, self.i256.1)),
        ])
    }

    /// The expected row, with the 256-bit numbers in decimal, computed independently.
    fn row(&self, unsigned_256: &str, signed_256: &str) -> Value {
        let safe = u128::from(SAFE);
        let unsigned = |number: u128| match number {
            number if number <= safe => json!(number as u64),
            number => json!(number.to_string()),
        };
        let signed = |number: i128| match number {
            number if number.unsigned_abs() <= safe => json!(number as i64),
            number => json!(number.to_string()),
        };
        json!({
            "flag": self.flag,
            "unsigned_32": self.u32,
            "signed_32": self.i32,
            "unsigned_64": unsigned(self.u64.into()),
            "signed_64": signed(self.i64.into()),
            "point_in_time": unsigned(self.u64.into()),
            "period": unsigned(self.u64.into()),
            "unsigned_128": unsigned(self.u128),
            "signed_128": signed(self.i128),
            "unsigned_256": unsigned_256,
            "signed_256": signed_256,
        })
    }
}

/// Removes the columns that every table has from a row.
fn own(row: &Value) -> Value {
    let injected = ["contract_id", "transaction"];
    let members = row.as_object().unwrap().iter();
    let own = members.filter(|(name, _)| !name.starts_with('_') && !injected.contains(&&***name));
    Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn own_rows(owner: &Owner, sql: &str) -> Vec<Value> {
    owner.query(sql).iter().map(own).collect()
}

const GREATEST_U256: &str =
    "115792089237316195423570985008687907853269984665640564039457584007913129639935";
const GREATEST_I256: &str =
    "57896044618658097711785492504343953926634992332820282019728792003956564819967";
const LEAST_I256: &str =
    "-57896044618658097711785492504343953926634992332820282019728792003956564819968";

#[test]
fn minimum_and_maximum_numbers_round_trip() {
    let mut chain = Chain::new();
    let (types, scene, _service, owner) = begin(&mut chain);
    let greatest = Numbers {
        flag: true,
        u32: u32::MAX,
        i32: i32::MAX,
        u64: u64::MAX,
        i64: i64::MAX,
        u128: u128::MAX,
        i128: i128::MAX,
        u256: (u128::MAX, u128::MAX),
        i256: (i128::MAX, u128::MAX),
    };
    let least = Numbers {
        flag: false,
        u32: 0,
        i32: i32::MIN,
        u64: 0,
        i64: i64::MIN,
        u128: 0,
        i128: i128::MIN,
        u256: (0, 0),
        i256: (i128::MIN, 0),
    };
    let around = |number: u64, sign: i64| Numbers {
        flag: true,
        u32: 1,
        i32: -1,
        u64: number,
        i64: sign * number as i64,
        u128: number.into(),
        i128: i128::from(sign) * i128::from(number),
        u256: (0, number.into()),
        i256: (i128::from(sign.min(0)), (i128::from(sign) * i128::from(number)) as u128),
    };
    let wanted = [
        (greatest, GREATEST_U256, GREATEST_I256),
        (least, "0", LEAST_I256),
        (around(SAFE, 1), "9007199254740991", "9007199254740991"),
        (around(SAFE, -1), "9007199254740991", "-9007199254740991"),
        (around(SAFE + 1, 1), "9007199254740992", "9007199254740992"),
        (around(SAFE + 1, -1), "9007199254740992", "-9007199254740992"),
        (around(1, -1), "1", "-1"),
    ];
    for (numbers, _, _) in &wanted {
        chain.call(types, "numbers", vec![numbers.argument()]);
    }
    chain.import_into(&scene);
    owner.wait_for_rows("types_numbers", wanted.len());
    let expected: Vec<Value> = wanted.iter().map(|(it, u, i)| it.row(u, i)).collect();
    assert_eq!(own_rows(&owner, "select * from types_numbers order by _ledger"), expected);

    // With `numbers` set to `string`, integers wider than 32 bits are strings.
    let query = json!({
        "query": "select signed_64, unsigned_128, signed_32 from types_numbers order by _ledger",
        "numbers": "string",
    });
    let rows = owner.post("query", &query);
    assert_eq!(rows[6], json!({ "signed_64": "-1", "unsigned_128": "1", "signed_32": -1 }));
    let kinds = owner.query("describe types_numbers");
    let kind = |name: &str| {
        let column = kinds.iter().find(|it| it["column_name"] == name);
        column.map(|it| it["column_type"].as_str().unwrap().to_owned()).unwrap_or_default()
    };
    for (name, expected) in [
        ("flag", "BOOLEAN"),
        ("unsigned_32", "UINTEGER"),
        ("signed_32", "INTEGER"),
        ("unsigned_64", "UBIGINT"),
        ("point_in_time", "UBIGINT"),
        ("period", "UBIGINT"),
        ("signed_64", "BIGINT"),
        ("unsigned_128", "UHUGEINT"),
        ("signed_128", "HUGEINT"),
        ("unsigned_256", "VARCHAR"),
        ("signed_256", "VARCHAR"),
    ] {
        assert_eq!(kind(name), expected, "{name}");
    }
    let runs = owner.get("1/executions?limit=50");
    let runs = runs.as_array().unwrap();
    assert_eq!(runs.len(), wanted.len());
    assert!(runs.iter().all(|run| run["fidelity"] == "exact"), "{runs:?}");
}

#[test]
fn sums_of_large_numbers_are_exact_or_refused() {
    let mut chain = Chain::new();
    let (types, scene, _service, owner) = begin(&mut chain);
    let zero = Numbers {
        flag: false,
        u32: 0,
        i32: 0,
        u64: 0,
        i64: 0,
        u128: 0,
        i128: 0,
        u256: (0, 0),
        i256: (0, 0),
    };
    // The first two add up to `i128::MAX`; the third makes the sum overflow.
    let amounts = [1_i128 << 126, (1 << 126) - 1, 1, -12_345_678_901_234_567_890_123_456_789];
    for (number, amount) in (0..).zip(amounts) {
        let numbers = Numbers { i128: amount, u128: 1 << 100, u32: number, ..zero };
        chain.call(types, "numbers", vec![numbers.argument()]);
    }
    chain.import_into(&scene);
    owner.wait_for_rows("types_numbers", amounts.len());
    let sum = |condition: &str| {
        let sql = format!(
            "select sum(signed_128) s, sum(unsigned_32) n from types_numbers where {condition}"
        );
        owner.ask("POST", "query", Some(&json!({ "query": sql })))
    };
    assert_eq!(sum("unsigned_32 < 2").1[0]["s"], i128::MAX.to_string());
    assert_eq!(sum("unsigned_32 = 2").1, json!([{ "s": 1, "n": 2 }]));
    let both = (amounts[2] + amounts[3]).to_string();
    assert_eq!(sum("unsigned_32 > 1").1[0]["s"], both);
    let (status, refusal) = sum("unsigned_32 < 3");
    assert_eq!(status, 422, "{refusal}");
}

#[test]
fn texts_bytes_and_addresses_round_trip() {
    let mut chain = Chain::new();
    let (types, scene, _service, owner) = begin(&mut chain);
    let key = Uint256([7; 32]);
    let account = ScAddress::Account(AccountId(PublicKey::PublicKeyTypeEd25519(key.clone())));
    let muxed = ScAddress::MuxedAccount(MuxedEd25519Account { id: u64::MAX, ed25519: key });
    let argument = |address: ScVal, muxed: ScVal, string: ScVal, content: &[u8]| {
        fields([
            ("address", address),
            ("muxed", muxed),
            ("symbol", symbol("A_symbol_with_all_of_its_letters")),
            ("string", string),
            ("bytes", bytes(content)),
            ("bytes_4", bytes(&[0, 1, 254, 255])),
            ("bytes_32", bytes(&[171; 32])),
        ])
    };
    let all: Vec<u8> = (0..=255).collect();
    let first = argument(
        ScVal::Address(account.clone()),
        ScVal::Address(muxed.clone()),
        string("quotes ' and \" and \\, grün, \u{1f980}\n\0end"),
        &all,
    );
    let broken = ScVal::String(stellar_xdr::ScString(b"gr\xffn".to_vec().try_into().unwrap()));
    let second = argument(address(types), ScVal::Address(account.clone()), broken, &[]);
    // Muxed contract addresses: CAP-84.
    let contract_id = stellar_xdr::ContractId(stellar_xdr::Hash(types.0));
    let of_contract = ScAddress::MuxedContract(MuxedContract { id: u64::MAX - 1, contract_id });
    let third = argument(address(types), ScVal::Address(of_contract.clone()), string(""), &[]);
    for argument in [first, second, third] {
        chain.call(types, "texts", vec![argument]);
    }
    chain.import_into(&scene);
    owner.wait_for_rows("types_texts", 3);
    let hex: String = all.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = |address: &str, muxed: &str, string: &str, bytes: &str| {
        json!({
            "address": address, "muxed": muxed, "symbol": "A_symbol_with_all_of_its_letters",
            "string": string, "bytes": bytes, "bytes_4": "0001feff", "bytes_32": "ab".repeat(32),
        })
    };
    let [account, muxed, of_contract] = [account, muxed, of_contract].map(|it| it.to_string());
    let letters = [&account, &muxed, &of_contract].map(|text| &text[..1]);
    assert_eq!(letters, ["G", "M", "W"]);
    assert_eq!(
        own_rows(&owner, "select * from types_texts order by _ledger"),
        [
            expected(&account, &muxed, "quotes ' and \" and \\, grün, \u{1f980}\n\0end", &hex),
            expected(&types.to_string(), &account, "gr\\xffn", ""),
            expected(&types.to_string(), &of_contract, "", ""),
        ]
    );
}

fn place(x: i32, y: i64, label: &str) -> ScVal {
    fields([("x", ScVal::I32(x)), ("y", ScVal::I64(y)), ("label", symbol(label))])
}

#[test]
fn options_are_null_or_their_value() {
    let mut chain = Chain::new();
    let (types, scene, _service, owner) = begin(&mut chain);
    let names = [
        "maybe_flag",
        "maybe_small",
        "maybe_large",
        "maybe_address",
        "maybe_string",
        "maybe_bytes",
        "maybe_list",
        "maybe_place",
    ];
    let argument = |values: [ScVal; 8]| {
        map(names.iter().zip(values).map(|(name, value)| (symbol(name), value)))
    };
    let full = [
        ScVal::Bool(false),
        ScVal::U32(0),
        i128(i128::MIN),
        address(types),
        string(""),
        bytes(&[]),
        list([]),
        place(-5, i64::MIN, "here"),
    ];
    chain.call(types, "optionals", vec![argument(full)]);
    chain.call(types, "optionals", vec![argument(names.map(|_| ScVal::Void))]);
    chain.import_into(&scene);
    owner.wait_for_rows("types_optionals", 2);
    let expected = json!({
        "maybe_flag": false, "maybe_small": 0, "maybe_large": i128::MIN.to_string(),
        "maybe_address": types.to_string(), "maybe_string": "", "maybe_bytes": "", "maybe_list": [],
        "maybe_place": { "x": -5, "y": i64::MIN.to_string(), "label": "here" },
    });
    let nothing: serde_json::Map<_, _> =
        names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
    assert_eq!(
        own_rows(&owner, "select * from types_optionals order by _ledger"),
        [expected, Value::Object(nothing)]
    );
    let inside = "select maybe_place.y + 1 y from types_optionals where maybe_place is not null";
    assert_eq!(owner.query(inside), [json!({ "y": (i64::MIN + 1).to_string() })]);
}

#[test]
fn lists_and_maps_round_trip() {
    let mut chain = Chain::new();
    let (types, scene, _service, owner) = begin(&mut chain);
    let who = chain.accounts()[0].clone();
    let numbers = |numbers: &[u32]| list(numbers.iter().map(|number| ScVal::U32(*number)));
    let argument = fields([
        ("small", numbers(&[3, 1, u32::MAX])),
        ("large", list([i128(i128::MAX), i128(-1), i128(i128::MIN)])),
        ("huge", list([u256(u128::MAX, u128::MAX), u256(0, 5)])),
        ("names", list([symbol("b"), symbol("a"), symbol("")])),
        ("nested", list([numbers(&[1]), numbers(&[]), numbers(&[2, 3])])),
        ("optional", list([ScVal::U32(1), ScVal::Void, ScVal::U32(0)])),
        ("places", list([place(1, 2, "a"), place(3, 4, "b")])),
        ("by_name", map([(symbol("one"), i128(1)), (symbol("most"), i128(i128::MAX))])),
        ("by_number", map([(ScVal::U32(7), ScVal::Address(who.clone()))])),
        (
            "by_address",
            map([(ScVal::Address(who.clone()), list([ScVal::U64(1), ScVal::U64(u64::MAX)]))]),
        ),
        ("by_place", map([(place(1, 2, "a"), ScVal::Bool(true))])),
    ]);
    chain.call(types, "collections", vec![argument]);
    chain.import_into(&scene);
    owner.wait_for_rows("types_collections", 1);
    let who = who.to_string();
    let rows = own_rows(&owner, "select * exclude (by_place) from types_collections");
    assert_eq!(
        rows,
        [json!({
            "small": [3, 1, u32::MAX],
            "large": [i128::MAX.to_string(), -1, i128::MIN.to_string()],
            "huge": [GREATEST_U256, "5"],
            "names": ["b", "a", ""],
            "nested": [[1], [], [2, 3]],
            "optional": [1, null, 0],
            "places": [{ "x": 1, "y": 2, "label": "a" }, { "x": 3, "y": 4, "label": "b" }],
            "by_name": { "one": 1, "most": i128::MAX.to_string() },
            "by_number": { "7": who },
            "by_address": { who.clone(): [1, u64::MAX.to_string()] },
        })]
    );
    // As map keys in SQL, some distinct structs are equal, so a map with such keys is stored as
    // tagged JSON.
    let by_place = "select by_place from types_collections";
    let row = &owner.query(by_place)[0];
    let entries = row["by_place"]["map"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{row}");
    assert_eq!(entries[0]["val"], json!({ "bool": true }));
    assert_eq!(entries[0]["key"]["map"][0]["key"], json!({ "symbol": "label" }), "{row}");
    let deep = "select large[1] l, by_name['most'] m, nested[3][2] n from types_collections";
    let most = i128::MAX.to_string();
    assert_eq!(owner.query(deep), [json!({ "l": most, "m": most, "n": 3 })]);
}

#[test]
fn structs_enums_and_unions_round_trip() {
    let mut chain = Chain::new();
    let (types, scene, _service, owner) = begin(&mut chain);
    let who = chain.accounts()[1].clone();
    let tooth = ScError::Contract(4_000_000_000);
    let argument = |level: u32, figure: ScVal| {
        fields([
            ("place", place(i32::MIN, i64::MAX, "p")),
            ("line", fields([("from", place(1, 2, "a")), ("to", place(3, 4, "b"))])),
            ("pair", list([ScVal::U32(70_000), i128(i128::MIN)])),
            ("tuple", list([ScVal::U32(9), symbol("nine"), ScVal::Address(who.clone())])),
            ("level", ScVal::U32(level)),
            ("figure", figure),
            ("problem", ScVal::Error(tooth.clone())),
            ("nothing", ScVal::Void),
        ])
    };
    let circle = list([symbol("Circle"), ScVal::U32(5)]);
    let group = list([
        symbol("Group"),
        list([list([symbol("Nothing")]), list([symbol("Box"), i128(1), i128(-1)])]),
    ]);
    chain.call(types, "compounds", vec![argument(1, list([symbol("Nothing")]))]);
    chain.call(types, "compounds", vec![argument(50, circle)]);
    chain.call(types, "compounds", vec![argument(u32::MAX, group)]);
    chain.import_into(&scene);
    owner.wait_for_rows("types_compounds", 3);
    let expected = |level: u32, figure: Value| {
        json!({
            "place": { "x": i32::MIN, "y": i64::MAX.to_string(), "label": "p" },
            "line": {
                "from": { "x": 1, "y": 2, "label": "a" }, "to": { "x": 3, "y": 4, "label": "b" },
            },
            "pair": { "vec": [{ "u32": 70_000 }, { "i128": i128::MIN.to_string() }] },
            "tuple": {
                "vec": [{ "u32": 9 }, { "symbol": "nine" }, { "address": who.to_string() }],
            },
            "level": level,
            "figure": figure,
            "problem": { "error": { "contract": 4_000_000_000_u32 } },
            "nothing": null,
        })
    };
    let nothing = json!({ "vec": [{ "symbol": "Nothing" }] });
    let group = json!({ "vec": [{ "symbol": "Group" }, { "vec": [
        nothing, { "vec": [{ "symbol": "Box" }, { "i128": "1" }, { "i128": "-1" }] },
    ] }] });
    assert_eq!(
        own_rows(&owner, "select * from types_compounds order by _ledger"),
        [
            expected(1, nothing),
            expected(50, json!({ "vec": [{ "symbol": "Circle" }, { "u32": 5 }] })),
            expected(u32::MAX, group),
        ]
    );
}

#[test]
fn values_without_a_common_type_are_tagged_json() {
    let mut chain = Chain::new();
    let (types, scene, _service, owner) = begin(&mut chain);
    let mixed = list([ScVal::U32(70_000), symbol("a"), ScVal::Void, ScVal::U64(1)]);
    let mixed_map = map([(ScVal::U32(1), symbol("a")), (symbol("k"), list([ScVal::Bool(true)]))]);
    let argument = |anything: ScVal| {
        fields([
            ("anything", anything),
            ("error", ScVal::Error(ScError::Contract(3))),
            ("mixed", mixed.clone()),
            ("mixed_map", mixed_map.clone()),
        ])
    };
    for anything in [ScVal::U32(1), u256(0, 1), string("t"), list([])] {
        chain.call(types, "anythings", vec![argument(anything)]);
    }
    chain.import_into(&scene);
    owner.wait_for_rows("types_anythings", 4);
    let rows = own_rows(&owner, "select * from types_anythings order by _ledger");
    let anything: Vec<&Value> = rows.iter().map(|row| &row["anything"]).collect();
    let expected = [
        json!({ "u32": 1 }),
        json!({ "u256": "1" }),
        json!({ "string": "t" }),
        json!({ "vec": [] }),
    ];
    assert_eq!(anything, expected.iter().collect::<Vec<_>>());
    for row in &rows {
        assert_eq!(row["error"], json!({ "error": { "contract": 3 } }));
        assert_eq!(
            row["mixed"],
            json!([{ "u32": 70_000 }, { "symbol": "a" }, null, { "u64": "1" }]),
            "a list of anything"
        );
    }
}
