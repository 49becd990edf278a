//! Events of smart accounts: the twelve of the OpenZeppelin `accounts` package, in every layout that it has had
//! since v0.5.0-rc.1. An event is read by its own shape: an account may be upgraded in place, and has events
//! of several layouts then.
//!
//! | Layout | Releases | Signers and policies |
//! |---|---|---|
//! | inline | v0.5.0-rc.1 to v0.6.0 | stand in the events of rules |
//! | registry | from v0.7.0-rc.1 | have ids, are registered once, and are named by their ids |

use stellar_xdr::{ScAddress, ScMapEntry, ScVal};

use crate::accounts::value;

/// Bytes of an uncompressed secp256r1 public key, `04 || x || y`, which the id of a credential follows.
const PUBLIC_KEY: usize = 65;

/// The names of the events, in ascending order.
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

impl Kind {
    /// All of them; each stands at the place of its number.
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

    /// The symbol in the first topic.
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

/// A signer or policy, as an event names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named<T> {
    /// By its id in the account's registry.
    Id(u32),
    /// By itself.
    Inline(T),
}

/// Who may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signer {
    /// A variant that is known.
    Known {
        /// Its variant, by the name on the chain.
        variant: Variant,
        /// The account or contract that signs; of an external signer, the contract that verifies.
        address: ScAddress,
        /// What the verifier is given, if it is one.
        key: Option<Vec<u8>>,
    },
    /// A variant of a version that this one does not know.
    Opaque(ScVal),
}

/// Variants of signers, in ascending order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// An account or a contract; in v0.5.0-rc.1 to rc.3 what is external today.
    Delegated,
    /// A key, and the contract that verifies its signatures.
    External,
    /// An account or a contract, in v0.5.0-rc.1 to rc.3.
    Native,
}

impl Variant {
    /// The symbol on the chain.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delegated => "Delegated",
            Self::External => "External",
            Self::Native => "Native",
        }
    }
}

impl Signer {
    /// The id of its credential: what follows the public key in its bytes, or all of them where nothing does.
    pub fn credential(&self) -> Option<&[u8]> {
        let Self::Known { key: Some(key), .. } = self else { return None };
        let id = if key.len() > PUBLIC_KEY { &key[PUBLIC_KEY..] } else { key };
        (!id.is_empty()).then_some(id)
    }
}

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A rule is there, with these signers and policies.
    RuleAdded {
        /// What it is for, and what it is called.
        rule: RuleMeta,
        /// Who may sign.
        signers: Vec<Named<Signer>>,
        /// Which contracts have to agree.
        policies: Vec<Named<ScAddress>>,
    },
    /// A rule is for something else, or called something else.
    RuleUpdated(RuleMeta),
    /// A rule is called something else.
    RuleRemoved,
    /// A signer may sign for a rule.
    SignerAdded(Named<Signer>),
    /// A signer may not any more.
    SignerRemoved(Named<Signer>),
    /// A signer has an id.
    SignerRegistered(Signer),
    /// No rule has the signer any more.
    SignerDeregistered,
    /// A contract has to agree.
    PolicyAdded {
        /// Which.
        policy: Named<ScAddress>,
        /// What it was installed with, where the event says so.
        install_param: Option<ScVal>,
    },
    /// A contract need not agree any more.
    PolicyRemoved(Named<ScAddress>),
    /// A policy has an id.
    PolicyRegistered(ScAddress),
    /// No rule has the policy any more.
    PolicyDeregistered,
}

/// What a rule is for, until when, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMeta {
    /// XDR-level `ContextRuleType`: a list that begins with the symbol of a variant; none where an event leaves
    /// it as it is.
    pub context_type: Option<ScVal>,
    /// Its name; any bytes.
    pub name: Vec<u8>,
    /// The last ledger for which it holds.
    pub valid_until: Option<u32>,
}

/// An event of a smart account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name.
    pub kind: Kind,
    /// Id of a rule, a signer or a policy, as its name says. The three are counted apart.
    pub id: u32,
    /// What it says.
    pub change: Change,
}

/// Reads an event of type `contract` with these topics and data, each the XDR of an `ScVal`; none when it is not
/// an event of a smart account. Keys that are not known are ignored, and an option that is left out is none.
pub fn recognise(topics: &[&[u8]], data: &[u8]) -> Option<Event> {
    let [name, id] = topics else { return None };
    let kind = Kind::of(value::symbol_of(name)?)?;
    let id = value::number(&value::parse(id)?)?;
    Event::with(kind, id, &value::parse(data)?)
}

impl Event {
    /// The event of this name with this id and data; none when the data is not that of such an event.
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

/// An event that says all by its topics. Its data is a map, as of every event, or what stands for nothing.
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
        Kind::SignerAdded => Change::SignerAdded(named(map, "signer_id", "signer", signer)?),
        Kind::SignerRemoved => Change::SignerRemoved(named(map, "signer_id", "signer", signer)?),
        Kind::SignerRegistered => Change::SignerRegistered(signer(field("signer")?)?),
        Kind::PolicyAdded => Change::PolicyAdded {
            policy: named(map, "policy_id", "policy", policy)?,
            install_param: field("install_param").cloned(),
        },
        Kind::PolicyRemoved => Change::PolicyRemoved(named(map, "policy_id", "policy", policy)?),
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

/// Signers and policies.
type Members = (Vec<Named<Signer>>, Vec<Named<ScAddress>>);

/// The signers and policies of a rule, all of them by their ids or all by themselves.
fn members(map: &[ScMapEntry]) -> Option<Members> {
    fn each<T>(
        map: &[ScMapEntry],
        name: &str,
        read: impl Fn(&ScVal) -> Option<T>,
    ) -> Option<Vec<T>> {
        value::list(value::field(map, name)?)?.iter().map(read).collect()
    }
    let ids = |name| each(map, name, |id| value::number(id).map(Named::Id));
    let by_id =
        ids("signer_ids").zip(each(map, "policy_ids", |id| Some(Named::Id(value::number(id)?))));
    by_id.or_else(|| {
        let signers = each(map, "signers", |it| signer(it).map(Named::Inline));
        signers.zip(each(map, "policies", |it| policy(it).map(Named::Inline)))
    })
}

/// A signer or policy by its id or by itself.
fn named<T>(
    map: &[ScMapEntry],
    id: &str,
    itself: &str,
    read: impl Fn(&ScVal) -> Option<T>,
) -> Option<Named<T>> {
    let by_id = value::field(map, id).and_then(value::number).map(Named::Id);
    by_id.or_else(|| value::field(map, itself).and_then(read).map(Named::Inline))
}

fn policy(value: &ScVal) -> Option<ScAddress> {
    value::address(value).cloned()
}

fn signer(value: &ScVal) -> Option<Signer> {
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
    fn kinds_stand_at_the_place_of_their_numbers_in_the_order_of_their_names() {
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
        assert!(Kind::ALL.map(Kind::name).is_sorted());
    }

    #[test]
    fn the_id_of_a_credential_follows_the_public_key() {
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
