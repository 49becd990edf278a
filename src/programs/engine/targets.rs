//! To which targets a module may emit, as far as that can be seen without running it. Knows how the
//! SDK's derive and the compiler leave a name behind: as text in the data, or as a number in the code.

use std::collections::BTreeSet;

use soroban_env_host::SymbolSmall;
use wasmparser::{DataKind, Operator, Parser, Payload};

/// The longest name that is looked for among those of fields: a symbol's.
const LONGEST_NAME: u32 = 32;
/// Bits of a word that say what it is, and those of a symbol that is made of the others.
const TAG: u64 = 0xff;
const SMALL_SYMBOL: u64 = 14;

/// What a module has that may name a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Targets {
    /// Data segments, and where they come to lie if that is known.
    segments: Vec<(Option<u32>, Vec<u8>)>,
    /// Constants of the code that may be addresses of texts.
    addresses: BTreeSet<u32>,
    /// Constants of the code that are symbols of at most nine characters, as words.
    symbols: BTreeSet<u64>,
    /// Addresses and lengths in the data: a struct's names of fields lie there as such pairs.
    slices: BTreeSet<(u32, u32)>,
}

impl Targets {
    /// Looks through a module that is valid.
    pub(super) fn of(code: &[u8]) -> wasmparser::Result<Self> {
        let mut found = Self::default();
        for payload in Parser::new(0).parse_all(code) {
            match payload? {
                Payload::CodeSectionEntry(body) => {
                    for operator in body.get_operators_reader()? {
                        found.constant(&operator?);
                    }
                }
                Payload::DataSection(segments) => {
                    for segment in segments {
                        let segment = segment?;
                        let at = match segment.kind {
                            DataKind::Active { offset_expr, .. } => {
                                match offset_expr.get_operators_reader().read()? {
                                    Operator::I32Const { value } => Some(value.cast_unsigned()),
                                    _ => None,
                                }
                            }
                            DataKind::Passive => None,
                        };
                        found.segments.push((at, segment.data.to_vec()));
                    }
                }
                _ => {}
            }
        }
        let ends =
            found.segments.iter().filter_map(|(at, bytes)| Some((*at)? as usize + bytes.len()));
        let end = ends.max().and_then(|end| u32::try_from(end).ok()).unwrap_or(u32::MAX);
        found.addresses.retain(|address| *address < end);
        let slices_of = |(at, bytes): &(Option<u32>, Vec<u8>)| slices(*at, bytes, end);
        found.slices = found.segments.iter().flat_map(slices_of).collect();
        Ok(found)
    }

    fn constant(&mut self, operator: &Operator<'_>) {
        match operator {
            Operator::I32Const { value } => drop(self.addresses.insert(value.cast_unsigned())),
            Operator::I64Const { value } if value.cast_unsigned() & TAG == SMALL_SYMBOL => {
                self.symbols.insert(value.cast_unsigned());
            }
            _ => {}
        }
    }

    /// Whether the module may emit to a target: its name is a symbol in the code, or a text in the data.
    /// A text that is the name of a struct's field, and that the code does not point at, is not counted.
    pub fn has(&self, target: &str) -> bool {
        let symbol = SymbolSmall::try_from_str(target).ok();
        if symbol.is_some_and(|symbol| self.symbols.contains(&symbol.as_val().get_payload())) {
            return true;
        }
        let (mut occurs, mut is_field) = (false, false);
        for address in self.places(target) {
            occurs = true;
            let Some(address) = address else { continue };
            if self.addresses.contains(&address) {
                return true;
            }
            is_field |= self.slices.contains(&(address, target.len() as u32));
        }
        occurs && !is_field
    }

    /// Where a text lies in memory, as far as that is known.
    fn places(&self, text: &str) -> impl Iterator<Item = Option<u32>> {
        let text = text.as_bytes();
        self.segments.iter().filter(move |_| !text.is_empty()).flat_map(move |(at, bytes)| {
            let within = bytes.windows(text.len()).enumerate().filter(move |(_, it)| *it == text);
            within.map(move |(offset, _)| {
                at.and_then(|at| at.checked_add(u32::try_from(offset).ok()?))
            })
        })
    }
}

/// Pairs of an address and a short length in a segment, both four bytes and at addresses of such.
fn slices(at: Option<u32>, bytes: &[u8], end: u32) -> Vec<(u32, u32)> {
    let to_boundary = at.map_or(0, |at| (at.wrapping_neg() % 4) as usize);
    let aligned = bytes.get(to_boundary..).unwrap_or_default();
    let words = aligned.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    let words: Vec<u32> = words.collect();
    let pairs = words.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|(at, length)| *at < end && (1..=LONGEST_NAME).contains(length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tick` as a number in the code; `trade` as a text that the code points at; `place` and its
    /// neighbour `replaced` as texts of which one is the name of a field; `other` as a text.
    const MODULE: &str = r#"(module
        (memory 1)
        (func (result i64) i32.const 1024 i32.const 5 drop drop i64.const 3874107406)
        (data (i32.const 1024) "tradeplacereplaced\00\00")
        (data (i32.const 1044) "\05\04\00\00\05\00\00\00\02\04\00\00")
        (data "other"))"#;

    #[test]
    fn names_are_told_from_names_of_fields() {
        let targets = Targets::of(&wat::parse_str(MODULE).unwrap()).unwrap();
        for (name, is_there) in [
            ("trade", true),
            ("tick", true),
            ("other", true),
            ("place", false),
            ("replaced", true),
            ("absent", false),
            ("tock", false),
            ("", false),
        ] {
            assert_eq!(targets.has(name), is_there, "{name}");
        }
    }
}
