//! Words passed between guest and host: 64 bits that are a number or a `Val`.
//!
//! As in the network's interpreter, a guest refers to objects by handles of its own: bit 0 is
//! clear, and the other bits are an index into the objects that this instance has received. A guest
//! can therefore not reach any object that it did not receive, whatever bits it invents.

use soroban_env_host::xdr::{ScErrorCode, ScErrorType};
use soroban_env_host::{
    AddressObject, Bool, BytesObject, ContractTtlExtension, DurationObject, Error,
    ExecutableTagObject, Host, HostError, I64Object, I128Object, I256Object, I256Val, MapObject,
    MuxedAddressObject, Object, StorageType, StringObject, Symbol, SymbolObject, TimepointObject,
    U32Val, U64Object, U64Val, U128Object, U256Object, U256Val, Val, VecObject, Void, xdr,
};

/// Error for a word that is not a valid value of its type.
const INVALID: Error = Error::from_type_and_code(ScErrorType::Value, ScErrorCode::InvalidInput);

/// Objects that one instance has received, indexed by its own handles.
#[derive(Default)]
pub(super) struct Objects(Vec<Object>);

impl Objects {
    /// Converts a guest's value to the host's.
    pub(super) fn absolute(&self, val: Val) -> Result<Val, HostError> {
        if !val.is_good() {
            return Err(INVALID.into());
        }
        let Ok(object) = Object::try_from(val) else { return Ok(val) };
        let handle = object.get_handle();
        let known = if handle & 1 == 0 { self.0.get((handle >> 1) as usize) } else { None };
        match known {
            Some(known) if known.to_val().get_tag() == val.get_tag() => Ok(known.to_val()),
            _ => Err(INVALID.into()),
        }
    }

    /// Converts a host's value to the guest's. An object becomes reachable for the guest.
    pub(super) fn relative(&mut self, val: Val, host: &Host) -> Result<Val, HostError> {
        let Ok(object) = Object::try_from(val) else { return Ok(val) };
        host.charge_budget(xdr::ContractCostType::MemAlloc, Some(size_of::<Object>() as u64))?;
        let handle = u32::try_from(self.0.len()).ok().and_then(|number| number.checked_mul(2));
        let handle = handle.ok_or(super::limits::STOPPED)?;
        self.0.push(object);
        Ok(Object::from_handle_and_tag(handle, val.get_tag()).to_val())
    }

    /// Converts a guest's word with [`absolute`](Self::absolute).
    pub(super) fn read(&self, word: i64) -> Result<Val, HostError> {
        self.absolute(Val::from_payload(word.cast_unsigned()))
    }

    /// Converts a host's value to a word with [`relative`](Self::relative).
    pub(super) fn write(&mut self, val: Val, host: &Host) -> Result<i64, HostError> {
        Ok(self.relative(val, host)?.get_payload().cast_signed())
    }
}

/// A type of the environment interface that is passed as a word.
pub(super) trait Word: Sized {
    /// Decodes a guest's word.
    fn from_word(word: i64, objects: &Objects) -> Result<Self, HostError>;
    /// Encodes the value as a guest's word.
    fn into_word(self, objects: &mut Objects, host: &Host) -> Result<i64, HostError>;
}

impl Word for i64 {
    fn from_word(word: i64, _: &Objects) -> Result<Self, HostError> {
        Ok(word)
    }
    fn into_word(self, _: &mut Objects, _: &Host) -> Result<i64, HostError> {
        Ok(self)
    }
}

impl Word for u64 {
    fn from_word(word: i64, _: &Objects) -> Result<Self, HostError> {
        Ok(word.cast_unsigned())
    }
    fn into_word(self, _: &mut Objects, _: &Host) -> Result<i64, HostError> {
        Ok(self.cast_signed())
    }
}

macro_rules! val_words {
    ($($name:ident),*) => {$(
        impl Word for $name {
            fn from_word(word: i64, objects: &Objects) -> Result<Self, HostError> {
                $name::try_from(objects.read(word)?).map_err(|_| INVALID.into())
            }
            fn into_word(self, objects: &mut Objects, host: &Host) -> Result<i64, HostError> {
                objects.write(self.into(), host)
            }
        }
    )*};
}

val_words!(
    AddressObject,
    Bool,
    BytesObject,
    DurationObject,
    Error,
    ExecutableTagObject,
    I64Object,
    I128Object,
    I256Object,
    I256Val,
    MapObject,
    MuxedAddressObject,
    StringObject,
    Symbol,
    SymbolObject,
    TimepointObject,
    U32Val,
    U64Object,
    U64Val,
    U128Object,
    U256Object,
    U256Val,
    Val,
    VecObject,
    Void
);

/// Enumerations that are passed as plain numbers.
macro_rules! number_words {
    ($($name:ident { $($variant:ident),* })*) => {$(
        impl Word for $name {
            fn from_word(word: i64, _: &Objects) -> Result<Self, HostError> {
                $(if word == $name::$variant as i64 {
                    return Ok($name::$variant);
                })*
                Err(INVALID.into())
            }
            fn into_word(self, _: &mut Objects, _: &Host) -> Result<i64, HostError> {
                Ok(self as i64)
            }
        }
    )*};
}

number_words! {
    StorageType { Temporary, Persistent, Instance }
    ContractTtlExtension { InstanceAndCode, Instance, Code }
}
