//! Ledgers with the events of contracts that declare them, as a busy asset emits them. The code and
//! the instances of the contracts are created in the first transaction; an upgrade replaces the code
//! of one contract by code that declares one more event, which the contract emits from then on.

use std::cell::Cell;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use orrery::domain::ContractId;
use orrery_testkit::specs::{Map, SingleValue, Type, event};
use orrery_testkit::upgraded::with_interface;
use orrery_testkit::values::{bytes, fields, i128, string, symbol};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, ContractCodeEntry, ContractCodeEntryExt, ContractDataDurability, ContractDataEntry,
    ContractEvent, ContractExecutable, ContractId as XdrContractId, ExtensionPoint, Hash,
    LedgerCloseMetaV2, LedgerEntry, LedgerEntryChange, LedgerEntryData, LedgerEntryExt, PublicKey,
    ScAddress, ScContractInstance, ScVal, Uint256,
};

use super::calls::Calls;
use super::lookups::{contract_event, digest};
use super::measure::sized;
use super::packed;
use super::recorded::{Recorded, write_record};
use super::variation::{edit, spread};
use orrery_testkit::account_events::Made;

/// Transactions per ledger of a busy network and of a usual one, and events per transaction.
const TRANSACTIONS: usize = sized(250, 5);
const USUALLY: usize = sized(25, 5);
const IN_A_TRANSACTION: usize = 10;
/// Ledgers before an upgrade in the first ledgers, and after one in the last.
const AWAY_FROM_END: u64 = 2;
/// One event in as many is another than a transfer: one that has values of other types, or, after an
/// upgrade, the new one.
const NOTED_EVERY: u64 = 25;
const BURNED_EVERY: u64 = 50;

/// When the contract is upgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgrade {
    Never,
    InFirstLedgers,
    InLastLedgers,
}

/// The load: which contracts emit how many events.
#[derive(Debug, Clone, Copy)]
pub struct Declaring {
    contracts: u64,
    ledgers: u64,
    /// Transactions per ledger.
    transactions: usize,
    /// Ledger, counted from 0, whose last transaction upgrades the contract.
    upgrade: Option<u64>,
}

impl Declaring {
    /// At least this number of events: whole ledgers.
    pub fn new(contracts: u64, upgrade: Upgrade, events: u64) -> Self {
        let in_a_ledger = (TRANSACTIONS * IN_A_TRANSACTION) as u64;
        let ledgers = events.div_ceil(in_a_ledger).max(2 * AWAY_FROM_END + 1);
        let upgrade = match upgrade {
            Upgrade::Never => None,
            Upgrade::InFirstLedgers => Some(AWAY_FROM_END),
            Upgrade::InLastLedgers => Some(ledgers - 1 - AWAY_FROM_END),
        };
        Self { contracts, ledgers, transactions: TRANSACTIONS, upgrade }
    }

    /// A contract in this number of ledgers as a network usually closes them.
    pub fn usually(ledgers: u64) -> Self {
        Self { contracts: 1, ledgers, transactions: USUALLY, upgrade: None }
    }

    /// Returns the number of events per ledger.
    pub fn in_a_ledger(&self) -> u64 {
        (self.transactions * IN_A_TRANSACTION) as u64
    }

    /// Returns the number of events of the contracts.
    pub fn events(&self) -> u64 {
        self.ledgers * self.in_a_ledger()
    }

    /// Returns the contracts.
    pub fn contracts(&self) -> impl Iterator<Item = ContractId> {
        (0..self.contracts).map(contract)
    }

    /// Writes the ledgers to a file, as a stream that `orrery import` reads.
    pub fn write(&self, recorded: &Recorded, file: &Path) -> std::io::Result<()> {
        let (mut stream, mut written) = (BufWriter::new(File::create(file)?), Ok(()));
        self.each(recorded, |ledger| {
            if written.is_ok() {
                written = write_record(&mut stream, &ledger);
            }
        });
        written?;
        stream.into_inner().map_err(|error| error.into_error())?.sync_all()
    }

    /// Visits the XDR of the ledgers.
    pub fn each(&self, recorded: &Recorded, mut visit: impl FnMut(Vec<u8>)) {
        let mut calls = Calls::new(recorded.network.id());
        let change = |number: usize, ledger: &mut LedgerCloseMetaV2| {
            if number == 0 {
                calls.change(ledger, self.created());
                // The ledger's own transactions come after it.
                edit(&mut ledger.tx_processing, |transactions| transactions.rotate_right(1));
            }
            if Some(number as u64) == self.upgrade {
                calls.change(ledger, upgraded());
            }
        };
        let (shape, event) =
            ([self.transactions, IN_A_TRANSACTION], |number| self.event(number - 1));
        let copies = self.ledgers.div_ceil(recorded.ledgers.len() as u64);
        let visited = Cell::new(0);
        packed::each_with(recorded, copies, shape, event, change, |ledger| {
            if visited.replace(visited.get() + 1) < self.ledgers {
                visit(ledger);
            }
        });
    }

