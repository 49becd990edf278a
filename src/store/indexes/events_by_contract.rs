//! Index of events by contract.

use super::super::columns::{ContractTag, Family};
use super::super::query::EventRecord;
use super::{Index, RowsOf, Tags};

pub(super) const INDEX: Index = Index {
    family: Family::EventsByContract,
    tag_len: ContractTag::LEN,
    rows_of: RowsOf::Event(rows_of),
};

fn rows_of(event: &EventRecord<'_>, tags: &mut Tags<'_>) {
    if let Some(contract) = event.contract {
        tags.add(&ContractTag::of(contract).0);
    }
}
