//! Estimates how much memory an interface takes.

use stellar_xdr::{ScSpecEntry, ScSpecTypeDef, ScSpecUdtUnionCaseV0};

use super::event::Event;

/// Memory of an entry, of a part with a name, and of a type, in bytes: the sizes of what is kept of
/// each in its list and in the table by which it is looked up, with what the allocator adds.
const ENTRY: usize = 400;
const PART: usize = 200;
const TYPE: usize = 32;

/// Returns the memory that an entry takes besides what [`of_event`] adds, in bytes.
pub(super) fn of_entry(entry: &ScSpecEntry) -> usize {
    ENTRY
        + match entry {
            ScSpecEntry::FunctionV0(it) => {
                let inputs = it.inputs.iter().map(|input| part(&input.doc, &input.type_));
                it.doc.len() + inputs.sum::<usize>() + it.outputs.iter().map(kind).sum::<usize>()
            }
            ScSpecEntry::UdtStructV0(it) => {
                it.fields.iter().map(|field| part(&field.name, &field.type_)).sum()
            }
            ScSpecEntry::UdtUnionV0(it) => {
                let cases = it.cases.iter().map(|case| match case {
                    ScSpecUdtUnionCaseV0::VoidV0(_) => PART,
                    ScSpecUdtUnionCaseV0::TupleV0(case) => {
                        PART + case.type_.iter().map(kind).sum::<usize>()
                    }
                });
                cases.sum()
            }
            ScSpecEntry::UdtEnumV0(it) => it.cases.len() * TYPE,
            ScSpecEntry::UdtErrorEnumV0(it) => it.cases.len() * PART,
            ScSpecEntry::EventV0(it) => {
                let params = it.params.iter().map(|param| part(&param.doc, &param.type_));
                it.doc.len() + params.sum::<usize>()
            }
        }
}

/// Returns the memory that the names of an event's parameters take, in bytes. Parameters of one name
/// get longer ones.
pub(super) fn of_event(event: &Event) -> usize {
    event.names.iter().map(String::len).sum()
}

fn part(text: &[u8], of: &ScSpecTypeDef) -> usize {
    PART + text.len() + kind(of)
}

/// The depth of types is limited.
fn kind(of: &ScSpecTypeDef) -> usize {
    TYPE + match of {
        ScSpecTypeDef::Option(of) => kind(&of.value_type),
        ScSpecTypeDef::Result(of) => kind(&of.ok_type) + kind(&of.error_type),
        ScSpecTypeDef::Vec(of) => kind(&of.element_type),
        ScSpecTypeDef::Map(of) => kind(&of.key_type) + kind(&of.value_type),
        ScSpecTypeDef::Tuple(of) => of.value_types.iter().map(kind).sum(),
        _ => 0,
    }
}
