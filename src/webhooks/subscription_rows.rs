//! What is stored with a subscription is made, and deleted, together.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::followed::{LATE, TOLD};
use super::registry::Registry;
use super::rows::{
    DELIVERIES, IDENTICAL, LAST_TESTS, LIVES, NEXT, Number, OWNED, QUEUE, SUBSCRIPTIONS,
    TriggerKind, subscription_range,
};
use super::subscription::{Definition, Row, State, Subscription};
use super::triggers::silence;
use super::triggers::ttl::WATCHED;
use super::triggers::ttl_notes;
use super::unmet::UNMET;
use super::{Secrets, WebhookError};
use orrery_contract_data::KeyTag;
use orrery_ledger::domain::{EventId, LedgerSeq, Owner};
use orrery_store::{ConsumerEffects, Mark, Store, StoreError};

/// Writes the rows of new subscriptions.
pub(super) fn insert(
    registry: &Registry,
    store: &Store,
    effects: &mut ConsumerEffects<'_>,
    owner: &Owner,
    (definitions, secrets): (Vec<Definition>, &Secrets),
) -> Result<Vec<Arc<Subscription>>, WebhookError> {
    let own = (Mark, Sha256::digest(&owner.0).into());
    let have = OWNED.get(effects, &own)?.unwrap_or(0);
    let more = u32::try_from(definitions.len()).unwrap_or(u32::MAX);
    let (total, most) = (have.saturating_add(more), registry.settings().owner_subscriptions.get());
    if total > most {
        return Err(WebhookError::TooMany { have, most });
    }
    let mut next = NEXT.get(effects, &Mark)?.unwrap_or(1);
    let newest = store.ends().latest.unwrap_or(LedgerSeq(0));
    let state = State::enabled(store.last_place(), newest.0);
    let mut made = Vec::with_capacity(definitions.len());
    for definition in definitions {
        let same = (Mark, definition.fingerprint());
        if let Some(other) = IDENTICAL.get(effects, &same)? {
            return Err(WebhookError::Duplicate(other));
        }
        let id = next;
        let all_given = || WebhookError::Damaged("the number of the next subscription".to_owned());
        next = next.checked_add(1).ok_or_else(all_given)?;
        let secrets = registry.sealer()?.seal_all(&definition.tag, secrets)?;
        let row = Row { definition, secrets, state: state.clone() };
        IDENTICAL.put(effects, &same, &id)?;
        row.put(effects, id)?;
        made.push(Arc::new(Subscription::new(id, row, registry.sealer()?)?));
    }
    NEXT.put(effects, &Mark, &next)?;
    OWNED.put(effects, &own, &total)?;
    Ok(made)
}

/// Whether a subscription needs the times to live of the same contract's data as another one.
pub(super) fn watches_like(subscription: &Subscription, other: &Subscription) -> bool {
    let has_data = |it: &Subscription| it.definition.trigger.entries().is_some_and(|it| it.data);
    has_data(subscription) && subscription.contracts == other.contracts
}

/// Deletes all rows of a subscription except those whose keys begin with a day (`payloads`,
/// `finished`).
pub(super) fn remove(
    effects: &mut ConsumerEffects<'_>,
    id: u32,
    definition: &Definition,
    keeps_lives: bool,
) -> Result<(), StoreError> {
    let own = (Mark, Sha256::digest(&definition.owner.0).into());
    match OWNED.get(effects, &own)?.unwrap_or(0).saturating_sub(1) {
        0 => OWNED.delete(effects, &own)?,
        remaining => OWNED.put(effects, &own, &remaining)?,
    }
    IDENTICAL.delete(effects, &(Mark, definition.fingerprint()))?;
    SUBSCRIPTIONS.delete(effects, &(Mark, id))?;
    LAST_TESTS.delete(effects, &(Mark, id))?;
    UNMET.delete(effects, &(Mark, id))?;
    LATE.delete(effects, &(Mark, id))?;
    TOLD.delete(effects, &(Mark, id))?;
    silence::forget(effects, id)?;
    WATCHED.delete(effects, &(Mark, id))?;
    if definition.project.is_some() && definition.trigger.entries().is_some() {
        ttl_notes::forget(effects, id)?;
    }
    if let Some(contract) = definition.contract()
        && definition.trigger.entries().is_some_and(|entries| entries.data)
        && !keeps_lives
    {
        let end = [contract.0.as_slice(), &[u8::MAX; 4 + KeyTag::LEN + 1]].concat();
        effects.delete_range(LIVES.family, &contract.0, &end)?;
    }
    let (from, to) = subscription_range(id);
    for family in [DELIVERIES.family, QUEUE.family] {
        effects.delete_range(family, &from, &to)?;
    }
    Ok(())
}

/// Stores the number of a subscription's next test, and returns it.
pub(super) fn put_next_test(
    effects: &mut ConsumerEffects<'_>,
    id: u32,
    newest: EventId,
) -> Result<Number, WebhookError> {
    let last = LAST_TESTS.get(effects, &(Mark, id))?;
    // After a restore, the newest event may be older than the last test: test numbers never
    // decrease.
    let after = last.and_then(|last| last.event().zip(last.test()));
    let (event, count) = match after {
        Some((event, count)) if event >= newest => (event, count + 1),
        _ => (newest, 1),
    };
    let number = Number::of_test(event, count).or_else(|| {
        let next = EventId(event.0.checked_add(1)?);
        Number::of_test(next, 1)
    });
    let too_many = || WebhookError::Damaged("the number of a test".to_owned());
    let number = number.ok_or_else(too_many)?;
    LAST_TESTS.put(effects, &(Mark, id), &number)?;
    Ok(number)
}

/// Stores the number of the next test of a subscription that is not to events, and returns it.
pub(super) fn put_next_trigger_test(
    effects: &mut ConsumerEffects<'_>,
    id: u32,
    newest: LedgerSeq,
) -> Result<Number, WebhookError> {
    let last = LAST_TESTS.get(effects, &(Mark, id))?.and_then(Number::place);
    // As above.
    let (ledger, count) = match last {
        Some((ledger, .., [_, count])) if ledger >= newest => (ledger, count.saturating_add(1)),
        _ => (newest, 1),
    };
    let number = Number::of_trigger(ledger, None, TriggerKind::Test, [0, count]);
    LAST_TESTS.put(effects, &(Mark, id), &number)?;
    Ok(number)
}
