//! Stored form of the events of a transaction in the row log: each as it is, with the interface that
//! declares it. What is read of it borrows from the stored bytes.
//!
//! Layout of a value, integers big-endian: version (1 byte, 3; 4 if there are changes of contract data),
//! hash of the transaction (32; zeros for the evictions of a ledger), unit of the close time of its ledger
//! (1: 0 for seconds, 1 for milliseconds), that time (8, UNIX), in version 4 the length of the changes (4)
//! and these (`data_log`), and for each event: contract (32), id (8), index (4), what is known of it (1: [`SYSTEM`], [`SURE`], [`APART`], and
//! which interface declares it), the SHA-256 of that interface unless it is the one of assets (32),
//! number of topics (4), and the XDR of each topic and of the data, each after its length (4).
//!
//! Earlier versions stored an emit for each event, as programs do (`rows`), whose fields are those of
//! the event; [`in_this_form`] converts them.

use std::borrow::Cow;
use std::iter;

use orrery_ledger::domain::{CloseTime, ContractId, Emit, TxHash};
use stellar_xdr::ScVal;

use super::data_log::{ChangesWriter, LoggedChanges};
use super::declared_by::{BY_NONE, DeclaredBy};
use super::members::{LoggedMember, LoggedMembers};
use crate::ProgramError;
use crate::rows::{Damaged, Reader, RunRows, length};

const VERSION: u8 = 3;
/// As [`VERSION`], with changes of contract data before the events.
const WITH_CHANGES: u8 = 4;
/// No events, but changes of members in their place (`members::logged`).
const OF_MEMBERS: u8 = 5;
const SECONDS: u8 = 0;
const MILLISECONDS: u8 = 1;

/// Of what is known of an event: that it is a system event, that all interfaces are known that its
/// contract had, and that it is not known whether it belongs to the project.
const SYSTEM: u8 = 1;
const SURE: u8 = 2;
const APART: u8 = 1 << 4;
/// The events of a transaction.
#[derive(Debug, Clone, Copy)]
pub struct LoggedEvents<'a> {
    /// Hash of the transaction (outer hash of a fee bump).
    pub transaction: TxHash,
    /// Close time of the transaction's ledger.
    pub closed_at: CloseTime,
    /// Stored form of what the transaction changed in the data of contracts.
    pub changes: LoggedChanges<'a>,
    /// Stored form of changes of members; there are no events then.
    pub members: LoggedMembers<'a>,
    events: &'a [u8],
}

/// An event, as it is stored for a project.
#[derive(Debug, Clone, Copy)]
pub struct LoggedEvent<'a> {
    /// Id in answers of the API.
    pub id: u64,
    /// Index in its transaction, as in [`Place`](orrery_tables::event_tables::Place).
    pub index: u32,
    /// Contract that emitted it.
    pub contract: ContractId,
    /// Whether it is a system event.
    pub is_system: bool,
    /// The interface that declares it; `None` when none of those that are known does.
    pub declared_by: Option<DeclaredBy>,
    /// Whether all interfaces that its contract had are known.
    pub is_sure: bool,
    /// Whether it is not known if it belongs to the project: then it is no row.
    pub is_apart: bool,
    /// The topics.
    pub topics: Topics<'a>,
    /// XDR `ScVal` of the data.
    pub data: &'a [u8],
}

/// The topics of an event.
#[derive(Debug, Clone, Copy)]
pub struct Topics<'a> {
    count: usize,
    /// XDR `ScVal` of each, after its length.
    encoded: &'a [u8],
}

/// Iterates over topics.
#[derive(Debug, Clone)]
pub struct EachTopic<'a>(Reader<'a>);

impl<'a> Iterator for EachTopic<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        // The lengths were checked when the event was read.
        self.0.part().ok()
    }
}

impl From<Damaged> for ProgramError {
    fn from(_: Damaged) -> Self {
        Self::Damaged("the events of a transaction")
    }
}

/// Writes the stored form of the events of a transaction.
#[derive(Debug, Clone)]
pub struct EventsWriter(Vec<u8>);

impl EventsWriter {
    /// Begins with the transaction.
    pub fn new(transaction: &TxHash, closed_at: CloseTime) -> Self {
        Self::begin(VERSION, transaction, closed_at)
    }

