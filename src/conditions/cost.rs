//! What it costs at the most to ask a condition of something.

use super::condition::Condition;
use super::node::{Node, Part};

/// Number of bytes whose comparison is one step.
const BYTES_AT_ONCE: u64 = 64;
/// Number of bytes of a pattern with which a text is compared at once.
const PATTERN_AT_ONCE: u64 = 64;

/// What a part costs.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Steps, whatever it is asked of.
    once: u64,
    /// Steps for each [`BYTES_AT_ONCE`] bytes of what it is asked of.
    per_block: u64,
    /// Patterns that what it is asked of supplies itself.
    foreign_patterns: u64,
}

impl Condition {
    /// Returns how many steps it takes at the most to ask it of something of so many bytes. A step takes
    /// some ten nanoseconds. The number depends on nothing else, so that it is the same on every machine.
    pub fn steps(&self, bytes: usize) -> u64 {
        let mut cost = Cost::default();
        // A value is looked for, and read, once for each path.
        let paths = self.paths().iter().map(|path| 1 + path.steps.len() as u64);
        let of_paths: u64 = paths.sum();
        (cost.once, cost.per_block) = (2 * of_paths, of_paths);
        cost.add(self.root());
        let blocks = (bytes as u64).div_ceil(BYTES_AT_ONCE);
        let foreign = blocks.saturating_mul(blocks).saturating_mul(cost.foreign_patterns);
        cost.once.saturating_add(blocks.saturating_mul(cost.per_block)).saturating_add(foreign)
    }
}

impl Cost {
    fn add(&mut self, node: &Node) {
        self.once += 1;
        match &node.part {
            Part::Null | Part::Bool(_) | Part::Number(_) | Part::Text(_) | Part::Path(_) => {}
            Part::Not(of) | Part::IsNull(of) | Part::Negated(of) | Part::Abs(of) => self.add(of),
            Part::Lower(of) => {
                // Each character by itself.
                self.per_block += BYTES_AT_ONCE / 8;
                self.add(of);
            }
            Part::All(nodes) | Part::Any(nodes) | Part::Product(nodes) => self.add_all(nodes),
            Part::Sum(terms) => terms.iter().for_each(|term| self.add(&term.of)),
            Part::Compare(left, _, right) => {
                self.per_block += 1;
                self.add(left);
                self.add(right);
            }
            Part::In(of, items) => {
                self.per_block += items.len() as u64;
                self.add(of);
                self.add_all(items);
            }
            Part::Like(text, pattern) => {
                match &pattern.part {
                    Part::Text(pattern) => {
                        let words = (pattern.len() as u64).div_ceil(PATTERN_AT_ONCE).max(1);
                        self.per_block += words * BYTES_AT_ONCE / 8;
                        self.once += pattern.len() as u64;
                    }
                    _ => {
                        self.per_block += BYTES_AT_ONCE / 8;
                        self.foreign_patterns += BYTES_AT_ONCE / 8;
                    }
                }
                self.add(text);
                self.add(pattern);
            }
        }
    }

    fn add_all(&mut self, nodes: &[Node]) {
        nodes.iter().for_each(|node| self.add(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str, bytes: usize) -> u64 {
        Condition::parse(text).unwrap().steps(bytes)
    }

    #[test]
    fn ordinary_conditions_take_few_steps_and_hostile_ones_many() {
        let ordinary =
            "amount >= 1000000000 and (to like 'G%' or asset = 'native') and not \"from\" = to";
        assert!((20..400).contains(&steps(ordinary, 300)), "{}", steps(ordinary, 300));
        let likes = (0..45).map(|_| format!("t like '%_{}b%'", "a".repeat(40)));
        let hostile = likes.collect::<Vec<_>>().join(" and ");
        assert!(steps(&hostile, 60_000) > 50 * steps(&hostile, 300));
        assert!(steps(&hostile, 60_000) > 300_000);
        // Where the pattern comes from the same hands.
        assert!(steps("t like u", 60_000) > 1_000_000);
        assert_eq!(steps("t like u", usize::MAX), u64::MAX);
    }

    #[test]
    fn more_parts_and_more_bytes_take_more_steps() {
        let mut before = 0;
        for text in [
            "a",
            "not a",
            "a = 1",
            "a = 1 and b",
            "a = 1 and b in (1, 2)",
            "a.b[1] = 1 and b in (1, 2)",
        ] {
            assert!(steps(text, 300) > before, "{text}");
            before = steps(text, 300);
        }
        assert!(steps("a = 1", 64) < steps("a = 1", 65));
        assert!(steps("a = 1", 0) > 0);
    }
}
