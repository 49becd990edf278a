//! Every function of the environment, called by the same module in the network's interpreter and as a
//! program: the same result, events and changes, or the same error.

use std::collections::BTreeSet;

use orrery::programs::engine::{Fidelity, Invocation, env_functions};
use soroban_env_host::Val;
use stellar_xdr::{Asset, Limits as XdrLimits, WriteXdr};

use crate::engine_text::{
    Data, env_imports, error, f, map_of, seq, sym, u32v, val, vec_of, void, word,
};
use crate::engine_world::{ENV_META, World, call, module, run};

/// The contract that is the program.
const SELF: u8 = 1;
/// Another one, which the interpreter runs.
const OTHER: u8 = 2;

/// A call of one function: its name, and a body that returns a value.
type Case = (&'static str, String);

fn int256(signed: bool, low: u64) -> String {
    let pieces = [word(0), word(0), word(1), word(low)];
    f(if signed { "obj_from_i256_pieces" } else { "obj_from_u256_pieces" }, &pieces)
}

fn small256(low: u64) -> String {
    f("obj_from_u256_pieces", &[word(0), word(0), word(0), word(low)])
}

fn context(data: &mut Data) -> Vec<Case> {
    let [at, len] = data.at(b"a message");
    let vals = u32v(data.vals(&[Val::from_u32(1).into(), Val::from_u32(2).into()]));
    let big = |low: u64| f("obj_from_u64", &[word(u64::MAX - low)]);
    vec![
        ("log_from_linear_memory", f("log_from_linear_memory", &[at, len, vals, u32v(2)])),
        ("obj_cmp", f("obj_from_i64", &[f("obj_cmp", &[big(1), big(2)])])),
        ("contract_event", f("contract_event", &[vec_of(&[sym("topic"), big(1)]), sym("data")])),
        ("get_ledger_version", f("get_ledger_version", &[])),
        ("get_ledger_sequence", f("get_ledger_sequence", &[])),
        ("get_ledger_timestamp", f("get_ledger_timestamp", &[])),
        ("fail_with_error", f("fail_with_error", &[error(7)])),
        ("get_ledger_network_id", f("get_ledger_network_id", &[])),
        ("get_current_contract_address", f("get_current_contract_address", &[])),
        ("get_max_live_until_ledger", f("get_max_live_until_ledger", &[])),
        ("dummy0", f("dummy0", &[])),
    ]
}

fn integers(data: &mut Data) -> Vec<Case> {
    let mut cases = Vec::new();
    let bytes = data.bytes(&[0xa5; 32]);
    for (from, to, raw) in [
        ("obj_from_u64", "obj_to_u64", u64::MAX),
        ("obj_from_i64", "obj_to_i64", i64::MIN as u64),
        ("timepoint_obj_from_u64", "timepoint_obj_to_u64", u64::MAX - 3),
        ("duration_obj_from_u64", "duration_obj_to_u64", u64::MAX - 4),
    ] {
        cases.push((from, f(from, &[word(raw)])));
        cases.push((to, f("obj_from_u64", &[f(to, &[f(from, &[word(raw)])])])));
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
        cases.push((from, f(from, &pieces)));
        for part in parts {
            cases.push((part, f("obj_from_u64", &[f(part, &[f(from, &pieces)])])));
        }
    }
    for (signed, [from, to]) in [
        (false, ["u256_val_from_be_bytes", "u256_val_to_be_bytes"]),
        (true, ["i256_val_from_be_bytes", "i256_val_to_be_bytes"]),
    ] {
        cases.push((from, f(from, std::slice::from_ref(&bytes))));
        cases.push((to, f(to, &[int256(signed, 5)])));
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
        cases.extend(names.map(|name| (name, f(name, &[int256(signed, 9), int256(signed, 4)]))));
    }
    for (signed, names) in [
        (false, ["u256_pow", "u256_shl", "u256_shr", "u256_checked_pow"]),
        (true, ["i256_pow", "i256_shl", "i256_shr", "i256_checked_pow"]),
    ] {
        cases.extend(names.map(|name| (name, f(name, &[int256(signed, 9), u32v(3)]))));
        // Overflows: an error of the plain function, void of the checked one.
        cases.extend(names.map(|name| (name, f(name, &[int256(signed, 9), u32v(255)]))));
    }
    let zero = small256(0);
    cases.push(("u256_div", f("u256_div", &[int256(false, 1), zero])));
    cases
}

fn maps(data: &mut Data) -> Vec<Case> {
    let map = map_of(&[("a", u32v(1)), ("b", f("obj_from_u64", &[word(u64::MAX)]))]);
    let keys = u32v(data.slices(&[b"a", b"b"]));
    let unsorted = u32v(data.slices(&[b"b", b"a"]));
    let not_symbols = u32v(data.slices(&[b"a", b"\xff\xfe"]));
    let vals = u32v(data.vals(&[Val::from_u32(1).into(), Val::from_void().into()]));
    let out = u32v(data.place(&[0; 64]).0);
    let back = |len| f("vec_new_from_linear_memory", &[out.clone(), u32v(len)]);
    let at = |keys: &String, len| [keys.clone(), vals.clone(), u32v(len)];
    let into =
        |map: &String, keys: &String, len| [map.clone(), keys.clone(), out.clone(), u32v(len)];
    let one = |name: &'static str, args: &[String]| (name, f(name, args));
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
            seq(&[f("map_unpack_to_linear_memory", &into(&map, &keys, 2)), back(2)]),
        ),
        one("map_unpack_to_linear_memory", &into(&map, &keys, 1)),
        one("map_unpack_to_linear_memory", &into(&map, &not_symbols, 2)),
        (
            "sparse_map_unpack_to_linear_memory",
            seq(&[
                f("sparse_map_unpack_to_linear_memory", &into(&f("map_new", &[]), &keys, 2)),
                back(2),
            ]),
        ),
    ]
}

