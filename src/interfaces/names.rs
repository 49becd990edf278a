//! Names of events, and of their parameters as columns and members.

use std::collections::HashMap;

use orrery_ledger::domain::text;

/// View of a project of events with one row per event.
pub const EVENTS: &str = "events";
/// Table of a project of events with the events that no other table holds.
pub const UNDECLARED: &str = "undeclared";
/// Table of a project with the changes of what its contracts hold.
pub const STORAGE_CHANGES: &str = "storage_changes";
/// View with what the contracts of a project hold.
pub const STORAGE: &str = "storage";
/// Function with what the contracts of a project held at the end of a ledger.
pub const STORAGE_AT: &str = "storage_at";
/// Table of a project with the newest ledger that it has.
pub const PROGRESS: &str = "progress";
/// Names of a project that changes of what its contracts hold may belong to. Projects of earlier versions
/// have tables of events with these names.
pub const OF_STORAGE: [&str; 4] = [STORAGE_CHANGES, STORAGE, STORAGE_AT, PROGRESS];
/// Table of a project with the contracts that became members of it, and those that are none any more.
pub const MEMBER_CHANGES: &str = "member_changes";
/// View with the members of a project.
pub const MEMBERS: &str = "members";
/// Names of a project that its members may belong to. Projects of earlier versions have tables of events with
/// these names.
pub const OF_MEMBERS: [&str; 2] = [MEMBER_CHANGES, MEMBERS];
/// Names that a table or view of a project of events has itself.
const RESERVED_EVENTS: [&str; 2] = [EVENTS, UNDECLARED];
/// Maximum length of the name of an event, in characters.
pub const LONGEST_EVENT: usize = 63;
/// Name of an event whose declared name has no letter or digit.
const NAMELESS: &str = "event";

/// Column with the contract.
pub const CONTRACT_ID: &str = "contract_id";
/// Column with the hash of the transaction.
pub const TRANSACTION: &str = "transaction";
/// Column with the id of the row.
pub const ROW_ID: &str = "_service_event_id";
/// Column with the ledger sequence.
pub const LEDGER: &str = "_ledger";
/// Column with the close time of the ledger.
pub const CLOSED_AT: &str = "_ledger_closed_at";
/// Column with the id that the event has in answers.
pub const EVENT_ID: &str = "_event_id";
/// Column with the number of the event in its transaction.
pub const EVENT_INDEX: &str = "_event_index";
/// Column that says where the declaration of the event comes from.
pub const DECLARED: &str = "_declared";
/// Column of tables of events without a declaration, with the topics after which they are named.
pub const EVENT: &str = "_event";
/// Column with what the declaration does not name.
pub const REST: &str = "_rest";

/// Columns that every table of events has. A parameter of the same name gets another.
pub const RESERVED_COLUMNS: [&str; 9] =
    [CONTRACT_ID, TRANSACTION, ROW_ID, LEDGER, CLOSED_AT, EVENT_ID, EVENT_INDEX, DECLARED, REST];

/// Returns the name of an event for its declared one: in snake case, of `[a-z0-9_]`, and not one of
/// the reserved names.
pub fn event(declared: &[u8]) -> String {
    let text = String::from_utf8_lossy(declared);
    let letters: Vec<char> = text.chars().collect();
    let mut name = String::with_capacity(text.len() + 4);
    for (at, letter) in letters.iter().enumerate() {
        if begins_word(&letters, at) && !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
        match letter {
            _ if letter.is_ascii_alphanumeric() => name.push(letter.to_ascii_lowercase()),
            _ if !name.is_empty() && !name.ends_with('_') => name.push('_'),
            _ => {}
        }
    }
    name.truncate(LONGEST_EVENT);
    let name = name.trim_end_matches('_');
    match name {
        "" => NAMELESS.to_owned(),
        _ if RESERVED_EVENTS.contains(&name) => format!("{name}_"),
        _ => name.to_owned(),
    }
}

/// Whether a word begins with this letter: a capital behind a small letter or a digit, or the last
/// of several capitals (`NFTMint`).
fn begins_word(letters: &[char], at: usize) -> bool {
    let is_upper = |letter: &char| letter.is_ascii_uppercase();
    let Some(before) = at.checked_sub(1).map(|before| letters[before]) else { return false };
    let is_before_small = letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
    is_upper(&letters[at])
        && (before.is_ascii_lowercase()
            || before.is_ascii_digit()
            || (is_upper(&before) && is_before_small))
}

/// Returns the names of parameters, in their order: the declared ones, each with as many `_` behind
/// it as make it differ, as SQL folds names, from the reserved columns and those before it.
pub fn parameters<'a>(declared: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut taken = Taken::default();
    for reserved in RESERVED_COLUMNS {
        taken.take(reserved.to_owned());
    }
    let name = |declared: &[u8]| match text(declared).replace('\0', "_") {
        name if name.is_empty() => "_".to_owned(),
        name => name,
    };
    declared.into_iter().map(|declared| taken.take(name(declared))).collect()
}

/// Folds ASCII letters to lower case: SQL treats names with the same folded form as equal.
pub fn folded(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// Names that are taken: for each, without the `_` at its end and as SQL folds it, the numbers of
/// `_` that are taken, each with a greater number that may be free. Thousands of equal names are
/// told apart in as many steps.
#[derive(Default)]
struct Taken(HashMap<String, HashMap<usize, usize>>);

impl Taken {
    /// Takes a name, with `_` added until it is free.
    fn take(&mut self, mut name: String) -> String {
        let base = name.trim_end_matches('_');
        let wanted = name.len() - base.len();
        let next = self.0.entry(base.to_ascii_lowercase()).or_default();
        let mut number = wanted;
        while let Some(greater) = next.get(&number) {
            number = *greater;
        }
        next.insert(number, number + 1);
        next.insert(wanted, number + 1);
        name.extend(std::iter::repeat_n('_', number - wanted));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_names_become_names_of_tables() {
        for (declared, name) in [
            ("transfer", "transfer"),
            ("TransferWithAmountOnly", "transfer_with_amount_only"),
            ("NFTMint", "nft_mint"),
            ("V2Swap", "v2_swap"),
            ("Event2", "event2"),
            ("swap-exact in", "swap_exact_in"),
            ("__private__", "private"),
            ("events", "events_"),
            ("Events", "events_"),
            ("Undeclared", "undeclared_"),
            ("'; drop table x", "drop_table_x"),
            ("Größe", "gr_e"),
            ("€", "event"),
            ("", "event"),
        ] {
            assert_eq!(event(declared.as_bytes()), name, "{declared}");
        }
        assert_eq!(event(&[b'a'; 100]), "a".repeat(63));
        assert_eq!(event(b"\xff\xfeOK\0"), "ok");
    }

    #[test]
    fn colliding_parameters_get_underscores_until_they_are_free() {
        let names: [&[u8]; 9] =
            [b"a", b"A", b"a_", b"Contract_ID", b"", b"", b"x\0", b"x_", b"_rest"];
        let expected = ["a", "A_", "a__", "Contract_ID_", "_", "__", "x_", "x__", "_rest_"];
        assert_eq!(parameters(names), expected);
    }
}