    /// Begins with the transaction, and with what it changed in the data of contracts.
    ///
    /// # Errors
    /// [`Damaged`] when that is longer than the form allows, which it is not.
    pub fn with_changes(
        transaction: &TxHash,
        closed_at: CloseTime,
        changes: &ChangesWriter,
    ) -> Result<Self, Damaged> {
        if changes.is_empty() {
            return Ok(Self::new(transaction, closed_at));
        }
        let mut writer = Self::begin(WITH_CHANGES, transaction, closed_at);
        writer.push_part(changes.as_bytes())?;
        Ok(writer)
    }

    fn begin(version: u8, transaction: &TxHash, closed_at: CloseTime) -> Self {
        let mut out = Vec::with_capacity(512);
        out.push(version);
        out.extend_from_slice(transaction.as_bytes());
        let (unit, time) = match closed_at {
            CloseTime::Seconds(seconds) => (SECONDS, seconds),
            CloseTime::Milliseconds(milliseconds) => (MILLISECONDS, milliseconds),
        };
        out.push(unit);
        out.extend_from_slice(&time.to_be_bytes());
        Self(out)
    }

    /// Begins changes of members, which belong to no transaction together.
    pub fn of_members() -> Self {
        Self::begin(OF_MEMBERS, &TxHash::from([0; 32]), CloseTime::Seconds(0))
    }

    /// Adds a change of a member.
    ///
    /// # Errors
    /// [`Damaged`] when a part is longer than the form allows, which none is.
    pub fn push_member(&mut self, change: &LoggedMember) -> Result<(), Damaged> {
        change.write(&mut self.0)
    }

    /// Adds an event.
    ///
    /// # Errors
    /// [`Damaged`] when a part is longer than the form allows, which no event is.
    pub fn push(&mut self, event: &LoggedEvent<'_>) -> Result<(), Damaged> {
        let LoggedEvent { topics, .. } = event;
        self.push_head(event)?;
        self.0.extend_from_slice(&length(topics.count)?);
        self.0.extend_from_slice(topics.encoded);
        self.push_part(event.data)
    }

    /// As [`Self::push`], with topics from elsewhere.
    pub fn push_with_topics<'t>(
        &mut self,
        event: &LoggedEvent<'_>,
        topics: impl ExactSizeIterator<Item = &'t [u8]>,
    ) -> Result<(), Damaged> {
        self.push_head(event)?;
        self.0.extend_from_slice(&length(topics.len())?);
        for topic in topics {
            self.push_part(topic)?;
        }
        self.push_part(event.data)
    }

    /// Returns the stored form.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn push_head(&mut self, event: &LoggedEvent<'_>) -> Result<(), Damaged> {
        let out = &mut self.0;
        out.extend_from_slice(event.contract.as_bytes());
        out.extend_from_slice(&event.id.to_be_bytes());
        out.extend_from_slice(&event.index.to_be_bytes());
        let (by, hash) = event.declared_by.as_ref().map_or((BY_NONE, None), DeclaredBy::stored);
        let system = if event.is_system { SYSTEM } else { 0 };
        let sure = if event.is_sure { SURE } else { 0 };
        let apart = if event.is_apart { APART } else { 0 };
        out.push(by | system | sure | apart);
        out.extend_from_slice(hash.map_or(&[], |hash| hash.as_bytes().as_slice()));
        Ok(())
    }

    fn push_part(&mut self, part: &[u8]) -> Result<(), Damaged> {
        self.0.extend_from_slice(&length(part.len())?);
        self.0.extend_from_slice(part);
        Ok(())
    }
}

impl<'a> LoggedEvents<'a> {
    /// Reads a value in this form.
    ///
    /// # Errors
    /// [`Damaged`] when it is another one.
    pub fn read(value: &'a [u8]) -> Result<Self, Damaged> {
        let mut rest = Reader(value);
        let [version] = rest.array()?;
        let transaction = TxHash::from(rest.array()?);
        let [unit] = rest.array()?;
        let time = u64::from_be_bytes(rest.array()?);
        let closed_at = match (version, unit) {
            (VERSION | WITH_CHANGES | OF_MEMBERS, SECONDS) => CloseTime::Seconds(time),
            (VERSION | WITH_CHANGES | OF_MEMBERS, MILLISECONDS) => CloseTime::Milliseconds(time),
            _ => return Err(Damaged),
        };
        let changes = if version == WITH_CHANGES { rest.part()? } else { &[] };
        let (members, events) =
            if version == OF_MEMBERS { (rest.0, &[][..]) } else { (&[][..], rest.0) };
        let (changes, members) = (LoggedChanges(changes), LoggedMembers(members));
        Ok(Self { transaction, closed_at, changes, members, events })
    }

