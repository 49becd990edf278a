//! Projects of events: programs without code, whose rows are the events of their contracts. What a
//! run is for a program, the events of a transaction are for a project; everything else is the same.
//!
//! The row log holds the events as they are, each with the interface that declares it (`logged`). The
//! tables follow from a summary of them ([`Shapes`](orrery_tables::event_tables::Shapes)) in the
//! manifest, and the rows of the tables from both ([`table_rows`]). What an event is declared by is
//! looked up when it is read (`reading`). While that is not known, the event has no declaration;
//! once it becomes known, the project is derived again (`deriving`).

mod beginning;
mod data_finding;
mod data_log;
mod data_looking;
mod data_reading;
mod data_rows;
mod declared_by;
mod declared_tables;
mod declaring;
mod derivation;
mod deriving;
mod examining;
mod interfaces;
mod kinds;
mod known;
mod lacking;
mod logged;
mod looking;
mod looks;
mod members;
mod merging;
mod pause;
mod project;
mod read_ledgers;
mod reading;
mod row_place;
mod spans;
mod summary;
mod supplied;
mod table_rows;
mod unnamed;
mod unsure;
mod values;

pub(super) use beginning::begin_reading;
#[cfg(test)]
pub(super) use declared_by::DeclaredBy;
pub use declared_tables::{DeclaredColumn, DeclaredTable};
pub use interfaces::{EventInterfaces, OfProject};
pub use kinds::Kinds;
pub use known::KnownInterface;
pub use lacking::WithoutInterface;
#[cfg(test)]
pub(super) use logged::{LoggedEvents, in_this_form};
pub(super) use looking::look_when_more_is_known;
pub use looking::{Found, Looked};
pub use looks::Looks;
#[cfg(test)]
pub(super) use members::LoggedMember;
pub use members::{
    CaughtUp, CreatorAddress, FactorySelector, Flags, MemberIndex, MembersOf, MembersStatus,
    Selectors, Synced, Versions,
};
pub(super) use members::{announcements_lost, in_memory, members};
pub use merging::{Merged, merged};
pub use project::{EventCounts, EventProject};
pub use row_place::{RowPlace, Within};
pub use spans::Unnamed;
pub use summary::{Nameless, Open, Summary};
pub use supplied::SuppliedInterfaces;
pub use table_rows::{each_row, frames, table_rows};
pub(super) use unnamed::put_unnamed;
pub use unsure::{Unsure, UnsureSpan};