fn vecs(data: &mut Data) -> Vec<Case> {
    let big = |low: u64| f("obj_from_u64", &[word(u64::MAX - low)]);
    let vec = vec_of(&[u32v(1), big(2), u32v(1), sym("x")]);
    let numbers = vec_of(&[u32v(1), u32v(5), u32v(9)]);
    let vals = u32v(data.vals(&[Val::from_u32(4).into(), Val::from_bool(true).into()]));
    let out = u32v(data.place(&[0; 64]).0);
    let one = |name: &'static str, args: &[String]| (name, f(name, args));
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
        one("vec_back", &[f("vec_new", &[])]),
        one("vec_insert", &[vec.clone(), u32v(2), big(7)]),
        one("vec_append", &[vec.clone(), numbers.clone()]),
        one("vec_slice", &[vec.clone(), u32v(1), u32v(3)]),
        one("vec_slice", &[vec.clone(), u32v(3), u32v(1)]),
        one("vec_first_index_of", &[vec.clone(), u32v(1)]),
        one("vec_last_index_of", &[vec.clone(), u32v(1)]),
        ("vec_binary_search", f("obj_from_u64", &[f("vec_binary_search", &[numbers, u32v(5)])])),
        one("vec_new_from_linear_memory", &[vals, u32v(2)]),
        (
            "vec_unpack_to_linear_memory",
            seq(&[
                f("vec_unpack_to_linear_memory", &[vec.clone(), out.clone(), u32v(4)]),
                f("vec_new_from_linear_memory", &[out.clone(), u32v(4)]),
            ]),
        ),
        one("vec_unpack_to_linear_memory", &[vec, out, u32v(3)]),
    ]
}

