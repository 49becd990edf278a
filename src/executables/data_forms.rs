//! How keys and values of contract data are written in plain JSON: by the interfaces that the contract had.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::reader::{InterfaceReader, Tried};
use orrery_interfaces::{PlainData, StorageKeys};
use orrery_ledger::domain::{ContractId, Hash32};
use orrery_store::TransactionPosition;

/// Maximum number of interfaces whose unions are kept.
const MOST_KEPT: usize = 16;

/// The forms of several contracts' data, for one answer.
pub struct DataForms<'a> {
    names: &'a InterfaceReader<'a>,
    /// Unions of interfaces, by the hash of the module; zeros for the contract of an asset.
    unions: RefCell<HashMap<Hash32, Rc<StorageKeys>>>,
}

/// The interfaces by which a contract's data is written, of which the first that fits counts.
#[derive(Debug, Default)]
pub struct DataForm {
    tried: Vec<(Tried, Rc<StorageKeys>)>,
    is_pending: bool,
}

impl<'a> DataForms<'a> {
    /// Begins an answer.
    pub fn new(names: &'a InterfaceReader<'a>) -> Self {
        Self { names, unions: RefCell::default() }
    }

    /// Returns how a contract's data is written that a transaction has changed.
    pub fn of(&self, contract: &ContractId, at: TransactionPosition) -> DataForm {
        let lacked = self.names.lacked();
        let tried = self.names.tried(contract, at);
        let tried = tried.iter().map(|tried| (tried.clone(), self.unions_of(tried))).collect();
        DataForm { tried, is_pending: self.names.lacked() > lacked }
    }

    fn unions_of(&self, tried: &Tried) -> Rc<StorageKeys> {
        let module = match tried {
            Tried::Asset => Hash32::default(),
            Tried::Code(hash, _) => *hash,
        };
        let mut known = self.unions.borrow_mut();
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        let of = || Rc::new(StorageKeys::of(tried.interface()));
        Rc::clone(known.entry(module).or_insert_with(of))
    }
}

impl DataForm {
    /// Whether types may be known later that are not known now.
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Returns what writes keys and values.
    pub fn plain(&self) -> PlainData<'_> {
        let each = self.tried.iter();
        PlainData(each.map(|(tried, unions)| (tried.interface().types(), &**unions)).collect())
    }
}
