//! Joins options and results that stand inside each other, so that a value is compared once with
//! what they enclose, however often a declaration repeats them.

use std::collections::HashSet;

use stellar_xdr::{
    ScSpecEntry, ScSpecTypeDef, ScSpecTypeMap, ScSpecTypeOption, ScSpecTypeResult, ScSpecTypeTuple,
    ScSpecTypeVec, ScSpecUdtUnionCaseV0, VecM,
};

/// Returns an entry with the same values for each of its types, in which an option stands at most
/// once around a type, and a result once for each kind of error.
pub(super) fn entry(mut entry: ScSpecEntry) -> ScSpecEntry {
    match &mut entry {
        ScSpecEntry::FunctionV0(function) => {
            each(&mut function.inputs, |input| change(&mut input.type_));
            each(&mut function.outputs, change);
        }
        ScSpecEntry::UdtStructV0(definition) => {
            each(&mut definition.fields, |field| change(&mut field.type_));
        }
        ScSpecEntry::UdtUnionV0(definition) => each(&mut definition.cases, |case| match case {
            ScSpecUdtUnionCaseV0::VoidV0(_) => {}
            ScSpecUdtUnionCaseV0::TupleV0(case) => each(&mut case.type_, change),
        }),
        ScSpecEntry::EventV0(event) => each(&mut event.params, |param| change(&mut param.type_)),
        ScSpecEntry::UdtEnumV0(_) | ScSpecEntry::UdtErrorEnumV0(_) => {}
    }
    entry
}

fn each<T: Clone, const MOST: u32>(list: &mut VecM<T, MOST>, mut change: impl FnMut(&mut T)) {
    let mut items = std::mem::take(list).into_vec();
    items.iter_mut().for_each(&mut change);
    // As many as before, so that they fit.
    *list = items.try_into().unwrap_or_default();
}

fn change(kind: &mut ScSpecTypeDef) {
    *kind = joined(std::mem::replace(kind, ScSpecTypeDef::Val));
}

/// An option, or a result with its error, around a type.
enum Around {
    Option,
    Result(Box<ScSpecTypeDef>),
}

/// Which values the options and results so far take, besides those of the type in them.
#[derive(Default)]
struct Taken {
    void: bool,
    has_result: bool,
    all_errors: bool,
    errors: HashSet<Vec<u8>>,
}

impl Taken {
    /// Whether an option takes more.
    fn more_by_option(&mut self) -> bool {
        !std::mem::replace(&mut self.void, true)
    }

    /// Whether a result with this error takes more. The first always counts: there is a result.
    fn more_by_result(&mut self, error: &ScSpecTypeDef) -> bool {
        let is_first = !std::mem::replace(&mut self.has_result, true);
        let takes_more = match error {
            _ if self.all_errors => false,
            ScSpecTypeDef::Error | ScSpecTypeDef::Val => {
                self.all_errors = true;
                true
            }
            ScSpecTypeDef::Udt(named) => self.errors.insert(named.name.to_vec()),
            _ => false,
        };
        is_first || takes_more
    }
}

/// Returns the type with its options and results joined, and those of its parts. The depth of the
/// type must have been checked.
fn joined(kind: ScSpecTypeDef) -> ScSpecTypeDef {
    let (mut around, mut taken, mut inner) = (Vec::new(), Taken::default(), kind);
    let inner = loop {
        inner = match inner {
            ScSpecTypeDef::Option(of) => {
                around.extend(taken.more_by_option().then_some(Around::Option));
                *of.value_type
            }
            ScSpecTypeDef::Result(of) => {
                let ScSpecTypeResult { ok_type, error_type } = *of;
                if taken.more_by_result(&error_type) {
                    around.push(Around::Result(error_type));
                }
                *ok_type
            }
            inner => break parts_joined(inner),
        };
    };
    around.into_iter().rev().fold(inner, |inner, around| match around {
        Around::Option => {
            ScSpecTypeDef::Option(Box::new(ScSpecTypeOption { value_type: Box::new(inner) }))
        }
        Around::Result(error_type) => ScSpecTypeDef::Result(Box::new(ScSpecTypeResult {
            ok_type: Box::new(inner),
            error_type,
        })),
    })
}

fn parts_joined(kind: ScSpecTypeDef) -> ScSpecTypeDef {
    let part = |kind: Box<ScSpecTypeDef>| Box::new(joined(*kind));
    match kind {
        ScSpecTypeDef::Vec(of) => {
            ScSpecTypeDef::Vec(Box::new(ScSpecTypeVec { element_type: part(of.element_type) }))
        }
        ScSpecTypeDef::Map(of) => {
            let ScSpecTypeMap { key_type, value_type } = *of;
            let (key_type, value_type) = (part(key_type), part(value_type));
            ScSpecTypeDef::Map(Box::new(ScSpecTypeMap { key_type, value_type }))
        }
        ScSpecTypeDef::Tuple(of) => {
            let ScSpecTypeTuple { mut value_types } = *of;
            each(&mut value_types, change);
            ScSpecTypeDef::Tuple(Box::new(ScSpecTypeTuple { value_types }))
        }
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use stellar_xdr::ScSpecTypeUdt;

    use super::*;
    use crate::spelled;

    fn option(kind: ScSpecTypeDef) -> ScSpecTypeDef {
        ScSpecTypeDef::Option(Box::new(ScSpecTypeOption { value_type: Box::new(kind) }))
    }

    fn result(ok: ScSpecTypeDef, error: ScSpecTypeDef) -> ScSpecTypeDef {
        let (ok_type, error_type) = (Box::new(ok), Box::new(error));
        ScSpecTypeDef::Result(Box::new(ScSpecTypeResult { ok_type, error_type }))
    }

    fn udt(name: &str) -> ScSpecTypeDef {
        ScSpecTypeDef::Udt(ScSpecTypeUdt { name: name.try_into().unwrap() })
    }

    #[test]
    fn only_what_takes_more_values_stays() {
        use ScSpecTypeDef::{Error, U32};
        let vec =
            |kind| ScSpecTypeDef::Vec(Box::new(ScSpecTypeVec { element_type: Box::new(kind) }));
        for (kind, expected) in [
            (option(option(option(U32))), "Option<u32>"),
            (option(result(option(result(U32, Error)), Error)), "Option<Result<u32,Error>>"),
            (result(result(U32, udt("A")), udt("A")), "Result<u32,A>"),
            (result(result(U32, udt("B")), udt("A")), "Result<Result<u32,B>,A>"),
            (result(result(U32, udt("B")), Error), "Result<u32,Error>"),
            (result(result(U32, U32), udt("A")), "Result<u32,A>"),
            (result(result(U32, U32), U32), "Result<u32,u32>"),
            (vec(option(vec(option(option(U32))))), "Vec<Option<Vec<Option<u32>>>>"),
        ] {
            assert_eq!(spelled(&joined(kind)), expected);
        }
    }
}
