//! Tables of the index, and the rows by which the signers of accounts are found.

use super::account::{Logged, Stored};
use super::event::Signer;
use super::state::{Named, Registered, Rule};
use crate::stats::STATS;
use crate::{Position, Tag};
use orrery_ledger::domain::ContractId;
use orrery_store::{Mark, RowsMut, StoreError, Table};

pub(super) const LOG: Table<(ContractId, Position), Logged> = Table::new("log");
pub(super) const ACCOUNTS: Table<ContractId, Stored> = Table::new("accounts");
/// All of an account's state, which the following tables are parts of, told apart by a letter.
pub(super) const STATE: Table<(ContractId, Vec<u8>), Vec<u8>> = Table::new("state");
pub(super) const RULES: Table<((ContractId, Mark<b'r'>), u32), Rule> = Table::new(STATE.family);
/// A row for each rule, from which the ids are read without the rules.
pub(super) const RULE_IDS: Table<((ContractId, Mark<b'i'>), u32), ()> = Table::new(STATE.family);
/// Number of members of rules with a tag, and position of the event that first added one.
pub(super) const TAGS: Table<((ContractId, Mark<TAG>), Tag), (u32, Position)> =
    Table::new(STATE.family);
pub(super) const TAG: u8 = b't';
/// The account of each active signer, by tag and by the event that added the signer.
pub(super) const SIGNERS: Table<(Tag, Position), ContractId> = Table::new("signers");
/// Accounts whose log is not folded completely.
pub(super) const BEHIND: Table<ContractId, ()> = Table::new("behind");
/// Credential ids that were seen.
pub(super) const CREDENTIALS: Table<Tag, ()> = Table::new("credentials");

pub(super) const FAMILIES: &[&str] = &[
    LOG.family,
    ACCOUNTS.family,
    STATE.family,
    SIGNERS.family,
    BEHIND.family,
    CREDENTIALS.family,
    STATS.family,
];

/// What is registered under ids, as part of [`STATE`]: signers, or policies.
pub(super) const fn registry<T: Named>() -> Table<((ContractId, u8), u32), Registered<T>> {
    Table::new(STATE.family)
}

/// Adds members with this tag to those that the account has at `at`. The signer is found by its tag
/// while there are any, in the order of the events that first added it.
pub(super) fn put_signer(
    rows: &mut dyn RowsMut,
    contract: ContractId,
    tag: Tag,
    at: Position,
    by: i32,
) -> Result<(), StoreError> {
    let key = ((contract, Mark), tag);
    let (before, first) = TAGS.get(rows, &key)?.unwrap_or((0, at));
    let members = before.saturating_add_signed(by);
    match (before, members) {
        (0, 1..) => SIGNERS.put(rows, &(tag, first), &contract)?,
        (1.., 0) => SIGNERS.delete(rows, &(tag, first))?,
        _ => {}
    }
    TAGS.put(rows, &key, &(members, first))
}

/// Returns the tags under which a signer is looked up.
pub(super) fn tags_of(signer: &Signer) -> impl Iterator<Item = Tag> {
    let address = match signer {
        Signer::Known { address, .. } => Some(Tag::of_address(address)),
        Signer::Opaque(_) => None,
    };
    address.into_iter().chain(signer.credential().map(Tag::of_credential))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smart::account::Progress;
    use orrery_store::RowCodec;

    /// Stores of earlier versions have these bytes.
    #[test]
    fn stored_bytes_are_as_ever() {
        let (contract, tag) = (ContractId([1; 32]), Tag([2; 32]));
        let at = Position { ledger: 258, application_order: 3, event_index: 4 };
        let position = "000001020000000300000004";
        let bytes = |encoded: Vec<u8>| hex::encode(encoded).replace(&"01".repeat(32), "contract ");
        assert_eq!(bytes((contract, at).encode()), format!("contract {position}"));
        let rule: ((_, Mark<b'r'>), _) = ((contract, Mark), 5u32);
        assert_eq!(bytes(rule.encode()), "contract 7200000005");
        let rule_id: ((_, Mark<b'i'>), _) = ((contract, Mark), 5u32);
        assert_eq!(bytes(rule_id.encode()), "contract 6900000005");
        let registered = |letter| bytes(((contract, letter), 5u32).encode());
        assert_eq!(registered(Signer::REGISTRY), "contract 7300000005");
        assert_eq!(registered(stellar_xdr::ScAddress::REGISTRY), "contract 7000000005");
        let of_tag: ((_, Mark<TAG>), _) = ((contract, Mark), tag);
        assert_eq!(bytes(of_tag.encode()), format!("contract 74{}", "02".repeat(32)));
        assert_eq!(bytes((7u32, at).encode()), format!("00000007{position}"));
        assert_eq!(bytes((tag, at).encode()), format!("{}{position}", "02".repeat(32)));

        let mut account = Stored {
            first_seen: 1,
            last_seen: 2,
            pairs: [3, 4, 5],
            rules: 6,
            log_bytes: 7,
            is_cut: true,
            progress: Progress::Refolding,
            folded: Some(at),
        };
        let numbers = "000000010000000200000003000000040000000500000006000000070000000100000002";
        assert_eq!(bytes(account.encode()), format!("{numbers}{position}"));
        for folded in [Some(at), None] {
            account.folded = folded;
            assert_eq!(Stored::decode(&account.encode()), Some(account.clone()));
        }
        let row = account.encode();
        assert_eq!(row[36..], [0; 12]);
        assert_eq!(Stored::decode(&row[..47]), None);
        assert_eq!(Stored::decode(&[&row[..35], &[3], &row[36..]].concat()), None);
    }
}
