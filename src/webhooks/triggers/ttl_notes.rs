//! What a subscription to the expiring entries of a project remembers, so that it need not look at all members in
//! each ledger: until when their entries live, which entries they share with others, and at which members it
//! has looked.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use crate::rows::in_subscriptions;
use orrery_contract_data::{Key, KeyTag};
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{ConsumerEffects, KeyPrefix, Mark, RowCodec, Rows, StoreError, Table};

/// A subscription, in keys.
type Of<const MARK: u8> = (Mark<MARK>, u32);

/// Times to live that entries were given by which members live, and their data.
pub const MEMBER_LIVES: Table<((Of<b'v'>, LedgerSeq), Key), ()> = in_subscriptions();
/// Members by the entries by which they live and that are not their own: modules, and what instances refer to.
pub const SHARED: Table<((Of<b'z'>, KeyTag), ContractId), ()> = in_subscriptions();
/// Members, each with the first ledger in which the subscription looked at all of its keys.
pub const LOOKED: Table<(Of<b'y'>, ContractId), LedgerSeq> = in_subscriptions();

const FIRST_TAG: KeyTag = KeyTag([0; KeyTag::LEN]);
const LAST_TAG: KeyTag = KeyTag([u8::MAX; KeyTag::LEN]);
const FIRST_CONTRACT: ContractId = ContractId([0; 32]);

/// What was noted.
pub(super) trait Noted {
    /// Returns the first contract after one, by id, of which an entry was to live until a ledger.
    fn next_with_life(
        &self,
        until: LedgerSeq,
        after: Option<ContractId>,
    ) -> Result<Option<ContractId>, StoreError>;

    /// Returns the entries of a contract that were to live until a ledger, after one, at most so many.
    fn lives(
        &self,
        until: LedgerSeq,
        of: (ContractId, Option<KeyTag>),
        most: usize,
    ) -> Result<Vec<KeyTag>, StoreError>;

    /// Returns the first contract after one, by id, that lives by an entry that is not its own.
    fn next_sharing(
        &self,
        entry: KeyTag,
        after: Option<ContractId>,
    ) -> Result<Option<ContractId>, StoreError>;
}

/// What a subscription has noted in the store.
pub(super) struct StoredNotes<'r> {
    pub rows: &'r dyn Rows,
    pub subscription: u32,
}

