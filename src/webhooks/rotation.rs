//! Gives a subscription a new secret. The one before goes on signing beside it for a day, so that its
//! receivers can be changed one after the other.

use std::sync::Arc;

use super::manage::Webhooks;
use super::secret::{Previous, SealedSecrets, Secrets};
use super::subscription::{Row, Subscription};
use super::{CONSUMER, Secret, WebhookError};
use orrery_ledger::domain::Owner;

/// Time in milliseconds for which a secret goes on signing after another one has taken its place.
pub const OVERLAP: u64 = 24 * 3600 * 1000;
/// Maximum number of secrets of a subscription that sign beside the present one.
pub const MOST_PREVIOUS: usize = 3;

/// Request for a new secret.
#[derive(Debug, Clone, Default)]
pub struct Rotation {
    /// The new secret; one is generated when it is `None`.
    pub secret: Option<Secret>,
    /// Whether those before it end at once, as they have to when one has leaked.
    pub end_previous: bool,
}

/// A subscription's new secret.
#[derive(Debug)]
pub struct Rotated {
    /// The secret.
    pub secret: Secret,
    /// UNIX time in milliseconds at which the last of those before it ends; `None` when they have.
    pub previous_until: Option<u64>,
}

impl Webhooks {
    /// Gives a subscription a new secret, which is on disk when this returns.
    ///
    /// # Errors
    /// [`WebhookError::TooManySecrets`] when [`MOST_PREVIOUS`] secrets sign beside the present one already, and
    /// [`WebhookError::Value`] when the secret is the present one.
    pub fn rotate(
        &self,
        owner: &Owner,
        id: u32,
        wanted: Rotation,
    ) -> Result<Rotated, WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let secret = wanted.secret.unwrap_or_else(Secret::generate);
        let _one_at_a_time = self.changing_secrets.lock();
        let now = self.registry.now().due;
        // Those that cannot be decrypted have signed nothing.
        let before = subscription.secrets();
        let previous = match before.as_deref() {
            Some(before) if !wanted.end_previous => previous(id, before, &secret, now)?,
            _ => Vec::new(),
        };
        let previous_until = previous.iter().map(|it| it.until).max();
        let secrets = Secrets { present: secret.clone(), previous };
        let sealed = self.registry.sealer()?.seal_all(&subscription.definition.tag, &secrets)?;
        self.put_secrets(&subscription, sealed)?;
        Ok(Rotated { secret, previous_until })
    }

    /// Writes the secrets of subscriptions that are not on disk for certain, if there are any.
    ///
    /// # Errors
    /// Errors of the store; those that are not written yet stay noted.
    pub fn keep_secrets(&self) -> Result<(), WebhookError> {
        if self.unsure_secrets.lock().is_empty() { Ok(()) } else { self.clear_secrets() }
    }

    /// Removes the secrets that have ended from the rows of their subscriptions, and writes those that are
    /// not on disk for certain.
    pub(super) fn clear_secrets(&self) -> Result<(), WebhookError> {
        let now = self.registry.now().due;
        let all = self.registry.with(|known| known.all().cloned().collect::<Vec<_>>());
        self.unsure_secrets.lock().retain(|id| all.iter().any(|it| it.id == *id));
        for subscription in all {
            let _one_at_a_time = self.changing_secrets.lock();
            let mut sealed = subscription.sealed_secrets();
            let count = sealed.previous_secrets.len();
            sealed.previous_secrets.retain(|it| now < it.until);
            let is_unsure = self.unsure_secrets.lock().contains(&subscription.id);
            if sealed.previous_secrets.len() == count && !is_unsure {
                continue;
            }
            match self.put_secrets(&subscription, sealed) {
                // It was deleted meanwhile.
                Err(WebhookError::Unknown(_)) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Writes the secrets of a subscription. When that fails, those before stay, also on disk if the
    /// write was made all the same: nobody knows the new one. If they cannot be written now, the next
    /// outcome of a delivery writes them, or [`Self::keep_secrets`].
    fn put_secrets(
        &self,
        subscription: &Arc<Subscription>,
        sealed: SealedSecrets,
    ) -> Result<(), WebhookError> {
        let (id, before) = (subscription.id, subscription.sealed_secrets());
        let Err(error) = self.write_secrets(subscription, sealed) else {
            self.unsure_secrets.lock().remove(&id);
            return Ok(());
        };
        if let Ok(sealer) = self.registry.sealer() {
            subscription.set_secrets(before.clone(), sealer);
        }
        if matches!(error, WebhookError::Unknown(_)) {
            return Err(error);
        }
        match self.write_secrets(subscription, before) {
            Ok(()) => drop(self.unsure_secrets.lock().remove(&id)),
            Err(WebhookError::Unknown(_)) => {}
            Err(again) => {
                tracing::warn!(subscription = id, "its secrets are not on disk yet: {again}");
                self.unsure_secrets.lock().insert(id);
            }
        }
        Err(error)
    }

    fn write_secrets(
        &self,
        subscription: &Arc<Subscription>,
        sealed: SealedSecrets,
    ) -> Result<(), WebhookError> {
        let (own, registry) = (Arc::clone(subscription), Arc::clone(&self.registry));
        self.store.change_consumer_rows(CONSUMER, move |effects| {
            let row = Row::of(effects, own.id)?.ok_or(WebhookError::Unknown(own.id))?;
            own.set_secrets(sealed.clone(), registry.sealer()?);
            Row { secrets: sealed, ..row }.put(effects, own.id)?;
            Ok::<_, WebhookError>(())
        })
    }
}

/// Returns the secrets that sign beside a new one of subscription `id`.
fn previous(
    id: u32,
    before: &Secrets,
    new: &Secret,
    now: u64,
) -> Result<Vec<Previous<Secret>>, WebhookError> {
    if before.present == *new {
        let problem = "is the present secret: give another, or leave it out to get one".to_owned();
        return Err(WebhookError::Value { name: "webhook_secret", problem });
    }
    // One that becomes the present one again does not end.
    let others = before.previous.iter().filter(|it| now < it.until && it.secret != *new);
    let present = Previous { secret: before.present.clone(), until: now.saturating_add(OVERLAP) };
    let previous: Vec<_> = others.cloned().chain([present]).collect();
    if previous.len() > MOST_PREVIOUS {
        return Err(WebhookError::TooManySecrets { subscription: id, count: MOST_PREVIOUS });
    }
    Ok(previous)
}
