//! What a deploy may name: projects and contracts.

use std::collections::HashSet;

use super::ProgramError;
use crate::domain::{ContractId, excerpt};

/// Contracts of one program; each is looked for in every ledger.
const MOST_CONTRACTS: usize = 200;
/// Characters of a project's name.
const LONGEST_PROJECT: usize = 64;

/// Whether a text can be the name of a project.
pub(super) fn check_project(name: &str) -> Result<(), ProgramError> {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let shown = excerpt(name);
    let problem = if !(1..=LONGEST_PROJECT).contains(&name.len()) || !name.bytes().all(usable) {
        format!("is '{shown}': give 1 to {LONGEST_PROJECT} letters, digits, '_' or '-'")
    } else if is_like_a_table(name) {
        format!("is '{shown}', as tables of programs are called: give another name")
    } else {
        return Ok(());
    };
    Err(ProgramError::Value { name: "project_name", problem })
}

/// Whether a project's views could be called as a program's tables are: `program_`, a number, and a target.
fn is_like_a_table(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let Some(rest) = name.strip_prefix("program_") else { return false };
    let number = rest.split('_').next().unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The contracts without repetitions, in their order.
pub(super) fn distinct(contracts: Vec<ContractId>) -> Result<Vec<ContractId>, ProgramError> {
    let mut seen = HashSet::with_capacity(contracts.len());
    let distinct: Vec<_> = contracts.into_iter().filter(|id| seen.insert(*id)).collect();
    if distinct.is_empty() {
        let problem = "is empty: give at least one contract ID".to_owned();
        return Err(ProgramError::Value { name: "contracts", problem });
    }
    check_count(distinct.len())?;
    Ok(distinct)
}

/// Whether a program may have so many contracts.
pub(super) fn check_count(count: usize) -> Result<(), ProgramError> {
    if count <= MOST_CONTRACTS {
        return Ok(());
    }
    let problem = format!("makes {count} contracts: a program may have {MOST_CONTRACTS}");
    Err(ProgramError::Value { name: "contracts", problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_have_plain_names() {
        for name in ["a", "My-project_2", "program_a", "programs_3", "program-3", &"x".repeat(64)] {
            assert!(check_project(name).is_ok(), "{name}");
        }
        for name in
            ["", "a b", "ä", "a.b", "a/b", "a\"b", &"x".repeat(65), "program_3", "Program_12_a"]
        {
            assert!(check_project(name).is_err(), "{name}");
        }
    }

    #[test]
    fn contracts_are_counted_once() {
        let id = |n| ContractId([n; 32]);
        assert_eq!(distinct(vec![id(2), id(1), id(2)]).unwrap(), [id(2), id(1)]);
        assert!(distinct(Vec::new()).is_err());
        let many: Vec<_> = (0..=200).map(|n| id(n as u8)).collect();
        assert!(distinct(many).is_err());
        // Compared each with each, these would take minutes.
        let numbered = |n: u32| {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&n.to_be_bytes());
            ContractId(id)
        };
        assert!(distinct((0..1_000_000).map(numbered).collect()).is_err());
    }
}
