//! Interfaces that declare events, and their stored form.

use orrery_ledger::domain::Hash32;

use crate::rows::{Damaged, Reader};

/// Which interface declares it, in the bits above those.
pub(super) const BY_NONE: u8 = 0;
const BY_ASSET: u8 = 1 << 2;
const BY_CODE: u8 = 2 << 2;
const BY_SUPPLIED: u8 = 3 << 2;
const BY: u8 = 3 << 2;

/// An interface that declares an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeclaredBy {
    /// The built-in one of the contracts of assets.
    Asset,
    /// That of the module with this hash.
    Code(Hash32),
    /// The supplied one with this SHA-256.
    Supplied(Hash32),
}

impl DeclaredBy {
    /// Returns its number in the stored form, and the hash that follows.
    pub fn stored(&self) -> (u8, Option<&Hash32>) {
        match self {
            Self::Asset => (BY_ASSET, None),
            Self::Code(hash) => (BY_CODE, Some(hash)),
            Self::Supplied(hash) => (BY_SUPPLIED, Some(hash)),
        }
    }

    /// Writes the stored form of one that is known.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let (by, hash) = self.stored();
        to.push(by);
        to.extend_from_slice(hash.map_or(&[], |hash| hash.as_bytes().as_slice()));
    }

    /// Reads what [`Self::write`] wrote.
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let [known] = from.array()?;
        Self::of_kind(known, from)?.ok_or(Damaged)
    }

    /// Reads the hash of the one whose number a byte has, if it has one.
    pub fn of_kind(byte: u8, from: &mut Reader<'_>) -> Result<Option<Self>, Damaged> {
        Ok(match byte & BY {
            BY_ASSET => Some(Self::Asset),
            BY_CODE => Some(Self::Code(Hash32(from.array()?))),
            BY_SUPPLIED => Some(Self::Supplied(Hash32(from.array()?))),
            _ => None,
        })
    }

    /// Reads the form of earlier versions.
    pub fn from_emit(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            0 if rest.is_empty() => Self::Asset,
            1 => Self::Code(Hash32(rest.try_into().ok()?)),
            2 => Self::Supplied(Hash32(rest.try_into().ok()?)),
            _ => return None,
        })
    }
}
