//! A sandbox network of the newest protocol that uses everything its proposals add: references as
//! executables (CAP-85), sparse maps (CAP-86), muxed contract addresses (CAP-84), ledgers whose
//! transaction set was dropped (CAP-83) and close times in milliseconds (CAP-88). Contracts are
//! really executed.

use orrery_ledger::domain::{ContractId, LedgerSeq, Network};
use orrery_sandbox::network::{Request, Sandbox};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    Asset, ContractIdPreimage, Hash, HashIdPreimage, HashIdPreimageContractId, Int128Parts,
    LedgerCloseMeta, LedgerCloseMetaV2, LedgerKey, LedgerKeyContractCode, Limits, MuxedContract,
    ReadXdr, ScAddress, ScBytes, ScSpecEntry, ScSpecTypeDef, ScSpecTypeOption, ScSpecTypeUdt,
    ScSpecUdtStructFieldV0, ScSpecUdtStructV0, ScString, ScVal, TransactionMeta, WriteXdr,
};

use crate::sandbox::sandbox_of;
use crate::wasm_text::{Data, env_call, env_imports, imports, sym, u32v, vec_of, void, word};

/// Section that the host requires of a contract; it names the newest protocol, 30.
const ENV_META: &str = r#"(@custom "contractenvmetav0" "\00\00\00\00\00\00\00\1e\00\00\00\00")"#;
/// Tag of the executable reference.
pub const TAG: &str = "fleet";
/// Id in the muxed contract address.
pub const MUXED_ID: u64 = u64::MAX - 6;
/// First ledger with a close time in milliseconds.
pub const MILLISECONDS_FROM: LedgerSeq = LedgerSeq(5);
/// Ledgers per second from [`MILLISECONDS_FROM`] on.
pub const PER_SECOND: u32 = 4;
/// Maximum number of attempts to close a ledger whose transactions are in the wanted order, which
/// depends on their hashes.
const ATTEMPTS: usize = 40;

/// The network, its ledgers, and the contracts and ledgers that tests examine.
pub struct Newest {
    pub network: Network,
    /// `LedgerCloseMeta` of the ledgers from 2 on.
    pub ledgers: Vec<Vec<u8>>,
    sandbox: Sandbox,
    /// Contract that stores the reference.
    pub owner: ContractId,
    /// Contracts that were created from the reference, in this order.
    pub fleet: [ContractId; 2],
    /// Contract whose executable is its own code, then the reference, then its own code again.
    pub adopter: ContractId,
    /// Ledger in which the target of the reference changed between two transactions.
    pub repointed: LedgerSeq,
    /// Ledgers whose transaction set was dropped.
    pub dropped: Vec<LedgerSeq>,
    /// Ledger with a payment to a muxed contract address.
    pub paid: LedgerSeq,
    /// Ledgers in which the adopter switched to the reference, and back to its own code.
    pub adopted: [LedgerSeq; 2],
}

impl Newest {
    /// Makes the network; `busy` is the maximum number of generated transactions per ledger.
    pub fn made(network: Network, busy: usize) -> Self {
        let sandbox = sandbox_of(network.clone(), 23, 0..=busy);
        let sandbox = sandbox.with_milliseconds(MILLISECONDS_FROM, PER_SECOND);
        let id = |salt| sandbox.contract([salt; 32]).unwrap();
        let none = LedgerSeq(0);
        let mut made = Self {
            owner: id(1),
            fleet: [id(2), id(3)],
            adopter: id(4),
            repointed: none,
            dropped: Vec::new(),
            paid: none,
            adopted: [none; 2],
            ledgers: Vec::new(),
            sandbox,
            network,
        };
        made.close_all_ledgers();
        made
    }

    fn close_all_ledgers(&mut self) {
        (2..=6).for_each(|_| drop(self.close(&[])));
        let codes = [owner(), fleet(1), fleet(2), fleet(3)];
        for code in &codes {
            self.close(&[Request::Upload { code: code.clone() }]);
        }
        let create = |salt: u8, code: &[u8]| Request::Create {
            code: code.to_vec(),
            salt: [salt; 32],
            arguments: Vec::new(),
        };
        self.close(&[create(1, &codes[0]), create(4, &codes[3])]);
        self.drop_set();
        self.close(&[self.point(&codes[1])]);
        for salt in [2, 3] {
            self.close(&[Request::CreateFromReference {
                owner: self.owner,
                tag: TAG.to_owned(),
                salt: [salt; 32],
                arguments: Vec::new(),
            }]);
        }
        self.repoint([&codes[1], &codes[2]]);
        self.drop_set();
        let [adopted, left] = [
            self.call(self.adopter, "adopt", vec![contract(self.owner), text(TAG)]),
            self.call(self.adopter, "leave", vec![hash_of(&codes[3])]),
        ];
        for (index, request) in [adopted, left].into_iter().enumerate() {
            self.close(&[self.call(self.adopter, "which", vec![ScVal::Void])]);
            self.close(&[request]);
            self.adopted[index] = self.sandbox.latest_ledger();
        }
        self.close(&[self.call(self.adopter, "which", vec![ScVal::U32(9)])]);
        self.pay();
        self.drop_set();
        (0..2 * PER_SECOND).for_each(|_| drop(self.close(&[])));
    }