    /// The events that are rows, in stored order; ends with the first that is damaged.
    pub fn events(&self) -> impl Iterator<Item = Result<LoggedEvent<'a>, Damaged>> + use<'a> {
        self.all_events().filter(|event| event.as_ref().map_or(true, |event| !event.is_apart))
    }

    /// All events in stored order, also those that may turn out to be rows; ends with the first that is damaged.
    pub fn all_events(&self) -> impl Iterator<Item = Result<LoggedEvent<'a>, Damaged>> + use<'a> {
        let mut rest = Reader(self.events);
        iter::from_fn(move || {
            if rest.0.is_empty() {
                return None;
            }
            let event = rest.event();
            if event.is_err() {
                rest = Reader(&[]);
            }
            Some(event)
        })
    }
}

impl<'a> Topics<'a> {
    /// No topics.
    pub const NONE: Self = Self { count: 0, encoded: &[] };

    /// XDR `ScVal` of each.
    pub fn iter(&self) -> EachTopic<'a> {
        EachTopic(Reader(self.encoded))
    }
}

/// Returns a stored value in this form: as it is, or converted from that of earlier versions.
///
/// # Errors
/// [`Damaged`] when it has none of these forms.
pub fn in_this_form(value: &[u8]) -> Result<Cow<'_, [u8]>, Damaged> {
    if matches!(value.first(), Some(&(VERSION | WITH_CHANGES | OF_MEMBERS))) {
        return Ok(Cow::Borrowed(value));
    }
    let run = RunRows::decode(value)?;
    let mut events = EventsWriter::new(&run.transaction, run.closed_at);
    for emit in &run.emits {
        push_emit(&mut events, emit)?;
    }
    Ok(Cow::Owned(events.finish()))
}

/// Adds an event in the form of earlier versions: a map of `by`, `data`, `id`, `index`, `sure`,
/// `system` and `topics`.
fn push_emit(events: &mut EventsWriter, emit: &Emit) -> Result<(), Damaged> {
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
        return Err(Damaged);
    };
    let event = LoggedEvent {
        id: *id,
        index: *index,
        contract: emit.contract,
        is_system: *is_system,
        declared_by: match by {
            ScVal::Bytes(bytes) => Some(DeclaredBy::from_emit(bytes.as_slice()).ok_or(Damaged)?),
            _ => None,
        },
        is_sure: *is_sure,
        is_apart: false,
        topics: Topics::NONE,
        data: data.as_slice(),
    };
    let topic = |topic: &'_ ScVal| match topic {
        ScVal::Bytes(bytes) => Ok(bytes.to_vec()),
        _ => Err(Damaged),
    };
    let topics = topics.iter().map(topic).collect::<Result<Vec<_>, _>>()?;
    events.push_with_topics(&event, topics.iter().map(Vec::as_slice))
}

