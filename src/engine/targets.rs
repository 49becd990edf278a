//! Determines to which targets a module may emit, as far as that is visible without running it.
//! Relies on how the SDK's derive macro and the compiler store a name: as text in the data, or as a
//! number in the code.

use std::collections::BTreeSet;

use soroban_env_host::SymbolSmall;
use wasmparser::{DataKind, Operator, Parser, Payload};

/// Maximum length of a field name that is searched for: that of a symbol.
const LONGEST_NAME: u32 = 32;
/// Mask of the type tag in a `Val`, and the tag of a symbol whose characters are stored in the
/// other bits.
const TAG: u64 = 0xff;
const SMALL_SYMBOL: u64 = 14;

/// Contents of a module that may name a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Targets {
    /// Data segments, with their address in memory where it is known.
    segments: Vec<(Option<u32>, Vec<u8>)>,
    /// Constants of the code that may be addresses of texts.
    addresses: BTreeSet<u32>,
    /// Constants of the code that are symbols of at most nine characters, as `Val` words.
    symbols: BTreeSet<u64>,
    /// Pairs of address and length in the data, which is how the names of a struct's fields are
    /// stored.
    slices: BTreeSet<(u32, u32)>,
}

impl Targets {
    /// Scans a valid module.
    pub(super) fn of(code: &[u8]) -> wasmparser::Result<Self> {
        let mut found = Self::default();
        for payload in Parser::new(0).parse_all(code) {
            match payload? {
                Payload::CodeSectionEntry(body) => {
                    for operator in body.get_operators_reader()? {
                        found.add_constant(&operator?);
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

    fn add_constant(&mut self, operator: &Operator<'_>) {
        match operator {
            Operator::I32Const { value } => drop(self.addresses.insert(value.cast_unsigned())),
            Operator::I64Const { value } if value.cast_unsigned() & TAG == SMALL_SYMBOL => {
                self.symbols.insert(value.cast_unsigned());
            }
            _ => {}
        }
    }

    /// Returns whether the module may emit to a target: whether its name occurs as a symbol in the
    /// code or as text in the data. Text that is the name of a struct's field does not count unless
    /// the code contains its address.
    pub fn may_emit_to(&self, target: &str) -> bool {
        let symbol = SymbolSmall::try_from_str(target).ok();
        if symbol.is_some_and(|symbol| self.symbols.contains(&symbol.as_val().get_payload())) {
            return true;
        }
        let (mut occurs, mut is_field) = (false, false);
        for address in self.occurrences(target) {
            occurs = true;
            let Some(address) = address else { continue };
            if self.addresses.contains(&address) {
                return true;
            }
            is_field |= self.slices.contains(&(address, target.len() as u32));
        }
        occurs && !is_field
    }

    /// Returns the address of each occurrence of a text in the data, `None` where the segment's
    /// address is unknown.
    fn occurrences(&self, text: &str) -> impl Iterator<Item = Option<u32>> {
        let text = text.as_bytes();
        self.segments.iter().filter(move |_| !text.is_empty()).flat_map(move |(at, bytes)| {
            let within = bytes.windows(text.len()).enumerate().filter(move |(_, it)| *it == text);
            within.map(move |(offset, _)| {
                at.and_then(|at| at.checked_add(u32::try_from(offset).ok()?))
            })
        })
    }
}

/// Returns the pairs of adjacent 4-byte-aligned words in a segment that may be an address below
/// `end` and a length of 1 to [`LONGEST_NAME`].
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

    /// `tick` is a number in the code; `trade` is text whose address is in the code; `place` and
    /// its neighbour `replaced` are texts, of which one is the name of a field; `other` is text.
    const MODULE: &str = r#"(module
        (memory 1)
        (func (result i64) i32.const 1024 i32.const 5 drop drop i64.const 3874107406)
        (data (i32.const 1024) "tradeplacereplaced\00\00")
        (data (i32.const 1044) "\05\04\00\00\05\00\00\00\02\04\00\00")
        (data "other"))"#;

    #[test]
    fn targets_are_distinguished_from_field_names() {
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
            assert_eq!(targets.may_emit_to(name), is_there, "{name}");
        }
    }
}
