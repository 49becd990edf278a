//! Validates the project name and the contracts of a deploy.

use std::collections::HashSet;
use std::hash::Hash;

use super::ProgramError;
use orrery_ledger::domain::{ContractId, excerpt};
use orrery_tables::CHAIN;

/// Maximum number of contracts per program; each is looked up in every ledger.
const MAX_CONTRACTS: usize = 200;
/// Maximum length of a project name, in bytes.
const LONGEST_PROJECT: usize = 64;

/// Checks whether a text may be the name of a project.
///
/// # Errors
/// [`ProgramError::Value`] when it may not, with what to give instead.
pub fn check_project(name: &str) -> Result<(), ProgramError> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let shown = excerpt(name);
    let problem = if !(1..=LONGEST_PROJECT).contains(&name.len()) || !name.bytes().all(usable) {
        format!("is '{shown}': give 1 to {LONGEST_PROJECT} letters, digits, '_' or '-'")
    } else if !name.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        // Digits alone are the id of a program.
        format!("is '{shown}': give a name with a letter")
    } else if name.eq_ignore_ascii_case(CHAIN) {
        format!("is '{shown}', the schema of the tables of the chain: give another name")
    } else if is_like_a_table(name) {
        format!("is '{shown}', a name reserved for tables of programs: give another name")
    } else {
        return Ok(());
    };
    Err(ProgramError::Value { name: "project_name", problem })
}

/// Returns whether a project's views could have the names of a program's tables: `program_`, a
/// number, and a target.
fn is_like_a_table(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let Some(rest) = name.strip_prefix("program_") else { return false };
    let number = rest.split('_').next().unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the contracts without repetitions, in their order: at least one.
pub(super) fn distinct(contracts: Vec<ContractId>) -> Result<Vec<ContractId>, ProgramError> {
    let distinct = distinct_or_none(contracts)?;
    if distinct.is_empty() {
        let problem = "is empty: give at least one contract ID".to_owned();
        return Err(ProgramError::Value { name: "contracts", problem });
    }
    Ok(distinct)
}

/// Returns the contracts without repetitions, in their order.
pub(super) fn distinct_or_none(
    contracts: Vec<ContractId>,
) -> Result<Vec<ContractId>, ProgramError> {
    let distinct = without_repetitions(contracts);
    check_count(distinct.len())?;
    Ok(distinct)
}

/// Removes repetitions and keeps the order. Uses a hash set, because the number of items is chosen
/// by the client.
fn without_repetitions<T: Copy + Eq + Hash>(all: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(all.len());
    all.into_iter().filter(|one| seen.insert(*one)).collect()
}

/// Checks the number of a program's contracts against the limit.
pub(super) fn check_count(count: usize) -> Result<(), ProgramError> {
    if count <= MAX_CONTRACTS {
        return Ok(());
    }
    let problem = format!("makes {count} contracts: a program may have {MAX_CONTRACTS}");
    Err(ProgramError::Value { name: "contracts", problem })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use super::*;

    #[test]
    fn project_names_are_validated() {
        for name in ["a", "My-project_2", "program_a", "programs_3", "program-3", &"x".repeat(64)] {
            assert!(check_project(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "a b",
            "ä",
            "a.b",
            "a/b",
            "a\"b",
            &"x".repeat(65),
            "program_3",
            "Program_12_a",
            "7",
            "1-2",
            "chain",
            "Chain",
        ] {
            assert!(check_project(name).is_err(), "{name}");
        }
    }

    #[test]
    fn repeated_contracts_count_once() {
        let id = |n| ContractId([n; 32]);
        assert_eq!(distinct(vec![id(2), id(1), id(2)]).unwrap(), [id(2), id(1)]);
        assert!(distinct(Vec::new()).is_err());
        let many: Vec<_> = (0..=200).map(|n| id(n as u8)).collect();
        assert!(distinct(many).is_err());
    }

    /// Counts comparisons.
    #[derive(Clone, Copy)]
    struct Counted<'c>(u32, &'c Cell<usize>);

    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.1.set(self.1.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Counted<'_> {}

    impl Hash for Counted<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn deduplicating_contracts_is_not_quadratic() {
        const MANY: u32 = 20_000;
        let compared = Cell::new(0);
        let given = (0..MANY).chain(0..MANY).map(|number| Counted(number, &compared)).collect();
        let distinct = without_repetitions(given);
        assert!(distinct.iter().map(|it| it.0).eq(0..MANY));
        // One comparison per repetition, and a few for items that share bits of their hash.
        let compared = compared.get();
        assert!(compared < 10 * MANY as usize, "{compared} comparisons of {MANY}, each twice");
    }
}
