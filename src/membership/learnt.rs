//! What the index learns, in the order in which it does.

use orrery_ledger::domain::ContractId;
use orrery_store::RowCodec;

/// Something that was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learnt {
    /// Who created this contract, or what it runs.
    Contract(ContractId),
    /// What this entry names, to which contracts refer (CAP-85): the SHA-256 of its key.
    Tag([u8; 32]),
}

const CONTRACT: u8 = 1;
const TAG: u8 = 2;

impl RowCodec for Learnt {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Contract(contract) => (CONTRACT, *contract).write(to),
            Self::Tag(id) => (TAG, *id).write(to),
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match <(u8, [u8; 32])>::read(bytes)? {
            (CONTRACT, id) => Some(Self::Contract(ContractId(id))),
            (TAG, id) => Some(Self::Tag(id)),
            _ => None,
        }
    }
}
