//! A summary of all events so far, from which the tables follow. The same events give the same
//! summary in any order, in any parts, and however often each is added.

use std::collections::{BTreeMap, BTreeSet};

use orrery_interfaces::Origin;
use orrery_ledger::domain::Hash32;
use serde::{Deserialize, Serialize};

use super::declarations::Declarations;
use super::declared::DeclaredShapes;
use super::kind::Kind;
use super::shape::{Shape, ShapeKey, weight};
use super::shaped::Shaped;
use super::{Declared, Event, Place};
use crate::types::ColumnType;

/// Maximum number of bytes that the shapes take. Of more, those that come first in the chain are kept.
pub const MOST_BYTES: usize = 768 << 10;
/// Maximum number of declared names: at most 256 KiB.
const MOST_NAMES: usize = 4_096;
/// A summary of events. Grows with [`Shapes::add`] and [`Shapes::join`], and never forgets.
///
/// Beyond [`MOST_BYTES`], all columns without a declared type are JSON: a shape
/// that was left out somewhere and comes back with an earlier event has lost the types of its values.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Shapes {
    #[serde(with = "pairs")]
    pub(super) shapes: BTreeMap<ShapeKey, Shape>,
    /// Names that consulted interfaces declare.
    pub(super) names: BTreeSet<String>,
    /// The events that they declare.
    #[serde(skip)]
    pub(super) declared: DeclaredShapes,
    /// Ids of interfaces whose names are known to be among them.
    #[serde(skip)]
    consulted: BTreeSet<Hash32>,
    /// Whether there were more shapes than are kept.
    pub(super) is_cut: bool,
    /// The first place from which on none is kept. Those before it take too much together, so that
    /// it does not matter when each came.
    #[serde(skip)]
    pub(super) beyond: Option<(Place, ShapeKey)>,
    /// What the shapes take, in bytes.
    #[serde(skip)]
    bytes: usize,
    /// What the project has besides its events.
    #[serde(skip)]
    pub(super) besides: Besides,
}

/// What a project has besides its events. Stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Besides {
    /// Nothing, and events have the names that changes of what contracts hold need: a project of an earlier
    /// version.
    #[default]
    Nothing,
    /// Nothing, and no event has these names.
    Names,
    /// The changes of what its contracts hold.
    Storage,
    /// Nothing, and no event has a name that these changes or its members need.
    AllNames,
    /// The changes of what its contracts hold, and no event has a name that its members need.
    StorageAndNames,
    /// The members that its selectors select.
    Members,
    /// These, and the changes of what they hold.
    MembersAndStorage,
}

impl Besides {
    fn new(has_storage: bool, has_members: bool) -> Self {
        match (has_storage, has_members) {
            (false, false) => Self::AllNames,
            (true, false) => Self::StorageAndNames,
            (false, true) => Self::Members,
            (true, true) => Self::MembersAndStorage,
        }
    }

    /// Whether there are changes of what its contracts hold.
    pub fn has_storage(self) -> bool {
        matches!(self, Self::Storage | Self::StorageAndNames | Self::MembersAndStorage)
    }

    /// Whether there are members.
    pub fn has_members(self) -> bool {
        matches!(self, Self::Members | Self::MembersAndStorage)
    }

    /// Whether no event has the names that members need.
    pub fn reserves_names_of_members(self) -> bool {
        !matches!(self, Self::Nothing | Self::Names | Self::Storage)
    }
}

impl PartialEq for Shapes {
    fn eq(&self, other: &Self) -> bool {
        let parts = |it: &Self| (it.is_cut, it.besides);
        (&self.shapes, &self.names, &self.declared, parts(self), &self.beyond)
            == (&other.shapes, &other.names, &other.declared, parts(other), &other.beyond)
    }
}

impl Eq for Shapes {}

impl Shapes {
    /// An empty summary of a new project, with or without the changes of what its contracts hold, and the
    /// members that selectors select.
    pub fn new(has_storage: bool, has_members: bool) -> Self {
        Self { besides: Besides::new(has_storage, has_members), ..Self::default() }
    }

