//! A contract that declares events, in several versions, and a network in which contracts with this
//! code are called and upgraded, also between two transactions of one ledger.

use orrery_ledger::domain::ContractId;
use orrery_sandbox::network::Request;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    Hash, LedgerKey, LedgerKeyContractCode, Limits, ScBytes, ScSpecEntry, ScVal, WriteXdr,
};

use crate::sandbox::sandbox;
use crate::specs::{SingleValue, Type, event};
use crate::values::symbol;
use crate::wasm_text::{Data, env_call, env_imports, sym, vec_of, word};

/// Section that the host requires of a contract; it names the newest protocol, 30.
const ENV_META: &str = r#"(@custom "contractenvmetav0" "\00\00\00\00\00\00\00\1e\00\00\00\00")"#;
/// Number of versions of the code.
const VERSIONS: u32 = 5;
/// Number of ledgers in which contracts are called and upgraded.
const CALLED_LEDGERS: usize = 24;

/// As [`version`], of a contract that also keeps what it says: in an entry for each value, in one that is
/// temporary, and in its instance.
pub fn remembering_version(number: u32) -> Vec<u8> {
    let now = env_call("get_ledger_sequence", &[]);
    let put = |key: String, durability: u64| {
        env_call("put_contract_data", &[key, now.clone(), word(durability)])
    };
    let said = vec_of(&[sym("said"), "(local.get 0)".to_owned()]);
    made(number, &[put(said, 1), put(sym("now"), 0), put(sym("last"), 2)])
}

/// A version of a contract, with the interface that it declares; the last one declares none.
pub fn version(number: u32) -> Vec<u8> {
    made(number, &[])
}

/// Returns a version of which `say` executes something before.
fn made(number: u32, before: &[String]) -> Vec<u8> {
    let spec = match number {
        0 => vec![event("said", &["said"], &[], SingleValue, &[("value", Type::U32)])],
        1 => vec![
            event("said", &["said"], &[], SingleValue, &[("value", Type::Symbol)]),
            event("told", &["said"], &[("to", Type::U32)], SingleValue, &[("value", Type::U32)]),
        ],
        2 => vec![event("spoken", &["said"], &[], SingleValue, &[("value", Type::Val)])],
        3 => vec![
            event("said", &["said"], &[], SingleValue, &[("note", Type::U32)]),
            event(
                "said_twice",
                &["said"],
                &[("who", Type::Val)],
                SingleValue,
                &[("value", Type::Val)],
            ),
        ],
        _ => Vec::new(),
    };
    let args = |count: usize| (0..count).map(|at| format!("(local.get {at})")).collect::<Vec<_>>();
    let one = args(2);
    let say = env_call("contract_event", &[vec_of(&[sym("said")]), one[0].clone()]);
    let before: String = before.iter().map(|call| format!("(drop {call})")).collect();
    let tell =
        env_call("contract_event", &[vec_of(&[sym("said"), one[0].clone()]), one[1].clone()]);
    let upgrade = env_call("update_current_contract_wasm", &[one[0].clone()]);
    let text = format!(
        "(module {} {}
         (func (export \"say\") (param i64) (result i64) {before} {say})
         (func (export \"tell\") (param i64 i64) (result i64) {tell})
         (func (export \"upgrade\") (param i64) (result i64) {upgrade})
         (func (export \"version\") (result i64) (i64.const {})) {ENV_META})",
        env_imports(),
        Data::default().memory(),
        (u64::from(number) << 32) | 4,
    );
    let code = wat::parse_str(text).unwrap();
    if spec.is_empty() { code } else { with_interface(code, &spec) }
}

/// Returns a module that declares this interface.
pub fn with_interface(code: Vec<u8>, spec: &[ScSpecEntry]) -> Vec<u8> {
    [code, section(spec)].concat()
}

fn section(spec: &[ScSpecEntry]) -> Vec<u8> {
    let spec: Vec<u8> = spec.iter().flat_map(|it| it.to_xdr(Limits::none()).unwrap()).collect();
    let name = b"contractspecv0";
    let content = [&[name.len() as u8][..], name, &spec].concat();
    let mut section = vec![0];
    let mut length = content.len();
    while length >= 0x80 {
        section.push(length as u8 | 0x80);
        length >>= 7;
    }
    section.push(length as u8);
    [section, content].concat()
}

fn hash(code: &[u8]) -> Hash {
    Hash(Sha256::digest(code).into())
}

/// Ledgers of the network [`local`](crate::sandbox::local) in which contracts with every version of
/// the code are called and upgraded, also between two calls of one ledger.
pub struct Upgraded {
    /// Raw ledgers, in order.
    pub ledgers: Vec<Vec<u8>>,
    /// The contracts.
    pub contracts: [ContractId; 3],
}

impl Upgraded {
    /// Makes the ledgers, which are always the same.
    pub fn made() -> Self {
        let (ledgers, contracts) = ledgers();
        Self { ledgers, contracts }
    }
}

fn ledgers() -> (Vec<Vec<u8>>, [ContractId; 3]) {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut sandbox = sandbox(31, 0..=1);
    let mut ledgers = Vec::new();
    let codes: Vec<Vec<u8>> = (0..VERSIONS).map(version).collect();
    let mut close = |requests: &[Request]| {
        ledgers.push(sandbox.next_ledger_with(requests).unwrap());
    };
    (2..=6).for_each(|_| close(&[]));
    codes.iter().for_each(|code| close(&[Request::Upload { code: code.clone() }]));
    for (salt, code) in [0, 4, 1].into_iter().enumerate() {
        let (salt, code) = ([salt as u8; 32], codes[code].clone());
        close(&[Request::Create { code, salt, arguments: Vec::new() }]);
    }
    let contracts = [0, 1, 2].map(|salt| sandbox.contract([salt; 32]).unwrap());
    let keys: Vec<LedgerKey> = codes
        .iter()
        .map(|code| LedgerKey::ContractCode(LedgerKeyContractCode { hash: hash(code) }))
        .collect();
    for ledger in 0..CALLED_LEDGERS {
        let mut requests = Vec::new();
        for number in 0..random.random_range(1..5) {
            let value = |random: &mut ChaCha8Rng| match random.random_range(0..3) {
                0 => symbol("word"),
                _ => ScVal::U32((10 * ledger + number) as u32),
            };
            let (function, arguments) = match random.random_range(0..6) {
                0..3 => ("say", vec![value(&mut random)]),
                3 => ("tell", vec![value(&mut random), value(&mut random)]),
                _ => {
                    let code = codes.choose(&mut random).unwrap();
                    let hash = ScBytes(hash(code).0.to_vec().try_into().unwrap());
                    ("upgrade", vec![ScVal::Bytes(hash)])
                }
            };
            let contract = *contracts.choose(&mut random).unwrap();
            let request = Request::Call { contract, function: function.to_owned(), arguments };
            requests
                .push(Request::WithExtraKeys { keys: keys.clone(), request: Box::new(request) });
        }
        ledgers.push(sandbox.next_ledger_with(&requests).unwrap());
    }
    (ledgers, contracts)
}
