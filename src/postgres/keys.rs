//! Conditions on the keys of rows.

use std::ops::RangeInclusive;

use super::names::ROW;
use super::types::RowKey;

/// Returns the condition for the keys of these ledgers.
pub(super) fn bounds(ledgers: &RangeInclusive<u32>) -> String {
    let key = |ledger, transaction, number| {
        let key = RowKey { ledger, transaction, number }.bytes();
        key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let (first, last) = (key(*ledgers.start(), 0, 0), key(*ledgers.end(), u32::MAX, u32::MAX));
    format!("{ROW} BETWEEN '\\x{first}'::bytea AND '\\x{last}'::bytea")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_have_all_keys_of_the_ledgers() {
        assert_eq!(
            bounds(&(1..=2)),
            "_row BETWEEN '\\x000000010000000000000000'::bytea AND '\\x00000002ffffffffffffffff'::bytea"
        );
    }
}
