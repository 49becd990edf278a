//! What is checked of ledgers on their way into the store.

use std::sync::Arc;

use orrery_ledger::validators::Validators;
use orrery_ledger::verify::Policy;

/// What is checked of ledgers, and whose signatures count.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// What is done about ledgers that are not as their headers say.
    pub policy: Policy,
    /// The validators whose signatures the store records; `None` to record none.
    pub validators: Option<Arc<Validators>>,
    /// Whether ledgers are stored only once they are attested.
    pub require_attested: bool,
}
