//! Cases that call the environment's functions for numbers, collections, the ledger and the
//! context, with valid and some invalid arguments.

use soroban_env_host::Val;
use stellar_xdr::{Asset, Limits as XdrLimits, WriteXdr};

use orrery_testkit::engine_world::module;
use orrery_testkit::wasm_text::{
    Data, env_call, error, map_of, seq, sym, u32v, vec_of, void, word,
};

/// A call of one function: its name, and a body that returns a value.
pub type Case = (&'static str, String);

fn int256(signed: bool, low: u64) -> String {
    let pieces = [word(0), word(0), word(1), word(low)];
    env_call(if signed { "obj_from_i256_pieces" } else { "obj_from_u256_pieces" }, &pieces)
}

pub fn small256(low: u64) -> String {
    env_call("obj_from_u256_pieces", &[word(0), word(0), word(0), word(low)])
}

pub fn context(data: &mut Data) -> Vec<Case> {
    let [at, len] = data.slice_args(b"a message");
    let vals = u32v(data.vals(&[Val::from_u32(1).into(), Val::from_u32(2).into()]));
    let big = |low: u64| env_call("obj_from_u64", &[word(u64::MAX - low)]);
    vec![
        ("log_from_linear_memory", env_call("log_from_linear_memory", &[at, len, vals, u32v(2)])),
        ("obj_cmp", env_call("obj_from_i64", &[env_call("obj_cmp", &[big(1), big(2)])])),
        (
            "contract_event",
            env_call("contract_event", &[vec_of(&[sym("topic"), big(1)]), sym("data")]),
        ),
        ("get_ledger_version", env_call("get_ledger_version", &[])),
        ("get_ledger_sequence", env_call("get_ledger_sequence", &[])),
        ("get_ledger_timestamp", env_call("get_ledger_timestamp", &[])),
        ("fail_with_error", env_call("fail_with_error", &[error(7)])),
        ("get_ledger_network_id", env_call("get_ledger_network_id", &[])),
        ("get_current_contract_address", env_call("get_current_contract_address", &[])),
        ("get_max_live_until_ledger", env_call("get_max_live_until_ledger", &[])),
        ("dummy0", env_call("dummy0", &[])),
    ]
}

pub fn integers(data: &mut Data) -> Vec<Case> {
    let mut cases = Vec::new();
    let bytes = data.bytes(&[0xa5; 32]);
    for (from, to, raw) in [
        ("obj_from_u64", "obj_to_u64", u64::MAX),
        ("obj_from_i64", "obj_to_i64", i64::MIN as u64),
        ("timepoint_obj_from_u64", "timepoint_obj_to_u64", u64::MAX - 3),
        ("duration_obj_from_u64", "duration_obj_to_u64", u64::MAX - 4),
    ] {
        cases.push((from, env_call(from, &[word(raw)])));
        cases
            .push((to, env_call("obj_from_u64", &[env_call(to, &[env_call(from, &[word(raw)])])])));
    }
    for (from, parts) in [
        ("obj_from_u128_pieces", ["obj_to_u128_lo64", "obj_to_u128_hi64"].as_slice()),
        ("obj_from_i128_pieces", &["obj_to_i128_lo64", "obj_to_i128_hi64"]),
        (
            "obj_from_u256_pieces",
            &["obj_to_u256_hi_hi", "obj_to_u256_hi_lo", "obj_to_u256_lo_hi", "obj_to_u256_lo_lo"],
        ),
        (
            "obj_from_i256_pieces",
            &["obj_to_i256_hi_hi", "obj_to_i256_hi_lo", "obj_to_i256_lo_hi", "obj_to_i256_lo_lo"],
        ),
    ] {
        let pieces: Vec<_> = (0..parts.len()).map(|i| word((1 << 62) + i as u64)).collect();
        cases.push((from, env_call(from, &pieces)));
        for part in parts {
            cases.push((
                part,
                env_call("obj_from_u64", &[env_call(part, &[env_call(from, &pieces)])]),
            ));
        }
    }
    for (signed, [from, to]) in [
        (false, ["u256_val_from_be_bytes", "u256_val_to_be_bytes"]),
        (true, ["i256_val_from_be_bytes", "i256_val_to_be_bytes"]),
    ] {
        cases.push((from, env_call(from, std::slice::from_ref(&bytes))));
        cases.push((to, env_call(to, &[int256(signed, 5)])));
    }
    for (signed, names) in [
        (false, ["u256_add", "u256_sub", "u256_mul", "u256_div", "u256_rem_euclid"]),
        (true, ["i256_add", "i256_sub", "i256_mul", "i256_div", "i256_rem_euclid"]),
        (
            false,
            ["u256_checked_add", "u256_checked_sub", "u256_checked_mul", "u256_add", "u256_sub"],
        ),
        (
            true,
            ["i256_checked_add", "i256_checked_sub", "i256_checked_mul", "i256_add", "i256_sub"],
        ),
    ] {
        cases.extend(
            names.map(|name| (name, env_call(name, &[int256(signed, 9), int256(signed, 4)]))),
        );
    }
    for (signed, names) in [
        (false, ["u256_pow", "u256_shl", "u256_shr", "u256_checked_pow"]),
        (true, ["i256_pow", "i256_shl", "i256_shr", "i256_checked_pow"]),
    ] {
        cases.extend(names.map(|name| (name, env_call(name, &[int256(signed, 9), u32v(3)]))));
        // Overflows: an error of the plain function, void of the checked one.
        cases.extend(names.map(|name| (name, env_call(name, &[int256(signed, 9), u32v(255)]))));
    }
    let zero = small256(0);
    cases.push(("u256_div", env_call("u256_div", &[int256(false, 1), zero])));
    cases
}

pub fn maps(data: &mut Data) -> Vec<Case> {
    let map = map_of(&[("a", u32v(1)), ("b", env_call("obj_from_u64", &[word(u64::MAX)]))]);
    let keys = u32v(data.slices(&[b"a", b"b"]));
    let unsorted = u32v(data.slices(&[b"b", b"a"]));
    let not_symbols = u32v(data.slices(&[b"a", b"\xff\xfe"]));
    let vals = u32v(data.vals(&[Val::from_u32(1).into(), Val::from_void().into()]));
    let out = u32v(data.place(&[0; 64]).0);
    let back = |len| env_call("vec_new_from_linear_memory", &[out.clone(), u32v(len)]);
    let at = |keys: &String, len| [keys.clone(), vals.clone(), u32v(len)];
    let into =
        |map: &String, keys: &String, len| [map.clone(), keys.clone(), out.clone(), u32v(len)];
    let one = |name: &'static str, args: &[String]| (name, env_call(name, args));
    vec![
        one("map_new", &[]),
        one("map_put", &[map.clone(), sym("c"), u32v(3)]),
        one("map_get", &[map.clone(), sym("b")]),
        one("map_get", &[map.clone(), sym("z")]),
        one("map_del", &[map.clone(), sym("a")]),
        one("map_len", std::slice::from_ref(&map)),
        one("map_has", &[map.clone(), sym("a")]),
        one("map_key_by_pos", &[map.clone(), u32v(1)]),
        one("map_val_by_pos", &[map.clone(), u32v(1)]),
        one("map_val_by_pos", &[map.clone(), u32v(2)]),
        one("map_keys", std::slice::from_ref(&map)),
        one("map_values", std::slice::from_ref(&map)),
        one("map_new_from_linear_memory", &at(&keys, 2)),
        one("map_new_from_linear_memory", &at(&unsorted, 2)),
        one("map_new_from_linear_memory", &at(&not_symbols, 2)),
        one("sparse_map_new_from_linear_memory", &at(&keys, 2)),
        one("sparse_map_new_from_linear_memory", &at(&unsorted, 2)),
        (
            "map_unpack_to_linear_memory",
            seq(&[env_call("map_unpack_to_linear_memory", &into(&map, &keys, 2)), back(2)]),
        ),
        one("map_unpack_to_linear_memory", &into(&map, &keys, 1)),
        one("map_unpack_to_linear_memory", &into(&map, &not_symbols, 2)),
        (
            "sparse_map_unpack_to_linear_memory",
            seq(&[
                env_call(
                    "sparse_map_unpack_to_linear_memory",
                    &into(&env_call("map_new", &[]), &keys, 2),
                ),
                back(2),
            ]),
        ),
    ]
}

pub fn vecs(data: &mut Data) -> Vec<Case> {
    let big = |low: u64| env_call("obj_from_u64", &[word(u64::MAX - low)]);
    let vec = vec_of(&[u32v(1), big(2), u32v(1), sym("x")]);
    let numbers = vec_of(&[u32v(1), u32v(5), u32v(9)]);
    let vals = u32v(data.vals(&[Val::from_u32(4).into(), Val::from_bool(true).into()]));
    let out = u32v(data.place(&[0; 64]).0);
    let one = |name: &'static str, args: &[String]| (name, env_call(name, args));
    vec![
        one("vec_new", &[]),
        one("vec_put", &[vec.clone(), u32v(1), sym("y")]),
        one("vec_get", &[vec.clone(), u32v(1)]),
        one("vec_get", &[vec.clone(), u32v(4)]),
        one("vec_del", &[vec.clone(), u32v(0)]),
        one("vec_len", std::slice::from_ref(&vec)),
        one("vec_push_front", &[vec.clone(), void()]),
        one("vec_pop_front", std::slice::from_ref(&vec)),
        one("vec_push_back", &[vec.clone(), void()]),
        one("vec_pop_back", std::slice::from_ref(&vec)),
        one("vec_front", std::slice::from_ref(&vec)),
        one("vec_back", std::slice::from_ref(&vec)),
        one("vec_back", &[env_call("vec_new", &[])]),
        one("vec_insert", &[vec.clone(), u32v(2), big(7)]),
        one("vec_append", &[vec.clone(), numbers.clone()]),
        one("vec_slice", &[vec.clone(), u32v(1), u32v(3)]),
        one("vec_slice", &[vec.clone(), u32v(3), u32v(1)]),
        one("vec_first_index_of", &[vec.clone(), u32v(1)]),
        one("vec_last_index_of", &[vec.clone(), u32v(1)]),
        (
            "vec_binary_search",
            env_call("obj_from_u64", &[env_call("vec_binary_search", &[numbers, u32v(5)])]),
        ),
        one("vec_new_from_linear_memory", &[vals, u32v(2)]),
        (
            "vec_unpack_to_linear_memory",
            seq(&[
                env_call("vec_unpack_to_linear_memory", &[vec.clone(), out.clone(), u32v(4)]),
                env_call("vec_new_from_linear_memory", &[out.clone(), u32v(4)]),
            ]),
        ),
        one("vec_unpack_to_linear_memory", &[vec, out, u32v(3)]),
    ]
}

pub fn ledger(data: &mut Data) -> Vec<Case> {
    let persistent = || word(1);
    let put = |kind: u64| env_call("put_contract_data", &[sym("key"), u32v(7), word(kind)]);
    let current = env_call("get_current_contract_address", &[]);
    let tiny = module(
        "(memory (export \"memory\") 1) (func (export \"nothing\") (result i64) (i64.const 2))",
    );
    let code = data.bytes(&tiny);
    let salt = data.bytes(&[5; 32]);
    let asset = data.bytes(&Asset::Native.to_xdr(XdrLimits::none()).unwrap());
    let tag = env_call("create_executable_tag", &[data.string(b"v1")]);
    let upload = env_call("upload_wasm", &[code]);
    let local = |name: &str| format!("(local.{name})");
    // The hash and the tag are used twice each, but created once.
    let with_hash = |rest: String| seq(&[format!("(local.tee $a {upload})"), rest]);
    let hash = local("get $a");
    let reference = seq(&[
        format!("(local.tee $b {tag})"),
        env_call("put_contract_data", &[local("get $b"), hash.clone(), persistent()]),
    ]);
    let one = |name: &'static str, args: &[String]| (name, env_call(name, args));
    let mut cases = vec![
        ("put_contract_data", seq(&[put(0), put(1), put(2)])),
        ("put_contract_data", put(3)),
        (
            "has_contract_data",
            seq(&[put(1), env_call("has_contract_data", &[sym("key"), persistent()])]),
        ),
        one("has_contract_data", &[sym("other"), persistent()]),
        (
            "get_contract_data",
            seq(&[put(2), env_call("get_contract_data", &[sym("key"), word(2)])]),
        ),
        one("get_contract_data", &[sym("other"), persistent()]),
        (
            "del_contract_data",
            seq(&[put(0), env_call("del_contract_data", &[sym("key"), word(0)])]),
        ),
        one("upload_wasm", &[data.bytes(b"no code")]),
        ("upload_wasm", upload.clone()),
        (
            "create_contract",
            with_hash(env_call("create_contract", &[current.clone(), hash.clone(), salt.clone()])),
        ),
        (
            "create_contract_with_constructor",
            with_hash(env_call(
                "create_contract_with_constructor",
                &[current.clone(), hash.clone(), salt.clone(), env_call("vec_new", &[])],
            )),
        ),
        one("create_asset_contract", std::slice::from_ref(&asset)),
        (
            "update_current_contract_wasm",
            with_hash(env_call("update_current_contract_wasm", std::slice::from_ref(&hash))),
        ),
        one("get_contract_id", &[current.clone(), salt.clone()]),
        one("get_asset_contract_id", &[asset]),
        ("create_executable_tag", tag.clone()),
        (
            "create_external_ref_contract",
            with_hash(seq(&[
                reference.clone(),
                env_call(
                    "create_external_ref_contract",
                    &[
                        current.clone(),
                        current.clone(),
                        local("get $b"),
                        salt,
                        env_call("vec_new", &[]),
                    ],
                ),
            ])),
        ),
        (
            "update_current_contract_executable_ref",
            with_hash(seq(&[
                reference,
                env_call(
                    "update_current_contract_executable_ref",
                    &[current.clone(), local("get $b")],
                ),
            ])),
        ),
    ];
    let (low, high) = (u32v(200_000), u32v(300_000));
    cases.extend([
        (
            "extend_contract_data_ttl",
            seq(&[
                put(1),
                env_call(
                    "extend_contract_data_ttl",
                    &[sym("key"), persistent(), low.clone(), high.clone()],
                ),
            ]),
        ),
        (
            "extend_contract_data_ttl_v2",
            seq(&[
                put(1),
                env_call(
                    "extend_contract_data_ttl_v2",
                    &[sym("key"), persistent(), high.clone(), u32v(1), low.clone()],
                ),
            ]),
        ),
        one("extend_current_contract_instance_and_code_ttl", &[low.clone(), high.clone()]),
        one("extend_contract_instance_and_code_ttl", &[current.clone(), low.clone(), high.clone()]),
        one("extend_contract_instance_ttl", &[current.clone(), low.clone(), high.clone()]),
        one("extend_contract_code_ttl", &[current.clone(), low.clone(), high.clone()]),
        one(
            "extend_contract_instance_and_code_ttl_v2",
            &[current.clone(), word(1), high.clone(), u32v(1), low.clone()],
        ),
        one("extend_contract_instance_and_code_ttl_v2", &[current, word(3), high, u32v(1), low]),
    ]);
    cases
}