fn ledger(data: &mut Data) -> Vec<Case> {
    let persistent = || word(1);
    let put = |kind: u64| f("put_contract_data", &[sym("key"), u32v(7), word(kind)]);
    let current = f("get_current_contract_address", &[]);
    let tiny = module(
        "(memory (export \"memory\") 1) (func (export \"nothing\") (result i64) (i64.const 2))",
    );
    let code = data.bytes(&tiny);
    let salt = data.bytes(&[5; 32]);
    let asset = data.bytes(&Asset::Native.to_xdr(XdrLimits::none()).unwrap());
    let tag = f("create_executable_tag", &[data.string(b"v1")]);
    let upload = f("upload_wasm", &[code]);
    let local = |name: &str| format!("(local.{name})");
    // The hash and the tag are used twice, and each is one object.
    let with_hash = |rest: String| seq(&[format!("(local.tee $a {upload})"), rest]);
    let hash = local("get $a");
    let reference = seq(&[
        format!("(local.tee $b {tag})"),
        f("put_contract_data", &[local("get $b"), hash.clone(), persistent()]),
    ]);
    let one = |name: &'static str, args: &[String]| (name, f(name, args));
    let mut cases = vec![
        ("put_contract_data", seq(&[put(0), put(1), put(2)])),
        ("put_contract_data", put(3)),
        ("has_contract_data", seq(&[put(1), f("has_contract_data", &[sym("key"), persistent()])])),
        one("has_contract_data", &[sym("other"), persistent()]),
        ("get_contract_data", seq(&[put(2), f("get_contract_data", &[sym("key"), word(2)])])),
        one("get_contract_data", &[sym("other"), persistent()]),
        ("del_contract_data", seq(&[put(0), f("del_contract_data", &[sym("key"), word(0)])])),
        one("upload_wasm", &[data.bytes(b"no code")]),
        ("upload_wasm", upload.clone()),
        (
            "create_contract",
            with_hash(f("create_contract", &[current.clone(), hash.clone(), salt.clone()])),
        ),
        (
            "create_contract_with_constructor",
            with_hash(f(
                "create_contract_with_constructor",
                &[current.clone(), hash.clone(), salt.clone(), f("vec_new", &[])],
            )),
        ),
        one("create_asset_contract", std::slice::from_ref(&asset)),
        (
            "update_current_contract_wasm",
            with_hash(f("update_current_contract_wasm", std::slice::from_ref(&hash))),
        ),
        one("get_contract_id", &[current.clone(), salt.clone()]),
        one("get_asset_contract_id", &[asset]),
        ("create_executable_tag", tag.clone()),
        (
            "create_external_ref_contract",
            with_hash(seq(&[
                reference.clone(),
                f(
                    "create_external_ref_contract",
                    &[current.clone(), current.clone(), local("get $b"), salt, f("vec_new", &[])],
                ),
            ])),
        ),
        (
            "update_current_contract_executable_ref",
            with_hash(seq(&[
                reference,
                f("update_current_contract_executable_ref", &[current.clone(), local("get $b")]),
            ])),
        ),
    ];
    let (low, high) = (u32v(200_000), u32v(300_000));
    cases.extend([
        (
            "extend_contract_data_ttl",
            seq(&[
                put(1),
                f(
                    "extend_contract_data_ttl",
                    &[sym("key"), persistent(), low.clone(), high.clone()],
                ),
            ]),
        ),
        (
            "extend_contract_data_ttl_v2",
            seq(&[
                put(1),
                f(
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

fn calls_and_bytes(data: &mut Data) -> Vec<Case> {
    let other = || "(local.get $other)".to_owned();
    let args = vec_of(&[u32v(20), u32v(22)]);
    let bytes = data.bytes(b"some bytes");
    let more = data.bytes(b"more");
    let string = data.string(b"a string \xff");
    let symbol = data.symbol(b"a_symbol_that_is_long");
    let out = u32v(data.place(&[0; 64]).0);
    let names = u32v(data.slices(&[b"not", b"\xff", b"a_symbol_that_is_long"]));
    let copied = |name: &str, object: &String| {
        seq(&[
            f(name, &[object.clone(), u32v(2), out.clone(), u32v(4)]),
            f("bytes_new_from_linear_memory", &[out.clone(), u32v(6)]),
        ])
    };
    let one = |name: &'static str, args: &[String]| (name, f(name, args));
    vec![
        one("call", &[other(), sym("add"), args.clone()]),
        one("call", &[other(), sym("fail"), f("vec_new", &[])]),
        one("try_call", &[other(), sym("add"), args]),
        one("try_call", &[other(), sym("fail"), f("vec_new", &[])]),
        one("try_call", &[other(), sym("panic"), f("vec_new", &[])]),
        one("try_call", &[other(), sym("nothing"), f("vec_new", &[])]),
        one("serialize_to_bytes", &[vec_of(&[u32v(1), sym("a")])]),
        (
            "deserialize_from_bytes",
            f(
                "deserialize_from_bytes",
                &[f("serialize_to_bytes", &[vec_of(&[u32v(1), sym("a")])])],
            ),
        ),
        one("deserialize_from_bytes", std::slice::from_ref(&bytes)),
        ("bytes_copy_to_linear_memory", copied("bytes_copy_to_linear_memory", &bytes)),
        (
            "bytes_copy_from_linear_memory",
            f("bytes_copy_from_linear_memory", &[bytes.clone(), u32v(8), u32v(1024), u32v(9)]),
        ),
        ("bytes_new_from_linear_memory", bytes.clone()),
        one("bytes_new", &[]),
        one("bytes_put", &[bytes.clone(), u32v(1), u32v(255)]),
        one("bytes_put", &[bytes.clone(), u32v(1), u32v(256)]),
        one("bytes_get", &[bytes.clone(), u32v(1)]),
        one("bytes_get", &[bytes.clone(), u32v(10)]),
        one("bytes_del", &[bytes.clone(), u32v(1)]),
        one("bytes_len", std::slice::from_ref(&bytes)),
        one("bytes_push", &[bytes.clone(), u32v(1)]),
        one("bytes_pop", std::slice::from_ref(&bytes)),
        one("bytes_front", std::slice::from_ref(&bytes)),
        one("bytes_back", std::slice::from_ref(&bytes)),
        one("bytes_insert", &[bytes.clone(), u32v(1), u32v(2)]),
        one("bytes_append", &[bytes.clone(), more]),
        one("bytes_slice", &[bytes.clone(), u32v(2), u32v(5)]),
        ("string_copy_to_linear_memory", copied("string_copy_to_linear_memory", &string)),
        ("symbol_copy_to_linear_memory", copied("symbol_copy_to_linear_memory", &symbol)),
        ("string_new_from_linear_memory", string.clone()),
        ("symbol_new_from_linear_memory", symbol.clone()),
        ("symbol_new_from_linear_memory", data.symbol(b"no symbol")),
        ("symbol_new_from_linear_memory", data.symbol(&[b'a'; 33])),
        one("string_len", std::slice::from_ref(&string)),
        one("symbol_len", std::slice::from_ref(&symbol)),
        one("symbol_index_in_linear_memory", &[symbol, names.clone(), u32v(3)]),
        one("symbol_index_in_linear_memory", &[sym("other"), names, u32v(3)]),
        one("string_to_bytes", &[string]),
        one("bytes_to_string", &[bytes]),
    ]
}

fn hex(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap()
}

fn signatures(data: &mut Data) -> Vec<Case> {
    use ed25519_dalek::{Signer, SigningKey};
    let key = SigningKey::from_bytes(&[7; 32]);
    let message = data.bytes(b"signed");
    let ed_key = data.bytes(key.verifying_key().as_bytes());
    let ed_signature = data.bytes(&key.sign(b"signed").to_bytes());
    // x of the generator of secp256k1 as r, and 1 as s: some key has signed like that.
    let mut k1 = hex("79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798");
    k1.extend([0; 31]);
    k1.push(1);
    let k1 = data.bytes(&k1);
    let digest = data.bytes(&[0x42; 32]);
    // RFC 6979, A.2.5: P-256, SHA-256, "sample", with the lower of the two possible s.
    let r1_key = data
        .bytes(&hex("0460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6\
         7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299"));
    let r1_digest =
        data.bytes(&hex("af2bdbe1aa9b6ec1e2ade1d694f41fc71a831d0268e9891562113d8a62add1bf"));
    let r1 = data.bytes(&hex("efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716\
         0834e36ad29a83bf2bc9385e491d6099c8fdf9d1ed67aa7ea5f51f93782857a9"));
    let wrong = data.bytes(&[1; 64]);
    let empty = f("bytes_new", &[]);
    let one = |name: &'static str, args: &[String]| (name, f(name, args));
    let mut cases = vec![
        one("compute_hash_sha256", std::slice::from_ref(&message)),
        one("compute_hash_keccak256", std::slice::from_ref(&message)),
        one("verify_sig_ed25519", &[ed_key.clone(), message.clone(), ed_signature]),
        one("verify_sig_ed25519", &[ed_key, message.clone(), wrong.clone()]),
        one("recover_key_ecdsa_secp256k1", &[digest.clone(), k1, u32v(0)]),
        one("recover_key_ecdsa_secp256k1", &[digest, wrong.clone(), u32v(9)]),
        one("verify_sig_ecdsa_secp256r1", &[r1_key.clone(), r1_digest.clone(), r1]),
        one("verify_sig_ecdsa_secp256r1", &[r1_key, r1_digest, wrong]),
    ];
    for (name, key, signature) in [
        ("verify_sig_ml_dsa_44", 1312, 2420),
        ("verify_sig_ml_dsa_65", 1952, 3309),
        ("verify_sig_ml_dsa_87", 2592, 4627),
    ] {
        let key = data.bytes(&vec![3; key]);
        let signature = data.bytes(&vec![0; signature]);
        cases.push((name, f(name, &[key, message.clone(), signature, empty.clone()])));
    }
    cases
}

fn curves(data: &mut Data) -> Vec<Case> {
    let one = |name: &'static str, args: &[String]| (name, f(name, args));
    let dst = data.bytes(b"a domain of tests");
    let message = data.bytes(b"message");
    let g1 = f("bls12_381_hash_to_g1", &[message.clone(), dst.clone()]);
    let g2 = f("bls12_381_hash_to_g2", &[message.clone(), dst.clone()]);
    let fp = data.bytes(&[[0; 16].as_slice(), &[9; 32]].concat());
    let fp2 = data.bytes(&[[0; 16].as_slice(), &[9; 32], &[0; 16], &[8; 32]].concat());
    let junk = data.bytes(&[1; 96]);
    let (a, b) = (small256(1_000_003), small256(77));
    let scalars = vec_of(&[a.clone(), b.clone()]);
    let mut cases = vec![
        ("bls12_381_hash_to_g1", g1.clone()),
        ("bls12_381_hash_to_g2", g2.clone()),
        one("bls12_381_check_g1_is_in_subgroup", std::slice::from_ref(&g1)),
        one("bls12_381_check_g1_is_in_subgroup", &[junk]),
        one("bls12_381_g1_is_on_curve", std::slice::from_ref(&g1)),
        one("bls12_381_g1_add", &[g1.clone(), g1.clone()]),
        one("bls12_381_g1_mul", &[g1.clone(), a.clone()]),
        one("bls12_381_g1_msm", &[vec_of(&[g1.clone(), g1.clone()]), scalars.clone()]),
        one("bls12_381_map_fp_to_g1", &[fp]),
        one("bls12_381_check_g2_is_in_subgroup", std::slice::from_ref(&g2)),
        one("bls12_381_g2_is_on_curve", std::slice::from_ref(&g2)),
        one("bls12_381_g2_add", &[g2.clone(), g2.clone()]),
        one("bls12_381_g2_mul", &[g2.clone(), a.clone()]),
        one("bls12_381_g2_msm", &[vec_of(&[g2.clone(), g2.clone()]), scalars.clone()]),
        one("bls12_381_map_fp2_to_g2", &[fp2]),
        one("bls12_381_multi_pairing_check", &[vec_of(&[g1]), vec_of(&[g2])]),
    ];
    let coordinate = |low: u8| [[0; 31].as_slice(), &[low]].concat();
    let bn1 = data.bytes(&[coordinate(1), coordinate(2)].concat());
    // Generator of the second group of BN254, as in EIP-197.
    let bn2 = data.bytes(&hex("198e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2\
         1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed\
         090689d0585ff075ec9e99ad690c3395bc4b313370b38ef355acdadcd122975b\
         12c85ea5db8c6deb4aab71808dcb408fe3d1e7690c43d37b4ce6cc0166fa7daa"));
    cases.extend([
        one("bn254_g1_add", &[bn1.clone(), bn1.clone()]),
        one("bn254_g1_mul", &[bn1.clone(), a.clone()]),
        one("bn254_g1_msm", &[vec_of(&[bn1.clone(), bn1.clone()]), scalars]),
        one("bn254_g1_is_on_curve", std::slice::from_ref(&bn1)),
        one("bn254_multi_pairing_check", &[vec_of(&[bn1]), vec_of(&[bn2])]),
    ]);
    for names in [
        ["bls12_381_fr_add", "bls12_381_fr_sub", "bls12_381_fr_mul"],
        ["bn254_fr_add", "bn254_fr_sub", "bn254_fr_mul"],
    ] {
        cases.extend(names.map(|name| (name, f(name, &[a.clone(), b.clone()]))));
    }
    for name in ["bls12_381_fr_pow", "bn254_fr_pow"] {
        cases.push((name, f(name, &[a.clone(), f("obj_from_u64", &[word(u64::MAX)])])));
    }
    for name in ["bls12_381_fr_inv", "bn254_fr_inv"] {
        cases.push((name, f(name, std::slice::from_ref(&a))));
        cases.push((name, f(name, &[small256(0)])));
    }
    cases.extend(poseidon());
    cases
}

fn poseidon() -> [Case; 4] {
    let row = |from: u64, len: u64| vec_of(&(from..from + len).map(small256).collect::<Vec<_>>());
    let rows = |count: u64| vec_of(&(0..count).map(|i| row(10 + i * 3, 3)).collect::<Vec<_>>());
    let rounds = |field: &str, matrix: String| {
        let field = if field == "BN254" { sym(field) } else { "(local.get $bls)".to_owned() };
        [row(1, 3), field, u32v(3), u32v(5), u32v(4), u32v(2), matrix, rows(6)]
    };
    [
        ("poseidon_permutation", f("poseidon_permutation", &rounds("BN254", rows(3)))),
        ("poseidon_permutation", f("poseidon_permutation", &rounds("BLS12_381", rows(3)))),
        ("poseidon2_permutation", f("poseidon2_permutation", &rounds("BN254", row(4, 3)))),
        ("poseidon2_permutation", f("poseidon2_permutation", &rounds("OTHER", row(4, 3)))),
    ]
}

fn addresses_and_random(data: &mut Data) -> Vec<Case> {
    let current = f("get_current_contract_address", &[]);
    let account = f(
        "strkey_to_address",
        &[data.string(b"GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ")],
    );
    let muxed = f(
        "strkey_to_muxed_address",
        &[data.string(b"MA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJUAAAAAAAAAAE2JUG6")],
    );
    let other = "(local.get $other)".to_owned();
    let seed = data.bytes(&[4; 32]);
    let one = |name: &'static str, args: &[String]| (name, f(name, args));
    vec![
        one("require_auth_for_args", &[account.clone(), vec_of(&[u32v(1)])]),
        one("require_auth", std::slice::from_ref(&account)),
        ("strkey_to_address", account.clone()),
        one("strkey_to_address", &[data.string(b"G")]),
        one("address_to_strkey", std::slice::from_ref(&current)),
        one("authorize_as_curr_contract", &[f("vec_new", &[])]),
        one("get_address_from_muxed_address", std::slice::from_ref(&muxed)),
        one("get_id_from_muxed_address", std::slice::from_ref(&muxed)),
        one("get_address_executable", &[current]),
        one("get_address_executable", &[other]),
        one("get_address_executable", &[account]),
        ("strkey_to_muxed_address", muxed.clone()),
        one("muxed_address_to_strkey", &[muxed]),
        one("get_delegated_signers_for_current_auth_check", &[]),
        one("delegate_account_auth", &[f("get_current_contract_address", &[])]),
        ("prng_reseed", seq(&[f("prng_reseed", &[seed]), f("prng_bytes_new", &[u32v(9)])])),
        one("prng_bytes_new", &[u32v(40)]),
        (
            "prng_u64_in_inclusive_range",
            f("obj_from_u64", &[f("prng_u64_in_inclusive_range", &[word(5), word(1 << 60)])]),
        ),
        one("prng_vec_shuffle", &[vec_of(&[u32v(1), u32v(2), u32v(3), u32v(4), u32v(5)])]),
    ]
}

/// Positions and lengths that lie outside of memory, or nearly.
fn hostile_memory(data: &mut Data) -> Vec<Case> {
    const END: u32 = 2 << 16;
    let places = [
        (0, 0),
        (END, 0),
        (END - 1, 1),
        (END - 1, 2),
        (END, 1),
        (END + 1, 0),
        (u32::MAX, 0),
        (u32::MAX, 1),
        (u32::MAX, u32::MAX),
        (0, u32::MAX),
        (0, END),
        (0, END + 1),
        (8, 1 << 29),
        (END - 7, 1),
        (END - 8, 1),
        (1 << 31, 1 << 31),
        (16, 3),
    ];
    let bytes = data.bytes(&[7; 64]);
    let string = data.string(&[b'x'; 40]);
    let symbol = data.symbol(b"0123456789_123456789_123456789_1");
    let map = map_of(&[("a", u32v(1)), ("b", u32v(2)), ("c", u32v(3))]);
    let vec = vec_of(&[u32v(1), u32v(2), u32v(3)]);
    let keys = u32v(data.slices(&[b"a", b"b", b"c"]));
    let vals = u32v(data.vals(&[Val::from_u32(1).into(); 3]));
    let mut cases = Vec::new();
    for (pos, len) in places {
        let (at, count) = (u32v(pos), u32v(len));
        let mut add = |name: &'static str, args: &[&String]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).clone()).collect();
            cases.push((name, f(name, &args)));
        };
        add("log_from_linear_memory", &[&at, &count, &at, &count]);
        for name in [
            "bytes_new_from_linear_memory",
            "string_new_from_linear_memory",
            "symbol_new_from_linear_memory",
            "vec_new_from_linear_memory",
        ] {
            add(name, &[&at, &count]);
        }
        for (name, object) in [
            ("bytes_copy_to_linear_memory", &bytes),
            ("bytes_copy_from_linear_memory", &bytes),
            ("string_copy_to_linear_memory", &string),
            ("symbol_copy_to_linear_memory", &symbol),
        ] {
            add(name, &[object, &u32v(0), &at, &count]);
            add(name, &[object, &at, &u32v(1024), &count]);
        }
        add("vec_unpack_to_linear_memory", &[&vec, &at, &count]);
        add("vec_unpack_to_linear_memory", &[&vec, &at, &u32v(3)]);
        add("symbol_index_in_linear_memory", &[&symbol, &at, &count]);
        for name in ["map_new_from_linear_memory", "sparse_map_new_from_linear_memory"] {
            add(name, &[&at, &vals, &count]);
            add(name, &[&keys, &at, &u32v(3)]);
        }
        for name in ["map_unpack_to_linear_memory", "sparse_map_unpack_to_linear_memory"] {
            add(name, &[&map, &at, &vals, &count]);
            add(name, &[&map, &keys, &at, &u32v(3)]);
        }
    }
    // Values in memory that are none: forged objects, unknown tags.
    for payload in [75, 75 | 1 << 8, u64::MAX, 0x7f, 60, 4 | 1 << 8, 75 | 5 << 32] {
        let at = u32v(data.place(&u64::to_le_bytes(payload)).0);
        let key = u32v(data.slices(&[b"a"]));
        cases.push((
            "vec_new_from_linear_memory",
            f("vec_new_from_linear_memory", &[at.clone(), u32v(1)]),
        ));
        cases.push((
            "map_new_from_linear_memory",
            f("map_new_from_linear_memory", &[key, at, u32v(1)]),
        ));
    }
    cases
}

/// What the two ways made of all cases.
#[derive(Default, Debug)]
struct Tally {
    equal_values: usize,
    equal_errors: usize,
    called: BTreeSet<&'static str>,
    succeeded: BTreeSet<&'static str>,
}

impl Tally {
    fn compare(&mut self, data: &Data, (name, body): &Case) {
        let (world, call, code) = world(data, body);
        let expected = world.interpret(&call);
        self.called.insert(name);
        let checked = Invocation { recorded: expected.as_ref().ok().cloned(), ..call };
        let contract = orrery::domain::ContractId([SELF; 32]);
        let outcome = run(&world, &code, &[contract], &checked).unwrap();
        assert!(outcome.entered);
        match expected {
            Ok(value) => {
                let value = value.return_value;
                assert_eq!(outcome.result, Ok(Vec::new()), "{name} is {value:?}: {body}");
                assert_eq!(outcome.fidelity, Fidelity::Exact, "{name}: {body}");
                self.equal_values += 1;
                self.succeeded.insert(name);
            }
            Err(error) => {
                let fault = outcome.result.expect_err(&format!("{name} fails: {body}")).0;
                assert!(same_error(error, &fault), "{name}: {error:?} is '{fault}': {body}");
                self.equal_errors += 1;
            }
        }
    }
}

/// Whether a fault tells the error that the interpreter saw. Errors that a contract cannot tell apart
/// (all that are recoverable and not a contract's own) may have another code.
fn same_error(error: soroban_env_host::Error, fault: &str) -> bool {
    let text = format!("{error:?}");
    let contract = text.starts_with("Error(Contract");
    let exhausted = fault.contains("as the network counts them");
    match text.as_str() {
        // Which comes first, paying for a length or finding it wrong, is not always the same.
        "Error(Budget, ExceededLimit)" => exhausted || fault.contains("Error("),
        _ if contract => fault.contains(&text),
        _ if fault.contains("Error(Contract") => false,
        _ => exhausted || fault.contains("Error(") || fault.contains("it returned"),
    }
}

/// A contract whose function `test` is the body, and the other one.
fn world(data: &Data, body: &str) -> (World, Invocation, Vec<u8>) {
    let other_address = format!(
        "(local.set $other (call $strkey_to_address (call $string_new_from_linear_memory {} {})))",
        u32v(512),
        u32v(56)
    );
    let strkey = orrery::domain::ContractId([OTHER; 32]).to_string();
    let bls =
        format!("(local.set $bls (call $symbol_new_from_linear_memory {} {}))", u32v(600), u32v(9));
    let code = wat::parse_str(format!(
        "(module {} {} (data (i32.const 512) \"{strkey}\") (data (i32.const 600) \"BLS12_381\")
         (func (export \"test\") (result i64) (local $a i64) (local $b i64)
            (local $other i64) (local $bls i64) {other_address} {bls} {body}) {ENV_META})",
        env_imports(),
        data.memory()
    ))
    .unwrap();
    let mut world = World::new();
    let contract = world.contract(SELF, &code);
    world.contract(
        OTHER,
        &module(&format!(
            "(import \"x\" \"5\" (func $fail (param i64) (result i64)))
             (memory (export \"memory\") 1)
             (func (export \"add\") (param i64 i64) (result i64)
                (i64.add (local.get 0) (i64.and (local.get 1) (i64.const -4294967296))))
             (func (export \"fail\") (result i64) (call $fail {}))
             (func (export \"panic\") (result i64) (unreachable))",
            error(42)
        )),
    );
    (world, call(contract, "test", &[]), code)
}

#[test]
fn every_function_of_the_environment_does_what_it_does_in_the_interpreter() {
    let mut data = Data::default();
    let mut cases = context(&mut data);
    cases.extend(integers(&mut data));
    cases.extend(maps(&mut data));
    cases.extend(vecs(&mut data));
    cases.extend(ledger(&mut data));
    cases.extend(calls_and_bytes(&mut data));
    cases.extend(signatures(&mut data));
    cases.extend(curves(&mut data));
    cases.extend(addresses_and_random(&mut data));
    let mut tally = Tally::default();
    for case in &cases {
        tally.compare(&data, case);
    }
    let all: BTreeSet<_> = env_functions().iter().map(|function| function.name).collect();
    let gated = BTreeSet::from(["protocol_gated_dummy"]);
    assert_eq!(tally.called, &all - &gated, "every function is called");
    // These fail outside of `__check_auth`, or for want of a valid signature.
    let fails = BTreeSet::from([
        "delegate_account_auth",
        "fail_with_error",
        "get_delegated_signers_for_current_auth_check",
        "verify_sig_ml_dsa_44",
        "verify_sig_ml_dsa_65",
        "verify_sig_ml_dsa_87",
    ]);
    assert_eq!(&tally.called - &tally.succeeded, fails, "all others succeed once");
    println!("{} equal results, {} equal errors", tally.equal_values, tally.equal_errors);
}

#[test]
fn positions_and_lengths_from_a_hostile_guest_are_refused_as_in_the_interpreter() {
    let mut data = Data::default();
    let cases = hostile_memory(&mut data);
    let mut tally = Tally::default();
    for case in &cases {
        tally.compare(&data, case);
    }
    assert_eq!(tally.called.len(), 15, "{:?}", tally.called);
    println!("{} equal results, {} equal errors", tally.equal_values, tally.equal_errors);
}

#[test]
fn words_that_are_no_values_are_refused_as_in_the_interpreter() {
    let data = Data::default();
    let mut tally = Tally::default();
    let forged = [
        0,
        1,
        3,
        64,
        72,
        75,
        76,
        77,
        79,
        80,
        0x7f,
        75 | 1 << 32,
        75 | 2 << 32,
        75 | 1 << 8,
        u64::MAX,
    ];
    for word_value in forged {
        let object = word(word_value);
        for name in [
            "vec_len",
            "map_len",
            "bytes_len",
            "string_len",
            "obj_to_u64",
            "address_to_strkey",
            "compute_hash_sha256",
        ] {
            let body = f(name, std::slice::from_ref(&object));
            let body = if name == "obj_to_u64" { f("obj_from_u64", &[body]) } else { body };
            tally.compare(&data, &(name, body));
        }
        let args = [f("map_new", &[]), object.clone(), void()];
        tally.compare(&data, &("map_put", f("map_put", &args)));
        tally.compare(&data, &("get_contract_data", f("get_contract_data", &[sym("a"), object])));
    }
    // An object of one kind under the tag of another.
    let retagged =
        format!("(i64.or (i64.and {} (i64.const -256)) (i64.const 76))", f("vec_new", &[]));
    tally.compare(&data, &("map_len", f("map_len", &[retagged])));
    // A result that is no value, and an object that was never handed out.
    for result in
        [val(Val::from_u32(1)), word(75), word(75 | 1 << 32), word(u64::MAX), word(3 | 99 << 8)]
    {
        tally.compare(&data, &("dummy0", result));
    }
    println!("{} equal results, {} equal errors", tally.equal_values, tally.equal_errors);
    assert!(tally.equal_errors > 100, "{tally:?}");
}
