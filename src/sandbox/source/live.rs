//! The sandbox network as clients see it between two ledgers: the state after the newest ledger,
//! and the queues for the next one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use orrery_ledger::domain::{Funding, NotFunded, Submission};
use parking_lot::Mutex;
use stellar_xdr::{Limits, ScAddress, TransactionEnvelope, WriteXdr};
use tokio::sync::oneshot;

use super::queue::{Transaction, TransactionQueue, parts};
use crate::network::{FULL, Sandbox, SandboxError};

/// Maximum number of queued funding requests.
const MAX_UNFUNDED: usize = 512;
/// Maximum number of accounts that one transaction creates.
const MAX_FUNDED: usize = 100;

/// Size limits of the ledger, at which no more input from outside is accepted. Each ledger is made
/// on a copy of the state.
#[derive(Debug, Clone, Copy)]
struct SizeLimits {
    entries: usize,
    /// Size of contract data and code in bytes, as rent counts it.
    bytes: u64,
}

/// Size limits of every network.
const SIZE_LIMITS: SizeLimits = SizeLimits { entries: 50_000, bytes: 256 << 20 };

/// Sends the outcome of a funding request to its client; `None` when the funding was not possible.
type FundingSender = oneshot::Sender<Option<Funding>>;

/// Client interface of a running sandbox network.
pub struct LiveSandbox {
    newest: Mutex<Arc<Sandbox>>,
    size_limits: SizeLimits,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    transactions: TransactionQueue,
    unfunded: VecDeque<(ScAddress, FundingSender)>,
}

/// Input from outside for one ledger, and the channels for the outcomes of funding requests.
#[derive(Default)]
pub(super) struct LedgerInput {
    pub(super) transactions: Vec<TransactionEnvelope>,
    pub(super) funded: Vec<ScAddress>,
    pub(super) funding_senders: Vec<FundingSender>,
}

impl LiveSandbox {
    pub(super) fn new(sandbox: &Sandbox) -> Self {
        let newest = Mutex::new(Arc::new(sandbox.clone()));
        Self { newest, size_limits: SIZE_LIMITS, waiting: Mutex::default() }
    }

    /// Returns the network after its newest ledger.
    pub fn newest(&self) -> Arc<Sandbox> {
        Arc::clone(&self.newest.lock())
    }

    fn is_full(&self, newest: &Sandbox) -> bool {
        let (entries, bytes) = newest.size();
        entries >= self.size_limits.entries || bytes >= self.size_limits.bytes
    }

    pub(super) fn publish(&self, sandbox: &Sandbox) {
        *self.newest.lock() = Arc::new(sandbox.clone());
        self.waiting.lock().transactions.forget_taken();
    }

    /// Queues a transaction for the next ledger if it could be applied at `now` (UNIX seconds).
    /// Returns its hash and the outcome.
    ///
    /// # Errors
    /// When the envelope has version 0, which is obsolete, or cannot be encoded, and when the ledger
    /// has reached its size limits.
    pub fn send(
        &self,
        envelope: TransactionEnvelope,
        now: u64,
    ) -> Result<([u8; 32], Submission), SandboxError> {
        let newest = self.newest();
        let hash = newest.hash(&envelope)?;
        let Some(parts) = parts(&envelope) else {
            return Err(SandboxError::inconsistent("an envelope of version 0"));
        };
        let now = now.max(newest.latest_close_time().saturating_add(1));
        let bytes = envelope.to_xdr(Limits::none())?.len();
        if self.is_full(&newest) {
            return Err(SandboxError(FULL.to_owned()));
        }
        // Checked without the lock, so that the next ledger does not wait for the verification of
        // signatures.
        let checked = newest.check(&envelope, now)?;
        let mut waiting = self.waiting.lock();
        let transaction = Transaction { hash, parts, bytes, envelope };
        Ok((hash, waiting.transactions.submit(transaction, checked)))
    }

    /// Queues a request to create an account with coins, or to send coins to a contract, with the
    /// next ledger. The receiver gets the transaction then, or `None` when there is none that succeeded.
    ///
    /// # Errors
    /// When the account exists, the ledger has reached its size limits, or the queue is full.
    pub fn fund(
        &self,
        address: ScAddress,
    ) -> Result<oneshot::Receiver<Option<Funding>>, NotFunded> {
        let newest = self.newest();
        if matches!(&address, ScAddress::Account(account) if newest.has_account(account)) {
            return Err(NotFunded::Exists);
        }
        if self.is_full(&newest) {
            return Err(NotFunded::Refused(FULL));
        }
        let mut waiting = self.waiting.lock();
        if waiting.unfunded.len() >= MAX_UNFUNDED {
            return Err(NotFunded::Busy);
        }
        let (sender, receiver) = oneshot::channel();
        waiting.unfunded.push_back((address, sender));
        Ok(receiver)
    }

    /// Takes the next ledger's input from the queues; the rest waits for later ledgers.
    pub(super) fn take(&self) -> LedgerInput {
        let mut waiting = self.waiting.lock();
        let mut input =
            LedgerInput { transactions: waiting.transactions.take(), ..LedgerInput::default() };
        let mut seen = BTreeSet::new();
        while let Some((address, _)) = waiting.unfunded.front() {
            let is_contract = matches!(address, ScAddress::Contract(_));
            // A contract is funded by a transaction of its own.
            if seen.len() >= MAX_FUNDED || (is_contract && !seen.is_empty()) {
                break;
            }
            let Some((address, sender)) = waiting.unfunded.pop_front() else { break };
            input.funding_senders.push(sender);
            if seen.insert(address.clone()) {
                input.funded.push(address);
            }
            if is_contract {
                break;
            }
        }
        input
    }
}

#[cfg(test)]
mod tests {
    use stellar_xdr::{AccountId, PublicKey, Uint256};

    use super::*;
    use crate::network::SandboxConfig;
    use crate::network::{Batch, FIRST_BATCH_LEDGER};
    use orrery_ledger::domain::{LedgerSeq, Network};

    fn account(number: u32) -> ScAddress {
        let mut key = [1; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        ScAddress::Account(AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(key))))
    }

    /// Repeated funding requests are refused when the queue is full, and when the ledger has
    /// reached its size limits.
    #[test]
    fn funded_accounts_are_limited() {
        let config = SandboxConfig {
            network: Network::from_name_or_passphrase("local"),
            seed: 1,
            start_time: 0,
            close_interval: 1,
            transactions_per_ledger: 0..=1,
        };
        let mut sandbox = Sandbox::new(config).unwrap();
        sandbox.skip_to(LedgerSeq(FIRST_BATCH_LEDGER.0 - 1)).unwrap();
        let mut live = LiveSandbox::new(&sandbox);
        live.size_limits.entries = sandbox.size().0 + 250;
        let (mut asked, mut waits) = (0, Vec::new());
        let refused = loop {
            asked += 1;
            match live.fund(account(asked)) {
                Ok(receiver) => waits.push(receiver),
                Err(NotFunded::Busy) => {
                    assert_eq!(waits.len(), MAX_UNFUNDED);
                    while !waits.is_empty() {
                        let input = live.take();
                        assert!(input.funded.len() <= MAX_FUNDED);
                        waits.drain(..input.funding_senders.len());
                        let funded = input.funded;
                        sandbox.next_ledger_of(&Batch { funded, ..Batch::default() }).unwrap();
                        live.publish(&sandbox);
                    }
                }
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, NotFunded::Refused(FULL));
        assert!(sandbox.size().0 >= live.size_limits.entries);
        assert!(sandbox.size().0 < live.size_limits.entries + MAX_UNFUNDED + 20);
    }
}
