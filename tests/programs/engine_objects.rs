//! Cases that call the environment's functions for other contracts, bytes, signatures, curves,
//! addresses and random numbers; and functions over memory, with positions and lengths from a
//! hostile guest.

use soroban_env_host::Val;

use crate::engine_values::{Case, small256};
use orrery_testkit::wasm_text::{Data, env_call, map_of, seq, sym, u32v, vec_of, word};

pub fn calls_and_bytes(data: &mut Data) -> Vec<Case> {
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
            env_call(name, &[object.clone(), u32v(2), out.clone(), u32v(4)]),
            env_call("bytes_new_from_linear_memory", &[out.clone(), u32v(6)]),
        ])
    };
    let one = |name: &'static str, args: &[String]| (name, env_call(name, args));
    vec![
        one("call", &[other(), sym("add"), args.clone()]),
        one("call", &[other(), sym("fail"), env_call("vec_new", &[])]),
        one("try_call", &[other(), sym("add"), args]),
        one("try_call", &[other(), sym("fail"), env_call("vec_new", &[])]),
        one("try_call", &[other(), sym("panic"), env_call("vec_new", &[])]),
        one("try_call", &[other(), sym("nothing"), env_call("vec_new", &[])]),
        one("serialize_to_bytes", &[vec_of(&[u32v(1), sym("a")])]),
        (
            "deserialize_from_bytes",
            env_call(
                "deserialize_from_bytes",
                &[env_call("serialize_to_bytes", &[vec_of(&[u32v(1), sym("a")])])],
            ),
        ),
        one("deserialize_from_bytes", std::slice::from_ref(&bytes)),
        ("bytes_copy_to_linear_memory", copied("bytes_copy_to_linear_memory", &bytes)),
        (
            "bytes_copy_from_linear_memory",
            env_call(
                "bytes_copy_from_linear_memory",
                &[bytes.clone(), u32v(8), u32v(1024), u32v(9)],
            ),
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

pub fn signatures(data: &mut Data) -> Vec<Case> {
    use ed25519_dalek::{Signer, SigningKey};
    let key = SigningKey::from_bytes(&[7; 32]);
    let message = data.bytes(b"signed");
    let ed_key = data.bytes(key.verifying_key().as_bytes());
    let ed_signature = data.bytes(&key.sign(b"signed").to_bytes());
    // r is the x coordinate of the secp256k1 generator, and s is 1: a key exists for which this
    // signature is valid.
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
    let empty = env_call("bytes_new", &[]);
    let one = |name: &'static str, args: &[String]| (name, env_call(name, args));
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
        cases.push((name, env_call(name, &[key, message.clone(), signature, empty.clone()])));
    }
    cases
}

pub fn curves(data: &mut Data) -> Vec<Case> {
    let one = |name: &'static str, args: &[String]| (name, env_call(name, args));
    let dst = data.bytes(b"a domain of tests");
    let message = data.bytes(b"message");
    let g1 = env_call("bls12_381_hash_to_g1", &[message.clone(), dst.clone()]);
    let g2 = env_call("bls12_381_hash_to_g2", &[message.clone(), dst.clone()]);
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
    // Generator of G2 of BN254, as in EIP-197.
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
        cases.extend(names.map(|name| (name, env_call(name, &[a.clone(), b.clone()]))));
    }
    for name in ["bls12_381_fr_pow", "bn254_fr_pow"] {
        cases.push((
            name,
            env_call(name, &[a.clone(), env_call("obj_from_u64", &[word(u64::MAX)])]),
        ));
    }
    for name in ["bls12_381_fr_inv", "bn254_fr_inv"] {
        cases.push((name, env_call(name, std::slice::from_ref(&a))));
        cases.push((name, env_call(name, &[small256(0)])));
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
        ("poseidon_permutation", env_call("poseidon_permutation", &rounds("BN254", rows(3)))),
        ("poseidon_permutation", env_call("poseidon_permutation", &rounds("BLS12_381", rows(3)))),
        ("poseidon2_permutation", env_call("poseidon2_permutation", &rounds("BN254", row(4, 3)))),
        ("poseidon2_permutation", env_call("poseidon2_permutation", &rounds("OTHER", row(4, 3)))),
    ]
}

pub fn addresses_and_random(data: &mut Data) -> Vec<Case> {
    let current = env_call("get_current_contract_address", &[]);
    let account = env_call(
        "strkey_to_address",
        &[data.string(b"GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ")],
    );
    let muxed = env_call(
        "strkey_to_muxed_address",
        &[data.string(b"MA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJUAAAAAAAAAAE2JUG6")],
    );
    let other = "(local.get $other)".to_owned();
    let seed = data.bytes(&[4; 32]);
    let one = |name: &'static str, args: &[String]| (name, env_call(name, args));
    vec![
        one("require_auth_for_args", &[account.clone(), vec_of(&[u32v(1)])]),
        one("require_auth", std::slice::from_ref(&account)),
        ("strkey_to_address", account.clone()),
        one("strkey_to_address", &[data.string(b"G")]),
        one("address_to_strkey", std::slice::from_ref(&current)),
        one("authorize_as_curr_contract", &[env_call("vec_new", &[])]),
        one("get_address_from_muxed_address", std::slice::from_ref(&muxed)),
        one("get_id_from_muxed_address", std::slice::from_ref(&muxed)),
        one("get_address_executable", &[current]),
        one("get_address_executable", &[other]),
        one("get_address_executable", &[account]),
        ("strkey_to_muxed_address", muxed.clone()),
        one("muxed_address_to_strkey", &[muxed]),
        one("get_delegated_signers_for_current_auth_check", &[]),
        one("delegate_account_auth", &[env_call("get_current_contract_address", &[])]),
        (
            "prng_reseed",
            seq(&[env_call("prng_reseed", &[seed]), env_call("prng_bytes_new", &[u32v(9)])]),
        ),
        one("prng_bytes_new", &[u32v(40)]),
        (
            "prng_u64_in_inclusive_range",
            env_call(
                "obj_from_u64",
                &[env_call("prng_u64_in_inclusive_range", &[word(5), word(1 << 60)])],
            ),
        ),
        one("prng_vec_shuffle", &[vec_of(&[u32v(1), u32v(2), u32v(3), u32v(4), u32v(5)])]),
    ]
}

/// Calls with positions and lengths outside of memory, or just inside.
pub fn hostile_memory(data: &mut Data) -> Vec<Case> {
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
            cases.push((name, env_call(name, &args)));
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
    // Words in memory that are not values: forged objects, unknown tags.
    for payload in [75, 75 | 1 << 8, u64::MAX, 0x7f, 60, 4 | 1 << 8, 75 | 5 << 32] {
        let at = u32v(data.place(&u64::to_le_bytes(payload)).0);
        let key = u32v(data.slices(&[b"a"]));
        cases.push((
            "vec_new_from_linear_memory",
            env_call("vec_new_from_linear_memory", &[at.clone(), u32v(1)]),
        ));
        cases.push((
            "map_new_from_linear_memory",
            env_call("map_new_from_linear_memory", &[key, at, u32v(1)]),
        ));
    }
    cases
}
