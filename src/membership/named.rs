//! What instances of contracts name.

use orrery_executables::{Executable, facts};
use orrery_ledger::domain::Hash32;
use orrery_store::RowCodec;

/// What an instance of a contract, or an event, names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Named {
    /// The module with this hash.
    Code(Hash32),
    /// The entry of another contract (CAP-85), by the SHA-256 of its key.
    Tag([u8; 32]),
}

const CODE: u8 = 1;
const TAG: u8 = 2;

impl Named {
    /// Returns what an executable of a contract names; `None` where that is nothing.
    pub fn of(executable: &Executable) -> Option<Self> {
        match executable {
            Executable::Code(hash) => Some(Self::Code(*hash)),
            Executable::Reference(key) => Some(Self::Tag(facts::id_of(key))),
            Executable::Asset | Executable::Other => None,
        }
    }
}

impl RowCodec for Named {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Code(hash) => (CODE, *hash).write(to),
            Self::Tag(id) => (TAG, *id).write(to),
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match <(u8, [u8; 32])>::read(bytes)? {
            (CODE, hash) => Some(Self::Code(Hash32(hash))),
            (TAG, id) => Some(Self::Tag(id)),
            _ => None,
        }
    }
}