    /// Returns the event with this number, from 0.
    fn event(&self, number: u64) -> ContractEvent {
        let is_upgraded = self.upgrade.is_some_and(|ledger| number / self.in_a_ledger() > ledger);
        let made = match number {
            _ if number.is_multiple_of(NOTED_EVERY) => noted(number),
            _ if is_upgraded && number % BURNED_EVERY == 1 => {
                Made::new([symbol("burned"), account(2 * number)], amount(number))
            }
            _ => {
                let [from, to] = [2 * number, 2 * number + 1].map(account);
                Made::new([symbol("transfer"), from, to], amount(number))
            }
        };
        contract_event(contract(number % self.contracts), made)
    }

    /// Returns the changes that create the contracts and their code.
    fn created(&self) -> Vec<LedgerEntryChange> {
        let code = module(false);
        let instances = self.contracts().map(|contract| instance(contract, &code));
        let entries: Vec<_> = instances.chain([code_entry(&code)]).collect();
        entries.into_iter().map(LedgerEntryChange::Created).collect()
    }
}

/// Returns the changes that upgrade the first contract.
fn upgraded() -> Vec<LedgerEntryChange> {
    let [before, after] = [false, true].map(module);
    vec![
        LedgerEntryChange::Created(code_entry(&after)),
        LedgerEntryChange::State(instance(contract(0), &before)),
        LedgerEntryChange::Updated(instance(contract(0), &after)),
    ]
}

fn contract(number: u64) -> ContractId {
    ContractId(digest("declaring", number))
}

/// Returns a module that declares the events.
fn module(is_upgraded: bool) -> Vec<u8> {
    let (address, amount) = (Type::Address, [("amount", Type::I128)]);
    let accounts = [("from", address.clone()), ("to", address.clone())];
    let notes = [("code", Type::Bytes), ("kind", Type::Symbol), ("memo", Type::String)];
    let mut events = vec![
        event("transfer", &["transfer"], &accounts, SingleValue, &amount),
        event("noted", &["noted"], &[("sequence", Type::U64)], Map, &notes),
    ];
    if is_upgraded {
        events.push(event("burned", &["burned"], &[("from", address)], SingleValue, &amount));
    }
    with_interface(b"\0asm\x01\0\0\0".to_vec(), &events)
}

fn noted(number: u64) -> Made {
    let kind = ["opened", "changed", "closed"][(number / NOTED_EVERY % 3) as usize];
    let notes = [
        ("code", bytes(&spread(number)[..16])),
        ("kind", symbol(kind)),
        ("memo", string(format!("note {number} of an account"))),
    ];
    Made::new([symbol("noted"), ScVal::U64(number << 20)], fields(notes))
}

fn account(number: u64) -> ScVal {
    let key = PublicKey::PublicKeyTypeEd25519(Uint256(spread(number)));
    ScVal::Address(ScAddress::Account(AccountId(key)))
}

fn amount(number: u64) -> ScVal {
    let amount = spread(u64::MAX - number);
    i128(i128::from(u64::from_be_bytes(amount[..8].try_into().expect("eight bytes")) >> 16))
}

fn code_entry(code: &[u8]) -> LedgerEntry {
    entry(LedgerEntryData::ContractCode(ContractCodeEntry {
        ext: ContractCodeEntryExt::V0,
        hash: Hash(Sha256::digest(code).into()),
        code: code.to_vec().try_into().expect("a small module"),
    }))
}

fn instance(contract: ContractId, code: &[u8]) -> LedgerEntry {
    let executable = ContractExecutable::Wasm(Hash(Sha256::digest(code).into()));
    entry(LedgerEntryData::ContractData(ContractDataEntry {
        ext: ExtensionPoint::V0,
        contract: ScAddress::Contract(XdrContractId(Hash(contract.0))),
        key: ScVal::LedgerKeyContractInstance,
        durability: ContractDataDurability::Persistent,
        val: ScVal::ContractInstance(ScContractInstance { executable, storage: None }),
    }))
}

fn entry(data: LedgerEntryData) -> LedgerEntry {
    LedgerEntry { last_modified_ledger_seq: 1, data, ext: LedgerEntryExt::V0 }
}
