//! What a contract runs, as its instance entry says, and the stored form of that.

use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractExecutable, ContractExecutableExternalRef, Hash, LedgerEntry,
    LedgerEntryData, LedgerKey, LedgerKeyContractCode, LedgerKeyContractData, Limits, ReadXdr,
    ScAddress, ScVal, WriteXdr,
};

use orrery_ledger::domain::{self, ContractId, Hash32};
use orrery_store::RowCodec;

/// Limits for decoding entries: the nesting that the contract host allows, and some levels around it.
const LIMITS: Limits = Limits { depth: 600, len: 16 << 20 };

/// What a contract runs, or what an entry that contracts refer to names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Executable {
    /// The module with this hash.
    Code(Hash32),
    /// The contract of an asset, which is built into the network.
    Asset,
    /// What an entry of another contract names (CAP-85): the entry's key, as XDR `LedgerKey`.
    Reference(Vec<u8>),
    /// Nothing that could have an interface.
    Other,
}

/// What an entry held before a transaction changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// The transaction's metadata does not say.
    Unknown,
    /// There was no such entry.
    Absent,
    /// This value, in an entry that was last modified in the ledger `since`.
    Held {
        /// The value.
        executable: Executable,
        /// Ledger sequence.
        since: u32,
    },
}

const CODE: u8 = 1;
const ASSET: u8 = 2;
const REFERENCE: u8 = 3;
const OTHER: u8 = 4;

impl Executable {
    /// Returns the value that an entry holds, from its XDR `LedgerEntry`; `None` also when it is malformed.
    pub fn of_xdr(xdr: &[u8]) -> Option<Self> {
        entry(xdr).as_ref().and_then(Self::in_entry)
    }

    /// Returns the value that an entry holds; `None` for an entry that is neither an instance nor
    /// named by instances.
    pub fn in_entry(entry: &LedgerEntry) -> Option<Self> {
        let LedgerEntryData::ContractData(data) = &entry.data else { return None };
        match (&data.key, &data.val) {
            (ScVal::LedgerKeyContractInstance, ScVal::ContractInstance(instance)) => {
                Some(match &instance.executable {
                    ContractExecutable::Wasm(hash) => Self::Code(Hash32(hash.0)),
                    ContractExecutable::StellarAsset => Self::Asset,
                    ContractExecutable::ExternalRef(reference) => {
                        named_entry(reference).map_or(Self::Other, Self::Reference)
                    }
                })
            }
            (ScVal::ExecutableTag(_), ScVal::Bytes(bytes)) => Some(
                bytes.as_slice().try_into().map_or(Self::Other, |hash| Self::Code(Hash32(hash))),
            ),
            (ScVal::LedgerKeyContractInstance | ScVal::ExecutableTag(_), _) => Some(Self::Other),
            _ => None,
        }
    }
}

/// A key of an entry reaches to the end of the bytes.
impl RowCodec for Executable {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Code(hash) => (CODE, *hash).write(to),
            Self::Asset => to.push(ASSET),
            Self::Reference(key) => {
                to.push(REFERENCE);
                to.extend_from_slice(key);
            }
            Self::Other => to.push(OTHER),
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(match u8::read(bytes)? {
            CODE => Self::Code(Hash32::read(bytes)?),
            ASSET => Self::Asset,
            REFERENCE if !bytes.is_empty() => Self::Reference(Vec::read(bytes)?),
            OTHER => Self::Other,
            _ => return None,
        })
    }
}

/// Decodes the XDR of a ledger entry; `None` when it is malformed.
pub(super) fn entry(xdr: &[u8]) -> Option<LedgerEntry> {
    LedgerEntry::from_xdr(xdr, LIMITS).ok()
}

/// Returns the key of a contract's instance, as XDR `LedgerKey`.
pub(super) fn instance_key(contract: &ContractId) -> Option<Vec<u8>> {
    domain::instance_key(contract).to_xdr(Limits::none()).ok()
}

/// Returns the key of a module, as XDR `LedgerKey`.
pub(super) fn code_key(hash: &Hash32) -> Option<Vec<u8>> {
    let key = LedgerKey::ContractCode(LedgerKeyContractCode { hash: Hash(hash.0) });
    key.to_xdr(Limits::none()).ok()
}

/// Returns the key of the entry that a reference names (CAP-85).
pub(super) fn named_entry(reference: &ContractExecutableExternalRef) -> Option<Vec<u8>> {
    let key = LedgerKey::ContractData(LedgerKeyContractData {
        contract: reference.executable_owner.clone(),
        key: ScVal::ExecutableTag(reference.tag.clone()),
        durability: ContractDataDurability::Persistent,
    });
    key.to_xdr(Limits::none()).ok()
}

/// Returns the contract to which an entry with this XDR `LedgerKey` belongs.
pub(super) fn owner_of(ledger_key: &[u8]) -> Option<ContractId> {
    match LedgerKey::from_xdr(ledger_key, LIMITS).ok()? {
        LedgerKey::ContractData(LedgerKeyContractData {
            contract: ScAddress::Contract(contract),
            ..
        }) => Some(ContractId(contract.0.0)),
        _ => None,
    }
}

/// Returns the id under which rows about an entry are stored: the SHA-256 of its XDR `LedgerKey`.
pub fn id_of(ledger_key: &[u8]) -> [u8; 32] {
    Sha256::digest(ledger_key).into()
}
