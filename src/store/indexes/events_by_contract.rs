//! Index of events by contract.

use super::index::{Index, RowsOf};
use super::values::Tags;
use crate::encoding::columns::{ContractTag, Family};
use crate::encoding::records::EventRecord;

pub(crate) const INDEX: Index = Index {
    family: Family::EventsByContract,
    tag_len: ContractTag::LEN,
    rows_of: RowsOf::Event(rows_of),
};

fn rows_of(event: &EventRecord<'_>, tags: &mut Tags<'_>) {
    if let Some(contract) = event.contract {
        tags.add(&ContractTag::of(contract).0);
    }
}
