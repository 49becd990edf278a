//! Parses events of smart accounts: the twelve of the OpenZeppelin `accounts` package, in every
//! layout since v0.5.0-rc.1. The layout of each event is detected from its own shape, because an
//! account may be upgraded in place and then has events of several layouts.
//!
//! | Layout | Releases | Signers and policies |
//! |---|---|---|
//! | inline | v0.5.0-rc.1 to v0.6.0 | given in full in the events of rules |
//! | registry | from v0.7.0-rc.1 | registered once under an id, which later events contain |

use stellar_xdr::{ScAddress, ScMapEntry, ScVal};

use crate::value;
use orrery_store::{RowCodec, row_codec};

/// Bytes of an uncompressed secp256r1 public key, `04 || x || y`. In an external signer's key, the
/// credential id follows it.
const PUBLIC_KEY: usize = 65;

/// Event names, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `context_rule_added`
    RuleAdded,
    /// `context_rule_meta_updated`
    RuleMetaUpdated,
    /// `context_rule_removed`
    RuleRemoved,
    /// `context_rule_updated`
    RuleUpdated,
    /// `policy_added`
    PolicyAdded,
    /// `policy_deregistered`
    PolicyDeregistered,
    /// `policy_registered`
    PolicyRegistered,
    /// `policy_removed`
    PolicyRemoved,
    /// `signer_added`
    SignerAdded,
    /// `signer_deregistered`
    SignerDeregistered,
    /// `signer_registered`
    SignerRegistered,
    /// `signer_removed`
    SignerRemoved,
}

row_codec!(enum Kind);

impl Kind {
    /// All kinds; the index of each equals its discriminant.
    pub const ALL: [Self; 12] = [
        Self::RuleAdded,
        Self::RuleMetaUpdated,
        Self::RuleRemoved,
        Self::RuleUpdated,
        Self::PolicyAdded,
        Self::PolicyDeregistered,
        Self::PolicyRegistered,
        Self::PolicyRemoved,
        Self::SignerAdded,
        Self::SignerDeregistered,
        Self::SignerRegistered,
        Self::SignerRemoved,
    ];

    /// Returns the symbol in the first topic.
    pub fn name(self) -> &'static str {
        match self {
            Self::RuleAdded => "context_rule_added",
            Self::RuleMetaUpdated => "context_rule_meta_updated",
            Self::RuleRemoved => "context_rule_removed",
            Self::RuleUpdated => "context_rule_updated",
            Self::PolicyAdded => "policy_added",
            Self::PolicyDeregistered => "policy_deregistered",
            Self::PolicyRegistered => "policy_registered",
            Self::PolicyRemoved => "policy_removed",
            Self::SignerAdded => "signer_added",
            Self::SignerDeregistered => "signer_deregistered",
            Self::SignerRegistered => "signer_registered",
            Self::SignerRemoved => "signer_removed",
        }
    }

    fn of(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }
}

/// A signer or policy as an event refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference<T> {
    /// Its id in the account's registry.
    Id(u32),
    /// The signer or policy itself.
    Inline(T),
}

/// A signer of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signer {
    /// A signer of a supported variant.
    Known {
        /// Variant of the signer.
        variant: Variant,
        /// Account or contract that signs; for an external signer, the verifier contract.
        address: ScAddress,
        /// Key data that the verifier contract receives; `None` without a verifier.
        key: Option<Vec<u8>>,
    },
    /// A signer of an unsupported variant, as its raw value.
    Opaque(ScVal),
}

/// Variants of signers, in ascending order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// Account or contract; in v0.5.0-rc.1 to rc.3 also a key with its verifier contract, the later
    /// `External`.
    Delegated,
    /// Key, and the contract that verifies its signatures.
    External,
    /// Account or contract, in v0.5.0-rc.1 to rc.3.
    Native,
}

impl Variant {
    /// Returns the symbol that names the variant on the chain.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delegated => "Delegated",
            Self::External => "External",
            Self::Native => "Native",
        }
    }
}

impl Signer {
    /// Returns the credential id: the bytes after the public key, or the whole key when it is no
    /// longer than a public key. `None` when there is no key or it is empty.
    pub fn credential(&self) -> Option<&[u8]> {
        let Self::Known { key: Some(key), .. } = self else { return None };
        let id = if key.len() > PUBLIC_KEY { &key[PUBLIC_KEY..] } else { key };
        (!id.is_empty()).then_some(id)
    }
}

