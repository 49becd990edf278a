//! The declarations of an interface as shapes of tables: their names, and their columns by the
//! declared types.

use std::collections::{BTreeSet, HashMap};

use orrery_interfaces::{Interface, Origin, asset_contract, names};
use orrery_ledger::domain::Hash32;
use stellar_xdr::ScSpecEventV0;

use super::Place;
use super::columns::{Columns, DEEPEST, MOST_COLUMNS};
use super::shape::{Shape, ShapeKey};
use crate::spec::ParameterTypes;
use crate::types::Field;

/// Number of forms of one event with which a declaration is compared. Further ones are forms of
/// their own.
const MOST_COMPARED: usize = 16;
/// Memory of a form besides its name and columns, in bytes.
const OF_FORM: usize = 200;

/// The declarations of an interface, each with the form of the event that it belongs to. Built once
/// for each interface.
#[derive(Debug, Clone)]
pub struct Declarations {
    id: Hash32,
    origin: Origin,
    names: BTreeSet<String>,
    forms: Vec<Form>,
    /// For each declaration the position of its form.
    form_of: Vec<usize>,
}

/// Declarations of one event whose common columns join.
#[derive(Debug, Clone)]
pub(super) struct Form {
    /// Number of the first of the declarations.
    pub number: u32,
    /// Name of the event.
    pub name: String,
    /// Columns of all of them.
    columns: Columns,
}

impl Form {
    pub fn columns(&self) -> &[Field] {
        self.columns.fields()
    }

    /// Returns the shape of its events, of which the first is at this place.
    pub fn shape(&self, first: Place) -> Shape {
        Shape { first, name: self.name.clone(), columns: self.columns().to_vec() }
    }
}

impl Declarations {
    /// The declarations of an interface. Equal ids must mean equal interfaces.
    pub fn new(id: Hash32, origin: Origin, interface: &Interface) -> Self {
        Self::grouped(id, origin, interface, |form, columns| form.columns.join(columns))
    }

    /// The declarations of the contract that every asset has. The forms of one event are one table:
    /// what they have in common and does not join is JSON.
    pub fn of_asset_contract() -> Self {
        Self::grouped(Hash32::default(), Origin::Chain, asset_contract(), |_, _| true)
    }

    fn grouped(
        id: Hash32,
        origin: Origin,
        interface: &Interface,
        joins: impl Fn(&Form, &[Field]) -> bool,
    ) -> Self {
        let (names, form_of) = (BTreeSet::new(), Vec::new());
        let mut own = Self { id, origin, names, forms: Vec::new(), form_of };
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        let mut types = ParameterTypes::new(interface.types(), DEEPEST);
        let events = interface.events().zip(interface.event_names());
        for (number, (event, name)) in (0..).zip(events) {
            let columns = columns(event, &mut types);
            let same = by_name.entry(name.to_owned()).or_default();
            let form = same.iter().take(MOST_COMPARED).copied();
            match form.into_iter().find(|at| joins(&own.forms[*at], &columns)) {
                Some(at) => {
                    own.forms[at].columns.merge(&columns, MOST_COLUMNS);
                    own.form_of.push(at);
                }
                None => {
                    own.form_of.push(own.forms.len());
                    same.push(own.forms.len());
                    let name = name.to_owned();
                    own.names.insert(name.clone());
                    let columns = Columns::new(&columns, MOST_COLUMNS);
                    own.forms.push(Form { number, name, columns });
                }
            }
        }
        own
    }

    /// Id of the interface.
    pub fn id(&self) -> Hash32 {
        self.id
    }

    /// Memory that the declarations take, in bytes: an estimate.
    pub fn bytes(&self) -> usize {
        let forms = self.forms.iter().map(|form| OF_FORM + form.name.len() + form.columns.bytes());
        self.form_of.len() * size_of::<usize>() + forms.sum::<usize>()
    }

    /// Names of the events that it declares.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns the shapes of the events that it declares, as if none of them had occurred.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (ShapeKey, Shape)> {
        self.forms.iter().map(|form| (self.key(form), form.shape(Place::NONE)))
    }

    /// Returns what tells the events of a form from others.
    pub(super) fn key(&self, form: &Form) -> ShapeKey {
        ShapeKey::Declared { interface: self.id, origin: self.origin, number: form.number }
    }

    /// Returns the form that the declaration with this number belongs to.
    pub(super) fn form(&self, number: usize) -> Option<&Form> {
        self.form_of.get(number).map(|at| &self.forms[*at])
    }
}

fn columns<'a>(event: &'a ScSpecEventV0, types: &mut ParameterTypes<'a>) -> Vec<Field> {
    let names = names::parameters(event.params.iter().map(|parameter| parameter.name.as_slice()));
    let kinds = types.of_event(event);
    names.into_iter().zip(kinds).map(|(name, kind)| Field { name, kind }).collect()
}
