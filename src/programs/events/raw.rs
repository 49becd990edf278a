//! Stored form of an event in the row log: an emit without a target, whose fields are the event.

use orrery_ledger::domain::Emit;
use stellar_xdr::{ScBytes, ScMap, ScMapEntry, ScSymbol, ScVal, ScVec};

use orrery_ledger::domain::{ContractId, Hash32};

/// An event, as it is stored for a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEvent {
    /// Id in answers of the API.
    pub id: u64,
    /// Index in its transaction, as in [`Place`](orrery_tables::event_tables::Place).
    pub index: u32,
    /// Contract that emitted it.
    pub contract: ContractId,
    /// Whether it is a system event.
    pub is_system: bool,
    /// XDR `ScVal` of each topic.
    pub topics: Vec<Vec<u8>>,
    /// XDR `ScVal` of the data.
    pub data: Vec<u8>,
    /// The interface that declares it; `None` when none of those that are known does.
    pub declared_by: Option<DeclaredBy>,
    /// Whether all interfaces that its contract had are known.
    pub is_sure: bool,
}

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

/// Names of the fields, sorted as the keys of a map are.
const FIELDS: [&str; 7] = ["by", "data", "id", "index", "sure", "system", "topics"];

const ASSET: u8 = 0;
const CODE: u8 = 1;
const SUPPLIED: u8 = 2;

impl DeclaredBy {
    fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Asset => vec![ASSET],
            Self::Code(hash) => [&[CODE], hash.as_bytes().as_slice()].concat(),
            Self::Supplied(hash) => [&[SUPPLIED], hash.as_bytes().as_slice()].concat(),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        Some(match *kind {
            ASSET if rest.is_empty() => Self::Asset,
            CODE => Self::Code(Hash32(rest.try_into().ok()?)),
            SUPPLIED => Self::Supplied(Hash32(rest.try_into().ok()?)),
            _ => return None,
        })
    }
}

impl RawEvent {
    /// Returns the stored form; `None` when a part is longer than XDR allows, which no event is.
    pub fn to_emit(&self) -> Option<Emit> {
        let topics = self.topics.iter().map(|topic| bytes(topic)).collect::<Option<Vec<_>>>()?;
        let values = [
            match self.declared_by {
                Some(by) => bytes(&by.to_bytes())?,
                None => ScVal::Void,
            },
            bytes(&self.data)?,
            ScVal::U64(self.id),
            ScVal::U32(self.index),
            ScVal::Bool(self.is_sure),
            ScVal::Bool(self.is_system),
            ScVal::Vec(Some(ScVec(topics.try_into().ok()?))),
        ];
        let mut fields = Vec::with_capacity(FIELDS.len());
        for (name, val) in FIELDS.into_iter().zip(values) {
            let key = ScVal::Symbol(ScSymbol(name.try_into().ok()?));
            fields.push(ScMapEntry { key, val });
        }
        let fields = ScMap(fields.try_into().ok()?);
        Some(Emit { contract: self.contract, target: String::new(), fields })
    }

    /// Decodes the stored form; `None` when it is another emit.
    pub fn from_emit(emit: &Emit) -> Option<Self> {
        let values: Vec<&ScVal> = emit.fields.iter().map(|entry| &entry.val).collect();
        let [
            by,
            ScVal::Bytes(data),
            ScVal::U64(id),
            ScVal::U32(index),
            ScVal::Bool(is_sure),
            ScVal::Bool(is_system),
            ScVal::Vec(Some(topics)),
        ] = *values
        else {
            return None;
        };
        let topic = |topic: &ScVal| match topic {
            ScVal::Bytes(bytes) => Some(bytes.to_vec()),
            _ => None,
        };
        Some(Self {
            id: *id,
            index: *index,
            contract: emit.contract,
            is_system: *is_system,
            topics: topics.iter().map(topic).collect::<Option<_>>()?,
            data: data.to_vec(),
            declared_by: match by {
                ScVal::Bytes(bytes) => Some(DeclaredBy::from_bytes(bytes.as_slice())?),
                _ => None,
            },
            is_sure: *is_sure,
        })
    }
}

fn bytes(bytes: &[u8]) -> Option<ScVal> {
    Some(ScVal::Bytes(ScBytes(bytes.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip() {
        let hash = Hash32([3; 32]);
        let all = [DeclaredBy::Asset, DeclaredBy::Code(hash), DeclaredBy::Supplied(hash)];
        for declared_by in [None].into_iter().chain(all.map(Some)) {
            let event = RawEvent {
                id: u64::MAX,
                index: 7,
                contract: ContractId([9; 32]),
                is_system: declared_by.is_none(),
                topics: vec![vec![0; 4], Vec::new()],
                data: vec![1, 2, 3],
                declared_by,
                is_sure: declared_by.is_some(),
            };
            assert_eq!(RawEvent::from_emit(&event.to_emit().unwrap()), Some(event));
        }
        let emit =
            Emit { contract: ContractId([9; 32]), target: String::new(), fields: ScMap::default() };
        assert_eq!(RawEvent::from_emit(&emit), None);
    }
}