/// Change that an event reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A rule was added, with these signers and policies.
    RuleAdded {
        /// Context type, expiration and name of the rule.
        rule: RuleMeta,
        /// Signers of the rule.
        signers: Vec<Reference<Signer>>,
        /// Policy contracts, all of which must approve.
        policies: Vec<Reference<ScAddress>>,
    },
    /// The name, the expiration and, if given, the context type of a rule changed.
    RuleUpdated(RuleMeta),
    /// A rule was removed.
    RuleRemoved,
    /// A signer was added to a rule.
    SignerAdded(Reference<Signer>),
    /// A signer was removed from a rule.
    SignerRemoved(Reference<Signer>),
    /// A signer was registered under an id.
    SignerRegistered(Signer),
    /// A signer was removed from the registry, because no rule refers to it any more.
    SignerDeregistered,
    /// A policy contract was added to a rule.
    PolicyAdded {
        /// The added policy.
        policy: Reference<ScAddress>,
        /// Installation parameter of the policy; `None` when the event does not contain it.
        install_param: Option<ScVal>,
    },
    /// A policy contract was removed from a rule.
    PolicyRemoved(Reference<ScAddress>),
    /// A policy was registered under an id.
    PolicyRegistered(ScAddress),
    /// A policy was removed from the registry, because no rule refers to it any more.
    PolicyDeregistered,
}

/// Context type, expiration and name of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMeta {
    /// `ContextRuleType` as an `ScVal`: a list that begins with the symbol of a variant. `None` in
    /// an event that leaves it unchanged.
    pub context_type: Option<ScVal>,
    /// Name; may hold any bytes.
    pub name: Vec<u8>,
    /// Last ledger for which the rule is valid; `None` when it does not expire.
    pub valid_until: Option<u32>,
}

/// An event of a smart account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Name of the event.
    pub kind: Kind,
    /// Id of a rule, a signer or a policy, depending on the kind. The three are numbered
    /// independently.
    pub id: u32,
    /// Change that the event reports.
    pub change: Change,
}

/// Parses an event of type `contract` with these topics and data, each the XDR of an `ScVal`.
/// Returns `None` when it is not an event of a smart account. Unknown map keys are ignored, and a
/// missing optional value is `None`.
pub fn recognise(topics: &[&[u8]], data: &[u8]) -> Option<Event> {
    let [name, id] = topics else { return None };
    let kind = Kind::of(value::symbol_of(name)?)?;
    let id = value::number(&value::parse(id)?)?;
    Event::with(kind, id, &value::parse(data)?)
}

impl Event {
    /// Builds the event of this kind with this id and data; `None` when the data does not fit the
    /// kind.
    pub(super) fn with(kind: Kind, id: u32, data: &ScVal) -> Option<Self> {
        Some(Self { kind, id, change: change(kind, data)? })
    }
}

fn change(kind: Kind, data: &ScVal) -> Option<Change> {
    match kind {
        Kind::RuleRemoved => without_fields(data, Change::RuleRemoved),
        Kind::SignerDeregistered => without_fields(data, Change::SignerDeregistered),
        Kind::PolicyDeregistered => without_fields(data, Change::PolicyDeregistered),
        _ => with_fields(kind, value::map(data)?),
    }
}

/// Accepts the data of an event that has no fields: a map, `Void`, or an empty list.
fn without_fields(data: &ScVal, change: Change) -> Option<Change> {
    let is_nothing = match data {
        ScVal::Map(Some(_)) | ScVal::Void => true,
        ScVal::Vec(Some(list)) => list.is_empty(),
        _ => false,
    };
    is_nothing.then_some(change)
}

fn with_fields(kind: Kind, map: &[ScMapEntry]) -> Option<Change> {
    let field = |name| value::field(map, name);
    Some(match kind {
        Kind::RuleAdded => {
            let (signers, policies) = members(map)?;
            Change::RuleAdded { rule: meta(map, true)?, signers, policies }
        }
        Kind::RuleUpdated => Change::RuleUpdated(meta(map, true)?),
        Kind::RuleMetaUpdated => Change::RuleUpdated(meta(map, false)?),
        Kind::SignerAdded => Change::SignerAdded(reference(map, "signer_id", "signer", signer)?),
        Kind::SignerRemoved => {
            Change::SignerRemoved(reference(map, "signer_id", "signer", signer)?)
        }
        Kind::SignerRegistered => Change::SignerRegistered(signer(field("signer")?)?),
        Kind::PolicyAdded => Change::PolicyAdded {
            policy: reference(map, "policy_id", "policy", policy)?,
            install_param: field("install_param").cloned(),
        },
        Kind::PolicyRemoved => {
            Change::PolicyRemoved(reference(map, "policy_id", "policy", policy)?)
        }
        Kind::PolicyRegistered => Change::PolicyRegistered(policy(field("policy")?)?),
        Kind::RuleRemoved | Kind::SignerDeregistered | Kind::PolicyDeregistered => return None,
    })
}