    /// Adds an event. Returns its kind, and whether the summary has changed, so that the tables may have.
    pub fn add(&mut self, event: &Event<'_>) -> (Kind, bool) {
        let consults = match event.declared {
            Declared::By(_, declarations) => self.consult(declarations),
            Declared::System | Declared::Nowhere => false,
        };
        let Some(shaped) = Shaped::new(event) else { return (Kind(None), consults) };
        let key = shaped.key(event.topics.len());
        let changes = match self.shapes.get_mut(&key) {
            Some(shape) => shaped.add_to(shape, event.place),
            None => self.insert(key.clone(), shaped.shape(event.place)),
        };
        (Kind(Some(key)), changes | consults)
    }

    /// As [`Self::add`], for an event of which only its place and its declaration are known.
    pub fn add_declared(
        &mut self,
        declarations: &Declarations,
        number: usize,
        place: Place,
    ) -> (Kind, bool) {
        let consults = self.consult(declarations);
        let Some(form) = declarations.form(number) else { return (Kind(None), consults) };
        let key = declarations.key(form);
        let changes = match self.shapes.get_mut(&key) {
            Some(shape) => shape.be_at(place),
            None => self.insert(key.clone(), form.shape(place)),
        };
        (Kind(Some(key)), changes | consults)
    }

    /// Adds the events that an interface declares, and reserves their names. Call it for every
    /// interface of a contract, and for those in which the declaration of an event is looked for;
    /// interfaces that are known are passed over at once.
    pub fn consult(&mut self, declarations: &Declarations) -> bool {
        if !self.note(declarations.id()) {
            return false;
        }
        self.reserve(declarations.names()) | self.declared.add(declarations.shapes())
    }

    /// Adds the events of another summary. Returns whether this one has changed.
    pub fn join(&mut self, other: &Self) -> bool {
        let mut changes = other.is_cut && !self.is_cut;
        if other.is_cut {
            self.cut();
        }
        if let Some(theirs) = &other.beyond {
            changes |= self.keep_before(theirs.clone());
        }
        for (key, theirs) in &other.shapes {
            let mut theirs = theirs.clone();
            if self.is_cut {
                blur(key, &mut theirs);
            }
            changes |= match self.shapes.get_mut(key) {
                Some(shape) => shape.join(&theirs, key),
                None => self.insert(key.clone(), theirs),
            };
        }
        other.consulted.iter().for_each(|id| {
            self.note(*id);
        });
        changes |= self.declared.join(&other.declared);
        changes | self.reserve(other.names.iter().map(String::as_str))
    }

    /// Returns what is declared, without the events.
    #[must_use]
    pub fn without_events(&self) -> Self {
        let Self { names, declared, besides, .. } = self;
        let (names, declared) = (names.clone(), declared.clone());
        Self { names, declared, besides: *besides, ..Self::default() }
    }

    /// Whether [`Self::join`] may change this one. Does not copy it.
    pub fn may_change_by(&self, other: &Self) -> bool {
        let is_earlier = other.beyond.as_ref().is_some_and(|theirs| !self.is_beyond(theirs));
        let changes = |(key, theirs): (&ShapeKey, &Shape)| match self.shapes.get(key) {
            Some(own) if self.is_cut => theirs.first < own.first,
            Some(own) => own.clone().join(theirs, key),
            None => !self.is_beyond(&(theirs.first, key.clone())),
        };
        (other.is_cut && !self.is_cut)
            || is_earlier
            || other.shapes.iter().any(changes)
            || other.names.iter().any(|name| self.reserves(name))
            || self.declared.may_change_by(&other.declared)
    }

    /// A summary as it was stored. Of one that exceeds the limits, which may have been others, the part
    /// within them is kept.
    #[must_use]
    pub fn within_limits(mut self) -> Self {
        self.bytes = self.shapes.iter().map(|(key, shape)| weight(key, shape)).sum();
        self.drop_last_while_too_large();
        while self.names.len() > MOST_NAMES {
            self.names.pop_last();
        }
        self
    }

    /// What the summary takes, in bytes: an estimate.
    pub fn bytes(&self) -> usize {
        let names = self.names.iter().map(|name| 1 + name.len()).sum::<usize>();
        self.bytes + names + self.declared.bytes()
    }

