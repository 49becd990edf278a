//! The consumers of this program other than its indexing programs.

use std::sync::Arc;

use crate::accounts::AccountConsumer;
use crate::accounts::evictions::Evictions;
use crate::accounts::passkey::PasskeyWallets;
use crate::accounts::smart::SmartAccounts;
use crate::executables::ExecutableIndex;
use crate::rpc::TransactionHashes;
use crate::store::LedgerConsumer;
use crate::webhooks::WebhookConsumer;
use crate::webhooks::registry::Registry;

/// Returns the consumers of this program other than its indexing programs.
pub(in crate::service) fn registered(webhooks: &Arc<Registry>) -> Vec<Arc<dyn LedgerConsumer>> {
    vec![
        Arc::new(WebhookConsumer::new(Arc::clone(webhooks))),
        Arc::new(AccountConsumer(SmartAccounts)),
        Arc::new(AccountConsumer(PasskeyWallets)),
        Arc::new(Evictions),
        Arc::new(TransactionHashes),
        Arc::new(ExecutableIndex),
    ]
}