fn meta(map: &[ScMapEntry], with_type: bool) -> Option<RuleMeta> {
    let ScVal::String(name) = value::field(map, "name")? else { return None };
    let context_type = match with_type {
        true => {
            let context_type = value::field(map, "context_type")?;
            value::list(context_type).filter(|list| !list.is_empty())?;
            Some(context_type.clone())
        }
        false => None,
    };
    let valid_until = match value::field(map, "valid_until") {
        None | Some(ScVal::Void) => None,
        Some(given) => Some(value::number(given)?),
    };
    Some(RuleMeta { context_type, name: name.as_slice().to_vec(), valid_until })
}

/// Signers and policies of a rule.
type Members = (Vec<Reference<Signer>>, Vec<Reference<ScAddress>>);

/// Parses the signers and policies of a rule. Either all are given by id or all in full.
fn members(map: &[ScMapEntry]) -> Option<Members> {
    fn each<T>(
        map: &[ScMapEntry],
        name: &str,
        read: impl Fn(&ScVal) -> Option<T>,
    ) -> Option<Vec<T>> {
        value::list(value::field(map, name)?)?.iter().map(read).collect()
    }
    let ids = |name| each(map, name, |id| value::number(id).map(Reference::Id));
    let by_id = ids("signer_ids")
        .zip(each(map, "policy_ids", |id| Some(Reference::Id(value::number(id)?))));
    by_id.or_else(|| {
        let signers = each(map, "signers", |it| signer(it).map(Reference::Inline));
        signers.zip(each(map, "policies", |it| policy(it).map(Reference::Inline)))
    })
}

/// Parses a signer or policy that is given by id or in full.
fn reference<T>(
    map: &[ScMapEntry],
    id: &str,
    itself: &str,
    read: impl Fn(&ScVal) -> Option<T>,
) -> Option<Reference<T>> {
    let by_id = value::field(map, id).and_then(value::number).map(Reference::Id);
    by_id.or_else(|| value::field(map, itself).and_then(read).map(Reference::Inline))
}

fn policy(value: &ScVal) -> Option<ScAddress> {
    value::address(value).cloned()
}

/// Parses a signer.
pub(super) fn signer(value: &ScVal) -> Option<Signer> {
    let (variant, rest) = value::list(value)?.split_first()?;
    let variant = match value::symbol(variant)? {
        b"Delegated" => Variant::Delegated,
        b"External" => Variant::External,
        b"Native" => Variant::Native,
        _ => return Some(Signer::Opaque(value.clone())),
    };
    let (address, key) = match rest {
        [address] if variant != Variant::External => (address, None),
        [address, key] if variant != Variant::Native => {
            (address, Some(value::bytes(key)?.to_vec()))
        }
        _ => return None,
    };
    Some(Signer::Known { variant, address: value::address(address)?.clone(), key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_in_numeric_and_alphabetical_order() {
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
        assert!(Kind::ALL.map(Kind::name).is_sorted());
    }

    #[test]
    fn credential_ids_follow_the_public_key() {
        let of = |key: Option<&[u8]>| {
            let (variant, address) = (Variant::External, ScAddress::default());
            let signer = Signer::Known { variant, address, key: key.map(<[u8]>::to_vec) };
            signer.credential().map(<[u8]>::to_vec)
        };
        let key: Vec<u8> = (0..100).collect();
        assert_eq!(of(None), None);
        assert_eq!(of(Some(&[])), None);
        assert_eq!(of(Some(&key[..32])).as_deref(), Some(&key[..32]));
        assert_eq!(of(Some(&key[..65])).as_deref(), Some(&key[..65]));
        assert_eq!(of(Some(&key[..66])).as_deref(), Some(&key[65..66]));
        assert_eq!(of(Some(&key)).as_deref(), Some(&key[65..]));
    }
}
