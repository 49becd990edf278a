//! What the account indexes have in common, and lookups of the accounts that a signer may sign for.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sha2::{Digest, Sha256};
use stellar_xdr::ScAddress;

use super::position::Position;
use super::value;
use orrery_ledger::domain::ContractId;
use orrery_store::{RowCodec, Rows, RowsMut, StoreError, Table, row_codec};

/// SHA-256 under which a signer is looked up. A digest is used because credential ids may be long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub [u8; 32]);

row_codec!(Tag { 0 });

impl Tag {
    /// Returns the tag of a credential id.
    pub fn of_credential(id: &[u8]) -> Self {
        Self(Sha256::new().chain_update(b"c").chain_update(id).finalize().into())
    }

    /// Returns the tag of an address.
    pub fn of_address(address: &ScAddress) -> Self {
        Self(Sha256::new().chain_update(b"a").chain_update(value::xdr(address)).finalize().into())
    }
}

/// A recognised event, with its emitting contract and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted<Event> {
    /// Contract that emitted the event.
    pub contract: ContractId,
    /// Position of the event on the chain.
    pub position: Position,
    /// The recognised event.
    pub event: Event,
}

/// An index of accounts of one kind.
pub trait AccountIndex: Send + Sync + 'static {
    /// Event of an account, with what is stored for it.
    type Event;
    /// Properties of an account that a list shows.
    type Summary;

    /// Name of the feed consumer, also used when the index is rebuilt.
    const CONSUMER: &'static str;
    /// Column families of the index.
    const FAMILIES: &'static [&'static str];
    /// Table with a row for each active signer of an account: its key is the signer's [`Tag`] and
    /// the position of the event that first added it, its value the account's contract. A signer is
    /// unknown to others before that event, so nobody can get in front of its account.
    const ACTIVE_SIGNERS: Table<(Tag, Position), ContractId>;
    /// Whether the totals include numbers of signers.
    const COUNTS_SIGNERS: bool;

    /// Returns the kinds of events in the order of their numbers. Each has the generation of the
    /// contracts that emit it, if there are several, and its name.
    fn kinds() -> impl ExactSizeIterator<Item = (Option<&'static str>, &'static str)>;

    /// Parses an event of type `contract` with these topics and data, each the XDR of an `ScVal`.
    /// Returns `None` when it is not an event of such an account.
    fn recognise(topics: &[&[u8]], data: &[u8]) -> Option<Self::Event>;

    /// Applies events of one or several ledgers, in any order. Events that were applied before are
    /// ignored.
    fn apply_events(
        rows: &mut dyn RowsMut,
        events: &[Emitted<Self::Event>],
    ) -> Result<(), StoreError>;

    /// Continues what [`Self::apply_events`] has left to do later, until some `most` rows are read
    /// and written. Returns whether more is left.
    fn continue_work(_rows: &mut dyn RowsMut, _most: usize) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Returns whether [`Self::continue_work`] has something to do, so that accounts may be missing.
    fn has_work_left(_rows: &dyn Rows) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Returns the summary of an account; `None` when the contract is not known as one.
    fn summary(rows: &dyn Rows, contract: &ContractId)
    -> Result<Option<Self::Summary>, StoreError>;

    /// Returns the error for an account that a row refers to and that is not known as one.
    fn missing(contract: &ContractId) -> StoreError;
}

/// Visits the accounts with an active signer that has this tag, until `visit` breaks, each with the
/// position of the event that first added the signer. They are in the order of these events,
/// beginning after `after`.
pub fn with_signer<I: AccountIndex>(
    rows: &dyn Rows,
    tag: Tag,
    after: Option<Position>,
    mut visit: impl FnMut(Position, ContractId, I::Summary) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    // A wallet may have the same address both as a public key and as a policy.
    let mut visited = HashSet::new();
    let from = after.map(|at| (tag, at));
    I::ACTIVE_SIGNERS
        .scan(rows, &tag, from.as_ref(), |(_, position), contract| {
            if Some(position) == after || !visited.insert(contract) {
                return Ok(ControlFlow::Continue(()));
            }
            let summary = I::summary(rows, &contract)?;
            Ok(visit(position, contract, summary.ok_or_else(|| I::missing(&contract))?))
        })
        .map(drop)
}