    /// Closes a ledger and returns the return values of its calls, in the order of application.
    fn close(&mut self, requests: &[Request]) -> Vec<ScVal> {
        let xdr = self.sandbox.next_ledger_with(requests).unwrap();
        self.ledgers.push(xdr);
        let meta = self.meta(self.sandbox.latest_ledger());
        let metas = meta.tx_processing.iter().map(|it| match &it.tx_apply_processing {
            TransactionMeta::V4(meta) => meta.soroban_meta.as_ref(),
            other => panic!("{}", other.name()),
        });
        metas.flatten().filter_map(|meta| meta.return_value.clone()).collect()
    }

    fn drop_set(&mut self) {
        self.ledgers.push(self.sandbox.next_ledger_without_set().unwrap());
        self.dropped.push(self.sandbox.latest_ledger());
    }

    /// Closes ledgers until one contains a call before and a call after the transaction that
    /// changes the target of the reference.
    fn repoint(&mut self, codes: [&[u8]; 2]) {
        let keys: Vec<LedgerKey> = codes
            .iter()
            .map(|code| LedgerKey::ContractCode(LedgerKeyContractCode { hash: hash(code) }))
            .collect();
        for attempt in 0..ATTEMPTS {
            let note = ScVal::U32(u32::try_from(attempt).unwrap());
            let which = |contract| Request::WithExtraKeys {
                keys: keys.clone(),
                request: Box::new(self.call(contract, "which", vec![note.clone()])),
            };
            let [one, other] = self.fleet;
            // The reference points at the first code at the beginning of every attempt.
            let requests = [which(one), which(other), self.point(codes[1])];
            let returned = self.close(&requests);
            let numbers: Vec<&ScVal> =
                returned.iter().filter(|value| matches!(value, ScVal::U32(_))).collect();
            assert_eq!(numbers.len(), 2, "{returned:?}");
            if numbers == [&ScVal::U32(1), &ScVal::U32(2)] {
                self.repointed = self.sandbox.latest_ledger();
                return;
            }
            self.close(&[self.point(codes[0])]);
        }
        panic!("no ledger has the wanted order");
    }

    /// An account pays one stroop to a muxed address of the owner's contract.
    fn pay(&mut self) {
        let payer = self.sandbox.accounts()[0].clone();
        let native = self.native();
        let ScVal::Address(ScAddress::Contract(contract_id)) = contract(self.owner) else {
            unreachable!("that is what it makes")
        };
        let to = ScAddress::MuxedContract(MuxedContract { id: MUXED_ID, contract_id });
        let amount = ScVal::I128(Int128Parts { hi: 0, lo: 1 });
        let arguments = vec![ScVal::Address(payer), ScVal::Address(to), amount];
        self.close(&[self.call(native, "transfer", arguments)]);
        self.paid = self.sandbox.latest_ledger();
    }

    /// Contract of the native asset; its id follows from the network id (CAP-46).
    pub fn native(&self) -> ContractId {
        let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
            network_id: Hash(self.network.id().0),
            contract_id_preimage: ContractIdPreimage::Asset(Asset::Native),
        });
        ContractId(Sha256::digest(preimage.to_xdr(Limits::none()).unwrap()).into())
    }

    fn point(&self, code: &[u8]) -> Request {
        self.call(self.owner, "point", vec![text(TAG), hash_of(code)])
    }

    fn call(&self, contract: ContractId, function: &str, arguments: Vec<ScVal>) -> Request {
        Request::Call { contract, function: function.to_owned(), arguments }
    }

    /// Decodes a ledger.
    pub fn meta(&self, sequence: LedgerSeq) -> LedgerCloseMetaV2 {
        let xdr = &self.ledgers[sequence.0 as usize - 2];
        match LedgerCloseMeta::from_xdr(xdr, Limits::none()).unwrap() {
            LedgerCloseMeta::V2(meta) => meta,
            other => panic!("{}", other.name()),
        }
    }
}

fn hash(code: &[u8]) -> Hash {
    Hash(Sha256::digest(code).into())
}

fn hash_of(code: &[u8]) -> ScVal {
    ScVal::Bytes(ScBytes(hash(code).0.to_vec().try_into().unwrap()))
}

fn text(text: &str) -> ScVal {
    ScVal::String(ScString(text.try_into().unwrap()))
}

fn contract(id: ContractId) -> ScVal {
    ScVal::Address(ScAddress::Contract(stellar_xdr::ContractId(Hash(id.0))))
}

