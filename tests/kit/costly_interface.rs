//! An interface of some kilobytes that was made to cost each event of its contract as much as it can,
//! and such an event.

use stellar_xdr::{ScSpecEntry, ScVal};

use super::specs::{SingleValue, Type, event, result, structure, udt, vec};
use super::values::{list, symbol};

/// Results around the innermost type, with that type.
const LEVELS: usize = 96;
/// Declarations of the same event.
const DECLARATIONS: usize = 1_000;
/// Items of the event's vector that are as declared. As XDR the event has some 16 KB, as much as the
/// network allows for a transaction.
pub const ITEMS: usize = 3_900;

/// A thousand declarations of one type, with a vector of values around which 96 results stand.
pub fn entries() -> Vec<ScSpecEntry> {
    let inner = (1..LEVELS).fold(Type::Void, |kind, _| result(kind, Type::Error));
    let kind = structure("T", &[("0".to_owned(), vec(inner))]);
    let declared = event("e", &["e"], &[], SingleValue, &[("a", udt("T"))]);
    [kind].into_iter().chain(vec![declared; DECLARATIONS]).collect()
}

/// Topics and data of an event that each of the declarations fits up to the first item of its vector,
/// which is compared last.
pub fn event_that_nearly_fits() -> (Vec<ScVal>, ScVal) {
    let items = [ScVal::U32(1)].into_iter().chain((0..ITEMS).map(|_| ScVal::Void));
    (vec![symbol("e")], list([list(items)]))
}
