//! Changes of contract data as a project has them, and as the naive model of the kit tells them.

use stellar_xdr::{ContractDataDurability, LedgerKey, Limits, ScVal, WriteXdr};

use super::*;
use crate::events::{LoggedEvents, OfProject, in_this_form, table_rows};
use orrery_testkit::storage as naive;

/// A change as both sides tell it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    pub ledger: u32,
    pub order: u32,
    pub key_hash: [u8; 32],
    pub contract: [u8; 32],
    pub tx: [u8; 32],
    pub change: &'static str,
    pub durability: &'static str,
    pub live_until: Option<u32>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

fn xdr(value: &ScVal) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap()
}

impl Told {
    /// A row of the model, which knows every key.
    pub fn of_model(row: &naive::Row) -> Self {
        let LedgerKey::ContractData(key) = &row.key else { panic!("{row:?}") };
        Self {
            ledger: row.ledger,
            order: row.tx.map_or(orrery_contract_data::LAST_ORDER, |tx| tx.order),
            key_hash: row.key_hash,
            contract: naive::contract_of(&row.key).unwrap(),
            tx: row.tx.map_or([0; 32], |tx| tx.hash),
            change: row.kind.name(),
            durability: match key.durability {
                ContractDataDurability::Temporary => "temporary",
                ContractDataDurability::Persistent => "persistent",
            },
            live_until: row.live_until,
            key: Some(xdr(&key.key)),
            value: row.value.as_ref().map(|value| xdr(value.data().unwrap())),
        }
    }

    /// What the model says of an entry at the end of the ledger before `from`.
    pub fn found(entry: &naive::Entry, from: u32) -> Self {
        let LedgerKey::ContractData(key) = &entry.present.key else { panic!() };
        Self {
            ledger: from,
            order: 0,
            key_hash: entry.key_hash,
            contract: naive::contract_of(&entry.present.key).unwrap(),
            tx: [0; 32],
            change: "found",
            durability: match key.durability {
                ContractDataDurability::Temporary => "temporary",
                ContractDataDurability::Persistent => "persistent",
            },
            live_until: entry.present.live_until,
            key: Some(xdr(&key.key)),
            value: Some(xdr(entry.present.value.data().unwrap())),
        }
    }
}

/// Returns the changes that are rows of a project, in their order, and checks that the tables have as many.
pub fn told_of(scene: &Parts, id: ProgramId) -> Vec<Told> {
    let manifest = scene.manifest(id);
    let project = manifest.events.as_ref().unwrap();
    let (mut told, mut made) = (Vec::new(), 0);
    for (at, stored) in scene.rows(id) {
        let of = OfProject::of(&manifest);
        let rows = table_rows(&of, project, &scene.runner.events, (at, &stored)).unwrap();
        made += rows.iter().filter(|it| it.emit.target == "storage_changes").count();
        let stored = in_this_form(&stored).unwrap();
        let read = LoggedEvents::read(&stored).unwrap();
        for change in read.changes.rows() {
            let change = change.unwrap();
            let is_found = at.ledger.0 == 0;
            told.push(Told {
                ledger: if is_found { project.from } else { at.ledger.0 },
                order: if is_found { 0 } else { at.application_order },
                key_hash: change.key_hash.0,
                contract: change.contract.0,
                tx: *read.transaction.as_bytes(),
                change: change.kind.name(),
                durability: change.durability.name(),
                live_until: change.live_until,
                key: change.key.map(<[u8]>::to_vec),
                value: change.value.map(<[u8]>::to_vec),
            });
        }
    }
    assert_eq!(made, told.len());
    told.sort_unstable();
    told
}

/// An evicted key may be one that no stored ledger names but in its eviction.
pub fn forget_keys_of_evictions(told: &[Told], expected: &mut [Told]) {
    for (told, expected) in told.iter().zip(expected) {
        if told.change == "evicted" && told.key.is_none() {
            expected.key = None;
        }
    }
}
