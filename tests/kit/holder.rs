//! A contract that holds what it is told to hold, and a network in which it was told a lot.

use orrery_ledger::domain::ContractId;
use orrery_sandbox::network::{Request, Sandbox};
use stellar_xdr::ScVal;

use crate::sandbox::sandbox;
use crate::specs::{self, Type};
use crate::upgraded::with_interface;
use crate::values::{fields, i128, list, symbol};
use crate::wasm_text::{Data, env_call, env_imports, seq, void};

/// Section that the host requires of a contract; it names the newest protocol, 30.
const ENV_META: &str = r#"(@custom "contractenvmetav0" "\00\00\00\00\00\00\00\1e\00\00\00\00")"#;
/// Number of balances.
pub const BALANCES: u32 = 12;

/// Where a contract holds something: the storage types of the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Temporary = 0,
    Persistent = 1,
    Instance = 2,
}

/// Ledgers of the network [`local`](crate::sandbox::local) with two contracts of this code.
pub struct Holders {
    /// Raw ledgers, in order.
    pub ledgers: Vec<Vec<u8>>,
    /// The contract that holds a lot.
    pub contract: ContractId,
    /// Another one, which holds one entry.
    pub other: ContractId,
}

/// The key of a balance.
pub fn balance_key(number: u32) -> ScVal {
    list([symbol("Balance"), ScVal::U32(number)])
}

/// The value of a balance.
pub fn balance(amount: i128, number: u32) -> ScVal {
    fields([("amount", self::i128(amount)), ("number", ScVal::U32(number))])
}

/// The code: `put`, `del` and `extend`, and the types of what it holds.
pub fn code() -> Vec<u8> {
    let kind = |at: usize| format!("(i64.shr_u (local.get {at}) (i64.const 32))");
    let get = |at: usize| format!("(local.get {at})");
    let put = env_call("put_contract_data", &[get(0), get(1), kind(2)]);
    let del = env_call("del_contract_data", &[get(0), kind(1)]);
    let extend = env_call("extend_contract_data_ttl", &[get(0), kind(1), get(2), get(2)]);
    let text = format!(
        "(module {} {}
         (func (export \"put\") (param i64 i64 i64) (result i64) {})
         (func (export \"del\") (param i64 i64) (result i64) {})
         (func (export \"extend\") (param i64 i64 i64) (result i64) {}) {ENV_META})",
        env_imports(),
        Data::default().memory(),
        seq(&[put, void()]),
        seq(&[del, void()]),
        seq(&[extend, void()]),
    );
    let named = |name: &str, types: Option<Vec<Type>>| (name.to_owned(), types);
    let field = |name: &str, kind: Type| (name.to_owned(), kind);
    let spec = [
        specs::union(
            "Key",
            &[
                named("Admin", None),
                named("Balance", Some(vec![Type::U32])),
                named("Lease", Some(vec![Type::Symbol])),
            ],
        ),
        specs::structure("Balance", &[field("amount", Type::I128), field("number", Type::U32)]),
        specs::structure("Pair", &[field("0", Type::U32), field("1", Type::Symbol)]),
        specs::numbers("Mode", &[1, 2]),
    ];
    with_interface(wat::parse_str(text).unwrap(), &spec)
}

/// Returns the request that tells a contract to hold something.
pub fn put(contract: ContractId, place: Place, key: ScVal, value: ScVal) -> Request {
    call(contract, "put", vec![key, value, ScVal::U32(place as u32)])
}

/// Returns the request that tells a contract to hold something no more.
pub fn del(contract: ContractId, place: Place, key: ScVal) -> Request {
    call(contract, "del", vec![key, ScVal::U32(place as u32)])
}

/// Returns the request that extends the time to live of an entry to a number of ledgers.
pub fn extend(contract: ContractId, place: Place, key: ScVal, ledgers: u32) -> Request {
    call(contract, "extend", vec![key, ScVal::U32(place as u32), ScVal::U32(ledgers)])
}

fn call(contract: ContractId, function: &str, arguments: Vec<ScVal>) -> Request {
    Request::Call { contract, function: function.to_owned(), arguments }
}

impl Holders {
    /// Makes the ledgers, which are always the same; `idle` of them follow the last request.
    pub fn made(idle: u32) -> Self {
        let mut sandbox = sandbox(37, 0..=1);
        let mut ledgers = Vec::new();
        (2..=6).for_each(|_| ledgers.push(sandbox.next_ledger().unwrap()));
        let code = code();
        let mut close = |sandbox: &mut Sandbox, requests: &[Request]| {
            ledgers.push(sandbox.next_ledger_with(requests).unwrap());
        };
        close(&mut sandbox, &[Request::Upload { code: code.clone() }]);
        for salt in [[1; 32], [2; 32]] {
            let create = Request::Create { code: code.clone(), salt, arguments: Vec::new() };
            close(&mut sandbox, &[create]);
        }
        let [contract, other] = [[1; 32], [2; 32]].map(|salt| sandbox.contract(salt).unwrap());
        for requests in requests(contract, other) {
            close(&mut sandbox, &requests);
        }
        (0..idle).for_each(|_| ledgers.push(sandbox.next_ledger().unwrap()));
        Self { ledgers, contract, other }
    }
}

/// Requests of one ledger after another.
fn requests(contract: ContractId, other: ContractId) -> Vec<Vec<Request>> {
    use Place::{Instance, Persistent, Temporary};

    let admin = || list([symbol("Admin")]);
    let lease = |of: &str| list([symbol("Lease"), symbol(of)]);
    let plain = || symbol("Plain");
    let put = |place, key, value| put(contract, place, key, value);
    let mut all = vec![
        vec![put(Instance, admin(), symbol("alice"))],
        vec![put(Instance, symbol("Mode"), ScVal::U32(2))],
        vec![self::put(other, Persistent, symbol("Only"), ScVal::Bool(true))],
    ];
    for number in 0..BALANCES {
        let value = balance(1_000 + i128::from(number), number);
        all.push(vec![put(Persistent, balance_key(number), value)]);
    }
    all.extend([
        vec![
            put(Persistent, plain(), ScVal::U32(1)),
            put(Temporary, lease("short"), ScVal::U32(5)),
        ],
        vec![put(Temporary, plain(), ScVal::U32(2)), put(Temporary, lease("long"), ScVal::U32(6))],
        vec![extend(contract, Temporary, lease("long"), 400)],
        vec![put(Persistent, ScVal::U32(9), list([symbol("Pair"), ScVal::U32(1)]))],
        vec![put(Persistent, list([symbol("Pair")]), list([ScVal::U32(4), symbol("five")]))],
        vec![put(Persistent, list([symbol("Mode")]), ScVal::U32(7))],
        // The same value again, another one, and none.
        vec![put(Persistent, balance_key(0), balance(1_000, 0))],
        vec![put(Persistent, balance_key(1), balance(2_000, 1))],
        vec![del(contract, Persistent, balance_key(2))],
        vec![extend(contract, Persistent, balance_key(3), 900)],
        vec![put(Instance, admin(), symbol("bob"))],
        vec![del(contract, Instance, symbol("Mode"))],
        vec![put(Instance, symbol("Mode"), ScVal::U32(1))],
        vec![put(Persistent, symbol("Only"), ScVal::Bool(false))],
    ]);
    all
}
