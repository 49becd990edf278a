//! Why something asked of webhooks was not done.

use super::filter::FilterError;
use super::target::EndpointError;
use crate::store::StoreError;

/// Why something asked of webhooks was not done. Then nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// No such subscription of this owner.
    #[error(
        "there is no webhook subscription {0} of yours: see /rest/webhooks/list for those that you have"
    )]
    Unknown(u32),
    /// No such delivery of this subscription.
    #[error(
        "subscription {subscription} has no delivery '{delivery}': see /rest/webhooks/{subscription}/deliveries"
    )]
    UnknownDelivery {
        /// The subscription.
        subscription: u32,
        /// What was given, shortened.
        delivery: String,
    },
    /// The same subscription is there already.
    #[error(
        "subscription {0} is the same, with this endpoint, contract and filters: delete that one, or change something"
    )]
    Duplicate(u32),
    /// An owner would have more subscriptions than an owner may have.
    #[error(
        "you have {have} webhook subscriptions, and one owner may have {most}: delete some, or give fewer contracts"
    )]
    TooMany {
        /// How many the owner has.
        have: usize,
        /// How many an owner may have.
        most: usize,
    },
    /// The subscription is disabled.
    #[error(
        "subscription {0} is disabled: mend its endpoint, and enable it with POST /rest/webhooks/{0}/enable first"
    )]
    Disabled(u32),
    /// The endpoint is not used for deliveries.
    #[error("'webhook_endpoint' {0}")]
    Endpoint(#[from] EndpointError),
    /// A filter is malformed.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A value is malformed: its name, and the rest of a sentence.
    #[error("'{name}' {problem}")]
    Value {
        /// Name of the value.
        name: &'static str,
        /// What is wrong, and what to give instead.
        problem: String,
    },
    /// Nobody waits for the answer any more.
    #[error("the replay was ended, because nobody waited for its answer any more")]
    Interrupted,
    /// Something stored is not what it should be.
    #[error("{0} is damaged in the store: restore a backup")]
    Damaged(String),
    /// A secret cannot be kept as it should be.
    #[error("the secret cannot be sealed")]
    Seal,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl WebhookError {
    /// Whether its sentence is for the operator alone.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::Seal | Self::Store(_))
    }

    /// The sentence for whoever asked: its own, or for what is internal one that says nothing of what is
    /// inside.
    pub fn sentence(&self) -> String {
        match self.is_internal() {
            true => {
                "the service failed on this request: try again, and give the operator the request id when \
                 it persists"
                    .to_owned()
            }
            false => self.to_string(),
        }
    }
}
