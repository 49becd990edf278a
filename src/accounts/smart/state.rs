//! State of a smart account as rows: its rules with their members, and what is registered under
//! ids. Each row is the XDR of an `ScVal`.

use stellar_xdr::{ScAddress, ScVal};

use super::event::{self, Reference, RuleMeta, Signer};
use crate::{Position, value};
use orrery_store::RowCodec;

/// A rule. Its signers and policies are in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Context type, expiration and name of the rule.
    pub meta: RuleMeta,
    pub(super) signers: Vec<Member<Signer>>,
    pub(super) policies: Vec<Member<ScAddress>>,
}

/// A signer or a policy of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member<T> {
    pub reference: Reference<T>,
    /// Position of the event that added it.
    pub added: Position,
    /// Installation parameter of a policy; `None` when the event did not contain it.
    pub install_param: Option<ScVal>,
}

/// What an account's registry has under an id. The value stays after deregistration, because the
/// removal event that follows refers to the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Registered<T> {
    /// The signer or policy that was registered last; `None` before the first registration.
    pub value: Option<T>,
    /// Position of the last deregistration. Members that were added under this id before it are
    /// gone: they are dropped when their rule is read, so that one event need not change all rules.
    pub deregistered: Option<Position>,
    /// Number of members that rules have under this id, without those that are gone. Counted for
    /// signers only.
    pub members: u32,
}

impl<T> Default for Registered<T> {
    fn default() -> Self {
        Self { value: None, deregistered: None, members: 0 }
    }
}

impl<T> Registered<T> {
    /// Whether a member that was added under this id at `added` is still there.
    pub fn has(&self, added: Position) -> bool {
        self.deregistered < Some(added)
    }
}

/// A signer or a policy: what the registry and the members of rules hold.
pub(super) trait Named: Clone + PartialEq {
    /// First byte of the keys of its registry.
    const REGISTRY: u8;

    fn to_value(&self) -> ScVal;
    fn of_value(value: &ScVal) -> Option<Self>;
    fn members(rule: &mut Rule) -> &mut Vec<Member<Self>>;
}

impl Named for Signer {
    const REGISTRY: u8 = b's';

    fn to_value(&self) -> ScVal {
        match self {
            Self::Known { variant, address, key } => {
                let name = value::of_symbol(variant.name());
                let address = ScVal::Address(address.clone());
                let key = key.as_deref().map(value::of_bytes);
                value::of_list([Some(name), Some(address), key].into_iter().flatten())
            }
            Self::Opaque(value) => value.clone(),
        }
    }

    fn of_value(value: &ScVal) -> Option<Self> {
        event::signer(value)
    }

    fn members(rule: &mut Rule) -> &mut Vec<Member<Self>> {
        &mut rule.signers
    }
}

impl Named for ScAddress {
    const REGISTRY: u8 = b'p';

    fn to_value(&self) -> ScVal {
        ScVal::Address(self.clone())
    }

    fn of_value(value: &ScVal) -> Option<Self> {
        value::address(value).cloned()
    }

    fn members(rule: &mut Rule) -> &mut Vec<Member<Self>> {
        &mut rule.policies
    }
}

impl RowCodec for Rule {
    fn write(&self, to: &mut Vec<u8>) {
        let Self { meta: RuleMeta { context_type, name, valid_until }, signers, policies } = self;
        to.extend(value::xdr(&value::of_list([
            context_type.clone().unwrap_or(ScVal::Void),
            value::of_bytes(name),
            valid_until.map_or(ScVal::Void, ScVal::U32),
            value::of_list(signers.iter().map(Member::to_value)),
            value::of_list(policies.iter().map(Member::to_value)),
        ])));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let row = value::parse_row(std::mem::take(bytes))?;
        let [context_type, name, valid_until, signers, policies] = value::list(&row)? else {
            return None;
        };
        let present = |value: &ScVal| (*value != ScVal::Void).then(|| value.clone());
        let meta = RuleMeta {
            context_type: present(context_type),
            name: value::bytes(name)?.to_vec(),
            valid_until: value::number(valid_until),
        };
        let signers = value::list(signers)?.iter().map(Member::of_value).collect::<Option<_>>()?;
        let policies =
            value::list(policies)?.iter().map(Member::of_value).collect::<Option<_>>()?;
        Some(Self { meta, signers, policies })
    }
}

impl<T: Named> Member<T> {
    pub fn to_value(&self) -> ScVal {
        let Self { reference, added, install_param } = self;
        let reference = match reference {
            Reference::Id(id) => ScVal::U32(*id),
            Reference::Inline(named) => named.to_value(),
        };
        let added = value::of_bytes(&added.encode());
        value::of_list([reference, added].into_iter().chain(install_param.clone()))
    }

    fn of_value(value: &ScVal) -> Option<Self> {
        let [reference, added, install_param @ ..] = value::list(value)? else { return None };
        let reference = match reference {
            ScVal::U32(id) => Reference::Id(*id),
            named => Reference::Inline(T::of_value(named)?),
        };
        let added = Position::decode(value::bytes(added)?)?;
        Some(Self { reference, added, install_param: install_param.first().cloned() })
    }
}

impl<T: Named> RowCodec for Registered<T> {
    fn write(&self, to: &mut Vec<u8>) {
        let Self { value, deregistered, members } = self;
        to.extend(value::xdr(&value::of_list([
            value.as_ref().map_or(ScVal::Void, Named::to_value),
            deregistered.map_or(ScVal::Void, |at| value::of_bytes(&at.encode())),
            ScVal::U32(*members),
        ])));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let row = value::parse_row(std::mem::take(bytes))?;
        let [named, deregistered, members] = value::list(&row)? else { return None };
        let value = match named {
            ScVal::Void => None,
            named => Some(T::of_value(named)?),
        };
        let deregistered = match deregistered {
            ScVal::Void => None,
            at => Some(Position::decode(value::bytes(at)?)?),
        };
        Some(Self { value, deregistered, members: value::number(members)? })
    }
}
