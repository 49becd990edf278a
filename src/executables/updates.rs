//! The event that the host emits when a contract changes its own executable: after the topic
//! `executable_update` there is what the contract had, and what it has. Each is a `ContractExecutable` of the host's
//! `common_types.rs`: a vector with the name of the variant, and what is in it.

use stellar_xdr::{ContractExecutableExternalRef, Limits, ReadXdr, ScMap, ScString, ScVal};

use super::value::{self, Executable};
use orrery_ledger::domain::Hash32;
use orrery_store::RowCodec;

/// First topic.
pub(super) const UPDATE: &[u8] = b"executable_update";
/// The XDR of the first topic, without the zeros that fill it up.
const UPDATE_XDR: &[u8] = b"\0\0\0\x0f\0\0\0\x11executable_update";
/// Names of the variants.
const WASM: &[u8] = b"Wasm";
const ASSET: &[u8] = b"StellarAsset";
const REFERENCE: &[u8] = b"ExternalRef";
/// Limits of a topic, which has some hundred bytes.
const LIMITS: Limits = Limits { depth: 20, len: 4096 };

/// What a contract had and has, as one or several events of a transaction say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// What it had; `None` where that has no form that is known.
    pub before: Option<Executable>,
    /// What it has; `None` where that has no form that is known.
    pub after: Option<Executable>,
}

/// Whether a system event with these topics, each XDR, tells that its contract has changed its executable.
pub fn is_update<'t>(mut topics: impl Iterator<Item = &'t [u8]>) -> bool {
    topics.next().is_some_and(|topic| topic.starts_with(UPDATE_XDR))
}

/// Returns the hashes of the modules that a system event with these topics, each XDR, names: the one before the
/// change, and the one after it. None for other events, and for executables that are no modules.
pub fn updated_codes<'t>(topics: impl Iterator<Item = &'t [u8]>) -> impl Iterator<Item = Hash32> {
    let Update { before, after } = Update::of_topics(topics).unwrap_or_default();
    [before, after].into_iter().flatten().filter_map(|executable| match executable {
        Executable::Code(hash) => Some(hash),
        _ => None,
    })
}

impl Update {
    /// Returns what a system event with these topics, each XDR, says; `None` for one that tells of no change.
    pub fn of_topics<'t>(mut topics: impl Iterator<Item = &'t [u8]>) -> Option<Self> {
        if !is_update(topics.by_ref()) {
            return None;
        }
        let mut next = || executable(&ScVal::from_xdr(topics.next()?, LIMITS).ok()?);
        Some(Self { before: next(), after: next() })
    }

    /// Returns what a system event with these topics says; `None` for one that tells of no change.
    pub(super) fn of_values(topics: &[ScVal]) -> Option<Self> {
        match topics {
            [ScVal::Symbol(name), before, after] if name.as_slice() == UPDATE => {
                Some(Self { before: executable(before), after: executable(after) })
            }
            _ => None,
        }
    }

    /// Returns the keys of the entries that it says the contract refers to (CAP-85), as XDR `LedgerKey`.
    pub fn references(&self) -> impl Iterator<Item = &[u8]> {
        [&self.before, &self.after].into_iter().flatten().filter_map(
            |executable| match executable {
                Executable::Reference(key) => Some(key.as_slice()),
                _ => None,
            },
        )
    }

    /// Returns what several of a contract in one transaction say together, in their order.
    pub(super) fn of_all(steps: &[Self]) -> Self {
        let before = steps.first().and_then(|step| step.before.clone());
        Self { before, after: steps.last().and_then(|step| step.after.clone()) }
    }
}

/// Each of them after its length; a length of 0 where it is not known.
impl RowCodec for Update {
    fn write(&self, to: &mut Vec<u8>) {
        for executable in [&self.before, &self.after] {
            let value = executable.as_ref().map(RowCodec::encode).unwrap_or_default();
            // Keys of entries have at most some hundred bytes.
            (value.len() as u32).write(to);
            to.extend(value);
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut next = || {
            let length = usize::try_from(u32::read(bytes)?).ok()?;
            let value = bytes.split_off(..length)?;
            Some(if value.is_empty() { None } else { Some(Executable::decode(value)?) })
        };
        Some(Self { before: next()?, after: next()? })
    }
}

/// Returns the executable in a topic.
fn executable(topic: &ScVal) -> Option<Executable> {
    let ScVal::Vec(Some(items)) = topic else { return None };
    match items.as_slice() {
        [ScVal::Symbol(kind), ScVal::Bytes(hash)] if kind.as_slice() == WASM => {
            Some(Executable::Code(Hash32(hash.as_slice().try_into().ok()?)))
        }
        [ScVal::Symbol(kind)] if kind.as_slice() == ASSET => Some(Executable::Asset),
        [ScVal::Symbol(kind), ScVal::Map(Some(named))] if kind.as_slice() == REFERENCE => {
            value::named_entry(&reference(named)?).map(Executable::Reference)
        }
        _ => None,
    }
}

fn reference(named: &ScMap) -> Option<ContractExecutableExternalRef> {
    let member = |name: &[u8]| {
        named.iter().find_map(|item| match &item.key {
            ScVal::Symbol(key) if key.as_slice() == name => Some(&item.val),
            _ => None,
        })
    };
    match (member(b"owner")?, member(b"tag")?) {
        (ScVal::Address(owner), ScVal::String(tag)) => Some(ContractExecutableExternalRef {
            executable_owner: owner.clone(),
            tag: ScString::clone(tag),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores have these bytes.
    #[test]
    fn updates_round_trip() {
        let code = || Some(Executable::Code(Hash32([2; 32])));
        let reference = || Some(Executable::Reference(vec![9, 8]));
        let hash = "02".repeat(32);
        for (before, after, bytes) in [
            (None, None, "0000000000000000".to_owned()),
            (code(), None, format!("0000002101{hash}00000000")),
            (reference(), code(), format!("000000030309080000002101{hash}")),
            (Some(Executable::Asset), Some(Executable::Other), "00000001020000000104".to_owned()),
        ] {
            let update = Update { before, after };
            assert_eq!(hex::encode(update.encode()), bytes);
            let bytes = hex::decode(bytes).unwrap();
            assert_eq!(Update::decode(&bytes), Some(update));
            assert_eq!(Update::decode(&bytes[..bytes.len() - 1]), None);
            assert_eq!(Update::decode(&[bytes, vec![0]].concat()), None);
        }
    }

    #[test]
    fn what_is_no_update_or_of_another_form_says_nothing() {
        let xdr = |value: &ScVal| stellar_xdr::WriteXdr::to_xdr(value, Limits::none()).unwrap();
        let symbol = |text: &str| xdr(&ScVal::Symbol(text.try_into().unwrap()));
        let of = |topics: &[Vec<u8>]| Update::of_topics(topics.iter().map(Vec::as_slice));
        assert_eq!(of(&[symbol("executable_updates"), symbol("x"), symbol("y")]), None);
        assert_eq!(of(&[]), None);
        let update = symbol("executable_update");
        assert_eq!(of(std::slice::from_ref(&update)), Some(Update::default()));
        assert_eq!(of(&[update, symbol("x"), vec![1]]), Some(Update::default()));
    }
}