impl StoredNotes<'_> {
    /// Returns the first contract after one, by id, that rows name from a key on.
    fn next_contract<K: RowCodec>(
        &self,
        table: &Table<K, ()>,
        (prefix, from): (&impl KeyPrefix<K>, &K),
        after: Option<ContractId>,
        contract_of: impl Fn(K) -> ContractId,
    ) -> Result<Option<ContractId>, StoreError> {
        let mut found = None;
        table.scan(self.rows, prefix, Some(from), |key, ()| {
            let contract = contract_of(key);
            if Some(contract) == after {
                return Ok(ControlFlow::Continue(()));
            }
            found = Some(contract);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

impl Noted for StoredNotes<'_> {
    fn next_with_life(
        &self,
        until: LedgerSeq,
        after: Option<ContractId>,
    ) -> Result<Option<ContractId>, StoreError> {
        let prefix = ((Mark, self.subscription), until);
        let from = (prefix, after.map_or((FIRST_CONTRACT, FIRST_TAG), |it| (it, LAST_TAG)));
        let of = (&prefix, &from);
        self.next_contract(&MEMBER_LIVES, of, after, |(_, (contract, _))| contract)
    }

    fn lives(
        &self,
        until: LedgerSeq,
        (contract, after): (ContractId, Option<KeyTag>),
        most: usize,
    ) -> Result<Vec<KeyTag>, StoreError> {
        let prefix = ((Mark, self.subscription), until);
        let from = (prefix, (contract, after.unwrap_or(FIRST_TAG)));
        let mut found = Vec::new();
        MEMBER_LIVES.scan(self.rows, &prefix, Some(&from), |(_, (of, tag)), ()| {
            if of != contract || found.len() >= most {
                return Ok(ControlFlow::Break(()));
            }
            found.extend(Some(tag).filter(|_| after.is_none_or(|after| tag > after)));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    fn next_sharing(
        &self,
        entry: KeyTag,
        after: Option<ContractId>,
    ) -> Result<Option<ContractId>, StoreError> {
        let prefix = ((Mark, self.subscription), entry);
        let from = (prefix, after.unwrap_or(FIRST_CONTRACT));
        self.next_contract(&SHARED, (&prefix, &from), after, |(_, contract)| contract)
    }
}

/// Notes until when an entry lives.
pub(super) fn put_life(
    effects: &mut ConsumerEffects<'_>,
    subscription: u32,
    (until, of): (LedgerSeq, Key),
) -> Result<(), StoreError> {
    MEMBER_LIVES.put(effects, &(((Mark, subscription), until), of), &())
}

/// Notes that a contract lives by an entry that is not its own.
pub(super) fn put_shared(
    effects: &mut ConsumerEffects<'_>,
    subscription: u32,
    (entry, contract): (KeyTag, ContractId),
) -> Result<(), StoreError> {
    SHARED.put(effects, &(((Mark, subscription), entry), contract), &())
}

/// Returns the first of some contracts after one, by id, at which a subscription has not looked.
pub(super) fn next_new(
    rows: &dyn Rows,
    subscription: u32,
    contracts: &[ContractId],
    after: Option<ContractId>,
) -> Result<Option<ContractId>, StoreError> {
    let begin = after.map_or(0, |after| contracts.partition_point(|it| *it <= after));
    let mut left = contracts[begin..].iter();
    let Some(mut wanted) = left.next() else { return Ok(None) };
    let from = ((Mark, subscription), *wanted);
    let mut is_left = true;
    LOOKED.scan(rows, &(Mark, subscription), Some(&from), |(_, looked), _| {
        // A contract that belonged to it before may be among those at which it has looked.
        if looked < *wanted {
            return Ok(ControlFlow::Continue(()));
        }
        if looked > *wanted {
            return Ok(ControlFlow::Break(()));
        }
        Ok(match left.next() {
            Some(next) => {
                wanted = next;
                ControlFlow::Continue(())
            }
            None => {
                is_left = false;
                ControlFlow::Break(())
            }
        })
    })?;
    Ok(is_left.then_some(*wanted))
}

/// Removes what a subscription has noted.
pub(crate) fn forget(
    effects: &mut ConsumerEffects<'_>,
    subscription: u32,
) -> Result<(), StoreError> {
    let all = [keys::<b'v'>(subscription), keys::<b'z'>(subscription), keys::<b'y'>(subscription)];
    all.iter().try_for_each(|(from, to)| effects.delete_range(LOOKED.family, from, to))
}

/// Returns the first key of a subscription (included), and the last one (excluded).
fn keys<const MARK: u8>(subscription: u32) -> (Vec<u8>, Vec<u8>) {
    let of = |subscription| -> Of<MARK> { (Mark, subscription) };
    let next = subscription.checked_add(1).map(|next| of(next).encode());
    (of(subscription).encode(), next.unwrap_or_else(|| vec![MARK + 1]))
}

/// Removes the times to live that a subscription has noted and that ended before a ledger.
pub(crate) fn forget_before(
    effects: &mut ConsumerEffects<'_>,
    subscription: u32,
    ledger: LedgerSeq,
) -> Result<(), StoreError> {
    let of: Of<b'v'> = (Mark, subscription);
    effects.delete_range(MEMBER_LIVES.family, &of.encode(), &(of, ledger).encode())
}

/// What a preview notes.
#[derive(Default)]
pub(super) struct NotesInMemory {
    pub lives: BTreeSet<(LedgerSeq, Key)>,
    pub shared: BTreeSet<(KeyTag, ContractId)>,
}

/// Returns where those begin that come after one, or all of them with the first.
fn behind<T>(after: Option<T>, first: T) -> Bound<T> {
    after.map_or(Bound::Included(first), Bound::Excluded)
}

impl Noted for NotesInMemory {
    fn next_with_life(
        &self,
        until: LedgerSeq,
        after: Option<ContractId>,
    ) -> Result<Option<ContractId>, StoreError> {
        let after = after.map(|after| (until, (after, LAST_TAG)));
        let from = behind(after, (until, (FIRST_CONTRACT, FIRST_TAG)));
        let next = self.lives.range((from, Bound::Unbounded)).next();
        Ok(next.filter(|(at, _)| *at == until).map(|(_, (contract, _))| *contract))
    }

    fn lives(
        &self,
        until: LedgerSeq,
        (contract, after): (ContractId, Option<KeyTag>),
        most: usize,
    ) -> Result<Vec<KeyTag>, StoreError> {
        let of = |tag| (until, (contract, tag));
        let from = behind(after.map(of), of(FIRST_TAG));
        let lives = self.lives.range((from, Bound::Included(of(LAST_TAG))));
        Ok(lives.take(most).map(|(_, (_, tag))| *tag).collect())
    }

    fn next_sharing(
        &self,
        entry: KeyTag,
        after: Option<ContractId>,
    ) -> Result<Option<ContractId>, StoreError> {
        let from = behind(after.map(|after| (entry, after)), (entry, FIRST_CONTRACT));
        let next = self.shared.range((from, Bound::Unbounded)).next();
        Ok(next.filter(|(of, _)| *of == entry).map(|(_, contract)| *contract))
    }
}
