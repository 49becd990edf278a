//! Sets of positions within one event block, as the indexes store them.

/// Maximum number of events in one block; a set of positions fits into one machine word.
pub(crate) const EVENTS_PER_BLOCK: usize = 64;

/// A set of positions within a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Positions(pub u64);

impl Positions {
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn insert(&mut self, position: usize) {
        debug_assert!(position < EVENTS_PER_BLOCK);
        self.0 |= 1 << position;
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the positions from `first` to `end`, without `end`.
    pub(crate) fn range(first: usize, end: usize) -> Self {
        let below = |n: usize| if n >= 64 { u64::MAX } else { (1u64 << n) - 1 };
        Self(below(end) & !below(first))
    }

    /// Removes and returns the lowest position.
    pub(crate) fn pop_lowest(&mut self) -> Option<usize> {
        let position = (!self.is_empty()).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(position)
    }

    /// Removes and returns the highest position.
    pub(crate) fn pop_highest(&mut self) -> Option<usize> {
        let position = (!self.is_empty()).then(|| 63 - self.0.leading_zeros() as usize)?;
        self.0 &= !(1 << position);
        Some(position)
    }

    /// Appends the stored form: one byte per position for up to seven positions, otherwise the
    /// whole word.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        if self.0.count_ones() > 7 {
            out.extend_from_slice(&self.0.to_be_bytes());
            return;
        }
        let mut rest = self;
        while let Some(position) = rest.pop_lowest() {
            out.push(position as u8);
        }
    }

    /// Decodes the stored form; `None` when it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if let Ok(word) = <[u8; 8]>::try_from(bytes) {
            return Some(Self(u64::from_be_bytes(word)));
        }
        let mut positions = Self::default();
        for &byte in bytes {
            if usize::from(byte) >= EVENTS_PER_BLOCK {
                return None;
            }
            positions.insert(usize::from(byte));
        }
        (bytes.len() < 8).then_some(positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_round_trip() {
        for word in [0, 1, 1 << 63, 0x7f, 0xff, u64::MAX, 0x8000_0000_0000_0001] {
            let mut bytes = Vec::new();
            Positions(word).encode(&mut bytes);
            assert_eq!(Positions::decode(&bytes), Some(Positions(word)), "{word:x}");
        }
        assert_eq!(Positions::decode(&[64]), None);
        assert_eq!(Positions::decode(&[0; 9]), None);
    }

    #[test]
    fn positions_can_be_popped_from_either_end() {
        let mut positions = Positions::range(3, 6);
        assert_eq!(positions.pop_lowest(), Some(3));
        assert_eq!(positions.pop_highest(), Some(5));
        assert_eq!(positions.pop_highest(), Some(4));
        assert_eq!(positions.pop_lowest(), None);
        assert_eq!(Positions::range(0, 64), Positions::ALL);
        assert_eq!(Positions::range(64, 64), Positions::default());
    }
}
