//! What the index learns, in the order in which it does.

use super::named::Named;
use orrery_ledger::domain::ContractId;
use orrery_store::RowCodec;

/// Something that was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Learnt {
    /// Who created this contract, or that it runs something else.
    Contract(ContractId),
    /// That this contract runs, or has run, something that it was not known to have.
    Ran(ContractId, Named),
    /// What this entry names, to which contracts refer (CAP-85): the SHA-256 of its key.
    Tag([u8; 32]),
}

const CONTRACT: u8 = 1;
const TAG: u8 = 2;
const RAN: u8 = 3;

impl RowCodec for Learnt {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Contract(contract) => (CONTRACT, *contract).write(to),
            Self::Tag(id) => (TAG, *id).write(to),
            Self::Ran(contract, named) => (RAN, (*contract, *named)).write(to),
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match <(u8, [u8; 32])>::read(bytes)? {
            (CONTRACT, id) => Some(Self::Contract(ContractId(id))),
            (TAG, id) => Some(Self::Tag(id)),
            (RAN, id) => Some(Self::Ran(ContractId(id), Named::read(bytes)?)),
            _ => None,
        }
    }
}
