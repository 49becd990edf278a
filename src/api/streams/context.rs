//! What streams share, and what each receives from the request that opens it.

use std::sync::Arc;
use std::time::Duration;

use super::hub::Hub;
use crate::blocking::Watch;
use crate::budgets::Budgets;
use crate::client::Client;
use crate::identity::Identity;
use crate::names_wait::NamesWait;
use crate::tickets::Tickets;
use crate::{ApiError, Deps};
use orrery_auth::Tokens;
use orrery_membership::Projects;
use orrery_runtime::budget::Share;
use orrery_store::Store;

/// Bytes of the budget that a stream holds: the piece that is being sent, and the one before, which
/// the HTTP library may still hold.
pub(crate) const RESERVED_BYTES: u64 = 64 << 10;

/// State that all streams share.
pub(crate) struct Streams {
    pub(super) context: Arc<Context>,
    pub(super) hub: Hub,
    pub(crate) tickets: Tickets,
}

/// Dependencies of a stream.
pub(super) struct Context {
    pub store: Arc<Store>,
    pub names: Arc<NamesWait>,
    pub tokens: Arc<Tokens>,
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub budgets: Arc<Budgets>,
    pub watch: Arc<Watch>,
    pub projects: Arc<dyn Projects>,
    pub heartbeat: Duration,
}

/// What a stream receives from its request.
pub(crate) struct Opening {
    /// The client that reads the stream.
    pub client: Arc<Client>,
    /// Who the stream is charged to.
    pub identity: Identity,
    /// Token of the request, if it has one; the stream ends when it is no longer valid.
    pub token: Option<Box<str>>,
    /// Slot of the streams budget.
    pub _slot: Share,
    /// Share of [`RESERVED_BYTES`] bytes.
    pub bytes: Share,
}

impl Streams {
    pub(crate) fn new(
        deps: &Deps,
        budgets: &Arc<Budgets>,
        watch: &Arc<Watch>,
        names: &Arc<NamesWait>,
    ) -> Result<Self, ApiError> {
        let context = Context {
            store: Arc::clone(&deps.store),
            names: Arc::clone(names),
            tokens: Arc::clone(&deps.tokens),
            clock: Arc::clone(&deps.clock),
            budgets: Arc::clone(budgets),
            watch: Arc::clone(watch),
            projects: Arc::clone(&deps.programs) as Arc<dyn Projects>,
            heartbeat: deps.settings.tunables.stream_heartbeat,
        };
        let hub = Hub::start(&deps.store, &budgets.bytes, &deps.health)?;
        Ok(Self { context: Arc::new(context), hub, tickets: Tickets::default() })
    }

    /// Ends all streams; streams that are opened later end at once.
    pub(crate) fn stop(&self) {
        self.hub.stop();
    }
}