impl<'a> Reader<'a> {
    fn event(&mut self) -> Result<LoggedEvent<'a>, Damaged> {
        let contract = ContractId(self.array()?);
        let id = u64::from_be_bytes(self.array()?);
        let index = u32::from_be_bytes(self.array()?);
        let [known] = self.array()?;
        let declared_by = DeclaredBy::of_kind(known, self)?;
        let count = self.length()?;
        let before = self.0;
        for _ in 0..count {
            self.part()?;
        }
        let encoded = &before[..before.len() - self.0.len()];
        let data = self.part()?;
        Ok(LoggedEvent {
            id,
            index,
            contract,
            is_system: known & SYSTEM != 0,
            declared_by,
            is_sure: known & SURE != 0,
            is_apart: known & APART != 0,
            topics: Topics { count, encoded },
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use stellar_xdr::{ScBytes, ScMap, ScMapEntry, ScSymbol, ScVec};

    use orrery_ledger::domain::Hash32;

    use super::*;

    const HASH: Hash32 = Hash32([3; 32]);
    const ALL: [Option<DeclaredBy>; 4] = [
        None,
        Some(DeclaredBy::Asset),
        Some(DeclaredBy::Code(HASH)),
        Some(DeclaredBy::Supplied(HASH)),
    ];
    const TIMES: [CloseTime; 2] = [CloseTime::Seconds(7), CloseTime::Milliseconds(7_001)];
    const TOPICS: [&[u8]; 2] = [&[0; 4], &[]];

    fn event(declared_by: Option<DeclaredBy>) -> LoggedEvent<'static> {
        LoggedEvent {
            id: u64::MAX,
            index: 7,
            contract: ContractId([9; 32]),
            is_system: declared_by.is_none(),
            declared_by,
            is_sure: declared_by.is_some(),
            is_apart: false,
            topics: Topics::NONE,
            data: &[1, 2, 3],
        }
    }

    fn written(closed_at: CloseTime) -> Vec<u8> {
        let mut events = EventsWriter::new(&TxHash::from([5; 32]), closed_at);
        for by in ALL {
            events.push_with_topics(&event(by), TOPICS.into_iter()).unwrap();
        }
        events.finish()
    }

    #[test]
    fn events_round_trip() {
        for closed_at in TIMES {
            let value = written(closed_at);
            let events = LoggedEvents::read(&value).unwrap();
            assert_eq!((events.transaction, events.closed_at), (TxHash::from([5; 32]), closed_at));
            let mut again = EventsWriter::new(&events.transaction, closed_at);
            for (read, by) in events.events().map(Result::unwrap).zip(ALL) {
                let given = event(by);
                let of = |it: &LoggedEvent<'_>| {
                    (it.id, it.index, it.contract, it.is_system, it.declared_by, it.is_sure)
                };
                assert_eq!(of(&read), of(&given));
                assert_eq!(read.topics.iter().collect::<Vec<_>>(), TOPICS);
                assert_eq!(read.data, given.data);
                again.push(&read).unwrap();
            }
            assert_eq!(again.finish(), value);
        }
    }

    /// Stores of earlier versions have such values.
    #[test]
    fn emits_of_earlier_versions_are_converted() {
        let bytes = |bytes: &[u8]| ScVal::Bytes(ScBytes(bytes.try_into().unwrap()));
        let by = |by: Option<DeclaredBy>| match by {
            None => ScVal::Void,
            Some(DeclaredBy::Asset) => bytes(&[0]),
            Some(DeclaredBy::Code(hash)) => bytes(&[&[1], hash.as_bytes().as_slice()].concat()),
            Some(DeclaredBy::Supplied(hash)) => bytes(&[&[2], hash.as_bytes().as_slice()].concat()),
        };
        let emit = |it: LoggedEvent<'_>| {
            let topics = TOPICS.map(bytes).to_vec();
            let fields = [
                ("by", by(it.declared_by)),
                ("data", bytes(it.data)),
                ("id", ScVal::U64(it.id)),
                ("index", ScVal::U32(it.index)),
                ("sure", ScVal::Bool(it.is_sure)),
                ("system", ScVal::Bool(it.is_system)),
                ("topics", ScVal::Vec(Some(ScVec(topics.try_into().unwrap())))),
            ];
            let fields = fields.map(|(name, val)| ScMapEntry {
                key: ScVal::Symbol(ScSymbol(name.try_into().unwrap())),
                val,
            });
            let fields = ScMap(fields.to_vec().try_into().unwrap());
            Emit { contract: it.contract, target: String::new(), fields }
        };
        for closed_at in TIMES {
            let emits = ALL.map(event).map(emit).to_vec();
            let run = RunRows { transaction: TxHash::from([5; 32]), closed_at, emits };
            let stored = run.encode().unwrap();
            assert_eq!(in_this_form(&stored).unwrap(), written(closed_at));
        }
        let other = RunRows {
            transaction: TxHash::from([5; 32]),
            closed_at: TIMES[0],
            emits: vec![Emit {
                contract: ContractId([9; 32]),
                target: String::new(),
                fields: ScMap::default(),
            }],
        };
        assert_eq!(in_this_form(&other.encode().unwrap()), Err(Damaged));
    }

    #[test]
    fn truncated_values_are_damaged() {
        let whole = written(TIMES[0]);
        let count = |value: &[u8]| {
            let events = LoggedEvents::read(value)?;
            events.events().try_fold(0, |count, event| event.map(|_| count + 1))
        };
        assert_eq!(count(&whole), Ok(ALL.len()));
        for end in 0..whole.len() {
            assert_ne!(count(&whole[..end]), Ok(ALL.len()), "{end}");
        }
    }
}
