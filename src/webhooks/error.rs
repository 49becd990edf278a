//! Errors of webhook operations.

use super::filter::FilterError;
use super::message::template::TemplateError;
use super::target::EndpointError;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::StoreError;

/// Why a webhook operation failed. The operation has changed nothing, except that a replay or a
/// sweep keeps what it wrote before, and that the write may have been made despite
/// [`WebhookError::Store`].
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The owner has no subscription with this number.
    #[error(
        "there is no webhook subscription {0} of yours: see /rest/webhooks/list for those that you have"
    )]
    Unknown(u32),
    /// The subscription has no delivery with this id.
    #[error(
        "subscription {subscription} has no delivery '{delivery}': see /rest/webhooks/{subscription}/deliveries"
    )]
    UnknownDelivery {
        /// Number of the subscription.
        subscription: u32,
        /// The given id, shortened.
        delivery: String,
    },
    /// The subscription with this number is identical.
    #[error(
        "subscription {0} already has this endpoint, contract, filters and message: delete that one, or change \
         something"
    )]
    Duplicate(u32),
    /// The owner would exceed the maximum number of subscriptions.
    #[error(
        "you have {have} webhook subscriptions, and one owner may have {most}: delete some, or give fewer contracts"
    )]
    TooMany {
        /// Number of subscriptions that the owner has.
        have: u32,
        /// Maximum number of subscriptions per owner.
        most: u32,
    },
    /// As many secrets as may sign deliveries beside the present one do.
    #[error(
        "'end_previous' is not given, and {count} earlier secrets of subscription {subscription} still sign \
         its deliveries: wait until one ends, a day after its successor was made, or give it to end them all"
    )]
    TooManySecrets {
        /// Number of the subscription.
        subscription: u32,
        /// Number of these secrets.
        count: usize,
    },
    /// What contracts hold is not recorded.
    #[error(
        "'on' is '{0}', and what contracts hold is not recorded here: give another one, or ask the operator to turn \
         it on with [index] storage"
    )]
    StorageOff(&'static str),
    /// The owner reads no project of this name.
    #[error(
        "there is no project '{0}' that you read: give one of your own, or subscribe to a public one first (POST \
         /rest/retroshade/subscribe)"
    )]
    UnknownProject(String),
    /// The subscription is disabled.
    #[error(
        "subscription {0} is disabled: repair its endpoint, and enable it with POST /rest/webhooks/{0}/enable first"
    )]
    Disabled(u32),
    /// The endpoint is not accepted for deliveries.
    #[error("'webhook_endpoint' {0}")]
    Endpoint(#[from] EndpointError),
    /// A filter is malformed.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A value is malformed; `name` and `problem` together form the message.
    #[error("'{name}' {problem}")]
    Value {
        /// Name of the value.
        name: &'static str,
        /// What is wrong, and what to give instead.
        problem: String,
    },
    /// Events that are to be replayed cannot be named yet.
    #[error(
        "the events of ledger {0} cannot be named yet, because the index of what contracts run has not \
         reached it: ask again in a few seconds"
    )]
    NotNamedYet(LedgerSeq),
    /// The client no longer waits for the response.
    #[error("the replay was cancelled, because the client no longer waits for its answer")]
    Interrupted,
    /// Stored data is damaged.
    #[error("{0} is damaged in the store: restore a backup")]
    Damaged(String),
    /// A thread for deliveries could not be started.
    #[error("webhooks cannot be delivered: a thread cannot be started: {0}")]
    Thread(std::io::Error),
    /// A secret cannot be sealed, or the sealing key has not been set yet.
    #[error("the secret cannot be sealed")]
    Seal,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TemplateError> for WebhookError {
    fn from(error: TemplateError) -> Self {
        Self::Value { name: "message", problem: error.to_string() }
    }
}

impl WebhookError {
    /// Whether the message is meant for the operator only.
    pub fn is_internal(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::Thread(_) | Self::Seal | Self::Store(_))
    }

    /// Returns the message for the client. An internal error has a generic message that reveals no
    /// details.
    pub fn sentence(&self) -> String {
        if self.is_internal() {
            "the service failed on this request: try again, and give the operator the request id when \
                 it persists"
                    .to_owned()
        } else {
            self.to_string()
        }
    }
}
