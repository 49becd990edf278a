//! Keys of the rows of an account's state, and the rows by which its signers are found.

use super::event::Signer;
use super::state::Named;
use crate::accounts::Position;
use crate::accounts::rows::{RowsMut, Tag, read};
use crate::domain::ContractId;
use crate::store::StoreError;

/// Family of the state of accounts.
pub(super) const STATE: &str = "state";
/// Family of active signers.
pub(super) const SIGNERS: &str = "signers";

/// Adds members with this tag to those that the account has at `at`. The signer is found by its tag
/// while there are any, in the order of the events that first added it.
pub(super) fn put_signer(
    rows: &mut dyn RowsMut,
    contract: &ContractId,
    tag: &Tag,
    at: Position,
    by: i32,
) -> Result<(), StoreError> {
    let key = [&contract.0[..], &[TAG], &tag.0].concat();
    let (before, first) = read(rows, STATE, &key, tag_row)?.unwrap_or((0, at));
    let members = before.saturating_add_signed(by);
    match (before, members) {
        (0, 1..) => rows.put(SIGNERS, signer_key(&tag.0, first), contract.0.to_vec())?,
        (1.., 0) => rows.delete(SIGNERS, signer_key(&tag.0, first))?,
        _ => {}
    }
    rows.put(STATE, key, [&members.to_be_bytes()[..], &first.encode()].concat())
}

/// Decodes the row of a tag: the number of members with it, and the position of the event that
/// first added one.
pub(super) fn tag_row(row: &[u8]) -> Option<(u32, Position)> {
    let (members, first) = row.split_first_chunk()?;
    Some((u32::from_be_bytes(*members), Position::decode(first)?))
}

/// Returns the tags under which a signer is looked up.
pub(super) fn tags_of(signer: &Signer) -> impl Iterator<Item = Tag> {
    let address = match signer {
        Signer::Known { address, .. } => Some(Tag::of_address(address)),
        Signer::Opaque(_) => None,
    };
    address.into_iter().chain(signer.credential().map(Tag::of_credential))
}

/// First byte of the keys of tags.
pub(super) const TAG: u8 = b't';

/// Key under which a signer of an account is found by one of its tags.
pub(super) fn signer_key(tag: &[u8], first: Position) -> Vec<u8> {
    [tag, &first.encode()].concat()
}

fn state_key(contract: &ContractId, kind: u8, id: Option<u32>) -> Vec<u8> {
    let mut key = [&contract.0[..], &[kind]].concat();
    key.extend(id.map(u32::to_be_bytes).into_iter().flatten());
    key
}

/// Key of a rule, or, without an id, the prefix of those of all rules of an account.
pub(super) fn rule_key(contract: &ContractId, id: Option<u32>) -> Vec<u8> {
    state_key(contract, b'r', id)
}

/// Key of an empty row for each rule, from which the ids are read without the rules; as
/// [`rule_key`].
pub(super) fn rule_id_key(contract: &ContractId, id: Option<u32>) -> Vec<u8> {
    state_key(contract, b'i', id)
}

/// Key of what is registered under an id.
pub(super) fn registry_key<T: Named>(contract: &ContractId, id: u32) -> Vec<u8> {
    state_key(contract, T::REGISTRY, Some(id))
}