/// Code of the contract that stores references: `point(tag, hash)`.
fn owner() -> Vec<u8> {
    let tag = env_call("create_executable_tag", &["(local.get 0)".to_owned()]);
    let put = env_call("put_contract_data", &[tag, "(local.get 1)".to_owned(), word(1)]);
    wat::parse_str(format!(
        "(module {} (memory (export \"memory\") 1)
         (func (export \"point\") (param i64 i64) (result i64) {put}) {ENV_META})",
        env_imports()
    ))
    .unwrap()
}

/// Code that a reference points at: `which(note)` returns `number` and emits it in an event
/// together with sparse maps, which contain `note` unless it is void.
pub fn fleet(number: u32) -> Vec<u8> {
    module(number, false)
}

/// The same code as an indexing program, which emits a struct `Answer` with the content of the
/// event, and a struct `Born` in the constructor.
pub fn program(number: u32) -> Vec<u8> {
    let mut module = module(number, true);
    let spec: Vec<u8> = spec().iter().flat_map(|it| it.to_xdr(Limits::none()).unwrap()).collect();
    let name = b"contractspecv0";
    let section = [&[u8::try_from(name.len()).unwrap()][..], name, &spec].concat();
    module.push(0);
    let mut length = section.len();
    while length >= 0x80 {
        module.push(length as u8 | 0x80);
        length >>= 7;
    }
    module.push(length as u8);
    module.extend(section);
    module
}

fn module(number: u32, emits: bool) -> Vec<u8> {
    let mut data = Data::default();
    let vals = data.place(&[0; 32]).0;
    let inner_keys = data.slices(&[b"x", b"y"]);
    let keys = data.slices(&[b"a", b"b", b"inner", b"number"]);
    let born_keys = data.slices(&[b"number"]);
    let put = |values: &[String]| -> String {
        let one = |(at, value): (usize, &String)| {
            format!("(i64.store (i32.const {}) {value})", vals as usize + 8 * at)
        };
        values.iter().enumerate().map(one).collect()
    };
    let sparse = |keys: u32, count: u32| {
        let at = [u32v(keys), u32v(vals), u32v(count)];
        env_call("sparse_map_new_from_linear_memory", &at)
    };
    let emit = |target: &str, row: &str| match emits {
        true => format!("(drop (call $emit {} {row}))", sym(target)),
        false => String::new(),
    };
    let note = "(local.get 0)".to_owned();
    let event =
        env_call("contract_event", &[vec_of(&[sym("answer")]), "(local.get $row)".to_owned()]);
    let kept = env_call("put_contract_data", &[sym("born"), u32v(number), word(1)]);
    let tag = env_call("create_executable_tag", &["(local.get 1)".to_owned()]);
    let adopt =
        env_call("update_current_contract_executable_ref", &["(local.get 0)".to_owned(), tag]);
    let leave = env_call("update_current_contract_wasm", &["(local.get 0)".to_owned()]);
    let nothing = void();
    wat::parse_str(format!(
        "(module {} {}
         (func (export \"__constructor\") (result i64) (local $row i64)
            {} (local.set $row {}) (drop {kept}) {} {nothing})
         (func (export \"which\") (param i64) (result i64) (local $inner i64) (local $row i64)
            {} (local.set $inner {}) {} (local.set $row {}) (drop {event}) {} {})
         (func (export \"adopt\") (param i64 i64) (result i64) {adopt})
         (func (export \"leave\") (param i64) (result i64) {leave}) {ENV_META})",
        if emits { imports() } else { env_imports() },
        data.memory(),
        put(&[u32v(number)]),
        sparse(born_keys, 1),
        emit("born", "(local.get $row)"),
        put(&[note.clone(), void()]),
        sparse(inner_keys, 2),
        put(&[note, void(), "(local.get $inner)".to_owned(), u32v(number)]),
        sparse(keys, 4),
        emit("answer", "(local.get $row)"),
        u32v(number),
    ))
    .unwrap()
}

/// `Answer { a: Option<u32>, b: Option<String>, inner: Inner, number: u32 }`,
/// `Inner { x: Option<u32>, y: Option<u32> }`, `Born { number: u32 }`
fn spec() -> Vec<ScSpecEntry> {
    let option = |of: ScSpecTypeDef| {
        ScSpecTypeDef::Option(Box::new(ScSpecTypeOption { value_type: Box::new(of) }))
    };
    let inner = ScSpecTypeDef::Udt(ScSpecTypeUdt { name: "Inner".try_into().unwrap() });
    let number = || option(ScSpecTypeDef::U32);
    let structs: [(&str, Vec<(&str, ScSpecTypeDef)>); 3] = [
        (
            "Answer",
            vec![
                ("a", number()),
                ("b", option(ScSpecTypeDef::String)),
                ("inner", inner),
                ("number", ScSpecTypeDef::U32),
            ],
        ),
        ("Born", vec![("number", ScSpecTypeDef::U32)]),
        ("Inner", vec![("x", number()), ("y", number())]),
    ];
    let field = |(name, type_): (&str, ScSpecTypeDef)| ScSpecUdtStructFieldV0 {
        doc: Default::default(),
        name: name.try_into().unwrap(),
        type_,
    };
    let entry = |(name, fields): (&str, Vec<(&str, ScSpecTypeDef)>)| {
        let fields: Vec<_> = fields.into_iter().map(field).collect();
        ScSpecEntry::UdtStructV0(ScSpecUdtStructV0 {
            doc: Default::default(),
            lib: Default::default(),
            name: name.try_into().unwrap(),
            fields: fields.try_into().unwrap(),
        })
    };
    structs.into_iter().map(entry).collect()
}