    /// Number of shapes.
    pub fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Whether there are no shapes.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// Whether events of some shapes are in the table `undeclared`, because there are too many.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The names that consulted interfaces declare.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }

    /// The declared events that have not occurred, in the order of their keys.
    pub(super) fn not_occurred(&self) -> impl Iterator<Item = (&ShapeKey, &Shape)> {
        self.declared.iter().filter(|(key, _)| !self.shapes.contains_key(key))
    }

    /// The shapes in the order of the chain.
    pub(super) fn in_order(&self) -> Vec<(&ShapeKey, &Shape)> {
        let mut shapes: Vec<_> = self.shapes.iter().collect();
        shapes.sort_by_key(|(key, shape)| (shape.first, *key));
        shapes
    }

    fn insert(&mut self, key: ShapeKey, mut shape: Shape) -> bool {
        if self.is_beyond(&(shape.first, key.clone())) {
            return false;
        }
        if self.is_cut {
            blur(&key, &mut shape);
        }
        self.bytes += weight(&key, &shape);
        self.shapes.insert(key, shape);
        self.drop_last_while_too_large();
        true
    }

    /// Leaves out the last shapes in the order of the chain while all take too much.
    fn drop_last_while_too_large(&mut self) {
        while self.bytes > MOST_BYTES {
            let last = self.shapes.iter().map(|(key, shape)| (shape.first, key)).max();
            let Some((first, key)) = last else { return };
            let beyond = (first, key.clone());
            self.cut();
            self.keep_before(beyond);
        }
    }

    /// Leaves out the shapes from a place on, now and later. Returns whether that changes anything.
    fn keep_before(&mut self, beyond: (Place, ShapeKey)) -> bool {
        if self.is_beyond(&beyond) {
            return false;
        }
        self.shapes.retain(|key, shape| (shape.first, key) < (beyond.0, &beyond.1));
        self.bytes = self.shapes.iter().map(|(key, shape)| weight(key, shape)).sum();
        self.beyond = Some(beyond);
        true
    }

    /// Whether a shape with this first place is left out.
    fn is_beyond(&self, at: &(Place, ShapeKey)) -> bool {
        self.beyond.as_ref().is_some_and(|beyond| at >= beyond)
    }

    fn cut(&mut self) {
        if !std::mem::replace(&mut self.is_cut, true) {
            self.shapes.iter_mut().for_each(|(key, shape)| blur(key, shape));
        }
    }

    /// Notes that the names of an interface are known. Returns whether they were not.
    fn note(&mut self, id: Hash32) -> bool {
        if self.consulted.len() >= MOST_NAMES {
            self.consulted.clear();
        }
        self.consulted.insert(id)
    }

    /// Adds names. Of too many, the first in alphabetical order are kept, so that it does not matter
    /// when each came.
    fn reserve<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) -> bool {
        let mut changes = false;
        for name in names {
            if self.reserves(name) {
                changes |= self.names.insert(name.to_owned());
                if self.names.len() > MOST_NAMES {
                    self.names.pop_last();
                }
            }
        }
        changes
    }

    /// Whether a name is new, and not one too many.
    fn reserves(&self, name: &str) -> bool {
        !self.names.contains(name)
            && (self.names.len() < MOST_NAMES
                || self.names.last().is_some_and(|last| name < last.as_str()))
    }
}

/// Makes the columns without a declared type JSON.
fn blur(key: &ShapeKey, shape: &mut Shape) {
    if matches!(key, ShapeKey::Inferred { .. }) {
        shape.columns.iter_mut().for_each(|column| column.kind = ColumnType::Json);
    }
}

impl ShapeKey {
    /// The text in the column `_declared`.
    pub(super) fn declared_by(&self) -> &'static str {
        match self {
            Self::Declared { origin: Origin::Chain, .. } => "chain",
            Self::Declared { origin: Origin::Supplied, .. } => "supplied",
            Self::Inferred { .. } => "inferred",
        }
    }
}

/// A map as a list of pairs, because keys of JSON objects are texts.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, K: Serialize, V: Serialize>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D, K, V>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        D: Deserializer<'de>,
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}
