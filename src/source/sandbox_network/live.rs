//! The sandbox network as its clients see it between two ledgers: what the newest one left, and what waits for the
//! next.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use stellar_xdr::{
    AccountId, Limits, MuxedAccount, PublicKey, ScAddress, TransactionEnvelope, TransactionExt,
    TransactionResult, WriteXdr,
};
use tokio::sync::oneshot;

use crate::source::sandbox::{Funding, Sandbox, SandboxError};

/// Transactions that wait at the most, and their bytes together.
const MOST_WAITING: usize = 200;
const MOST_WAITING_BYTES: usize = 8 << 20;
/// Accounts and contracts that wait for coins at the most.
const MOST_UNFUNDED: usize = 200;
/// Accounts that are made by one transaction.
const MOST_FUNDED: usize = 100;
/// Transactions that one ledger takes from outside.
const MOST_TAKEN: usize = 50;
/// Instructions that those may declare together: four of the largest.
const MOST_INSTRUCTIONS: u64 = 400_000_000;

/// What the ledger may hold before it takes nothing more from outside. Each ledger is made on a copy of it.
#[derive(Debug, Clone, Copy)]
struct Room {
    entries: usize,
    /// Of contracts, as rent counts them.
    bytes: u64,
}

/// Room of every network.
const ROOM: Room = Room { entries: 50_000, bytes: 256 << 20 };

/// What becomes of a transaction that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// It waits for the next ledger.
    Waits,
    /// It waited already.
    Waited,
    /// Another one of its account waits, or too many do.
    Later,
    /// The ledger holds as much as it may.
    Full,
    /// It cannot be applied, as this result says.
    Refused(TransactionResult),
}

/// Why an account or contract is given nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotFunded {
    /// The account is there: `createAccountAlreadyExist`.
    #[error("the account exists already")]
    Exists,
    /// The ledger holds as much as it may.
    #[error("{FULL}")]
    Full,
    /// Too many wait.
    #[error("too many are waiting for coins: try again in a moment")]
    TooMany,
}

/// What is said when the ledger holds as much as it may.
pub const FULL: &str =
    "this network holds as much as it may: begin another with a new data directory";

/// Who hears of the coins.
type Told = oneshot::Sender<Option<Funding>>;

/// A running sandbox network.
pub struct LiveSandbox {
    newest: Mutex<Arc<Sandbox>>,
    room: Room,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    transactions: VecDeque<Transaction>,
    bytes: usize,
    unfunded: VecDeque<(ScAddress, Told)>,
}

struct Transaction {
    hash: [u8; 32],
    source: MuxedAccount,
    instructions: u64,
    bytes: usize,
    envelope: TransactionEnvelope,
}

/// What a ledger takes, and who hears of it.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) transactions: Vec<TransactionEnvelope>,
    pub(super) funded: Vec<ScAddress>,
    pub(super) told: Vec<Told>,
}

impl LiveSandbox {
    pub(super) fn new(sandbox: &Sandbox) -> Self {
        let newest = Mutex::new(Arc::new(sandbox.clone()));
        Self { newest, room: ROOM, waiting: Mutex::default() }
    }

    /// The network as its newest ledger left it.
    pub fn newest(&self) -> Arc<Sandbox> {
        Arc::clone(&self.newest.lock())
    }

    fn is_full(&self, newest: &Sandbox) -> bool {
        let (entries, bytes) = newest.size();
        entries >= self.room.entries || bytes >= self.room.bytes
    }

    pub(super) fn is_at(&self, sandbox: &Sandbox) {
        *self.newest.lock() = Arc::new(sandbox.clone());
    }

    /// Takes a transaction for the next ledger, if it could be applied at `now` (Unix seconds); says its hash.
    ///
    /// # Errors
    /// When it is an envelope of version 0, which nothing signs any more.
    pub fn send(
        &self,
        envelope: TransactionEnvelope,
        now: u64,
    ) -> Result<([u8; 32], Sent), SandboxError> {
        let newest = self.newest();
        let hash = newest.hash(&envelope)?;
        let Some((source, instructions)) = parts(&envelope) else {
            return Err(SandboxError::Inconsistent("an envelope of version 0".to_owned()));
        };
        let now = now.max(newest.latest_close_time().saturating_add(1));
        let bytes = envelope.to_xdr(Limits::none())?.len();
        if self.is_full(&newest) {
            return Ok((hash, Sent::Full));
        }
        // Not under the lock: the next ledger does not wait for signatures to be checked.
        let checked = newest.check(&envelope, now)?;
        let mut waiting = self.waiting.lock();
        if waiting.transactions.iter().any(|other| other.hash == hash) {
            return Ok((hash, Sent::Waited));
        }
        if let Err(result) = checked {
            return Ok((hash, Sent::Refused(result)));
        }
        let is_taken = waiting.transactions.iter().any(|other| is_same(&other.source, &source));
        let is_full = waiting.transactions.len() >= MOST_WAITING
            || waiting.bytes + bytes > MOST_WAITING_BYTES;
        if is_taken || is_full {
            return Ok((hash, Sent::Later));
        }
        waiting.bytes += bytes;
        waiting.transactions.push_back(Transaction { hash, source, instructions, bytes, envelope });
        Ok((hash, Sent::Waits))
    }

    /// Has an account made with coins in it, or a contract given some, with the next ledger. Hears of it then; of
    /// nothing when it could not be.
    ///
    /// # Errors
    /// Why not.
    pub fn fund(
        &self,
        address: ScAddress,
    ) -> Result<oneshot::Receiver<Option<Funding>>, NotFunded> {
        let newest = self.newest();
        if matches!(&address, ScAddress::Account(account) if newest.has_account(account)) {
            return Err(NotFunded::Exists);
        }
        if self.is_full(&newest) {
            return Err(NotFunded::Full);
        }
        let mut waiting = self.waiting.lock();
        if waiting.unfunded.len() >= MOST_UNFUNDED {
            return Err(NotFunded::TooMany);
        }
        let (told, hears) = oneshot::channel();
        waiting.unfunded.push_back((address, told));
        Ok(hears)
    }

    /// What the next ledger takes. The rest waits for the one after it.
    pub(super) fn take(&self) -> Taken {
        let mut waiting = self.waiting.lock();
        let mut taken = Taken::default();
        let mut instructions = 0;
        while taken.transactions.len() < MOST_TAKEN
            && let Some(next) = waiting.transactions.front()
            && (taken.transactions.is_empty()
                || instructions + next.instructions <= MOST_INSTRUCTIONS)
            && let Some(next) = waiting.transactions.pop_front()
        {
            instructions += next.instructions;
            waiting.bytes -= next.bytes;
            taken.transactions.push(next.envelope);
        }
        let mut seen = BTreeSet::new();
        while let Some((address, _)) = waiting.unfunded.front() {
            let is_contract = matches!(address, ScAddress::Contract(_));
            // A contract is paid by a transaction of its own.
            if seen.len() >= MOST_FUNDED || (is_contract && !seen.is_empty()) {
                break;
            }
            let Some((address, told)) = waiting.unfunded.pop_front() else { break };
            taken.told.push(told);
            if seen.insert(address.clone()) {
                taken.funded.push(address);
            }
            if is_contract {
                break;
            }
        }
        taken
    }
}

/// Source of a transaction, and the instructions that it declares.
fn parts(envelope: &TransactionEnvelope) -> Option<(MuxedAccount, u64)> {
    let inner = match envelope {
        TransactionEnvelope::Tx(inner) => inner,
        TransactionEnvelope::TxFeeBump(bump) => {
            let stellar_xdr::FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
            inner
        }
        TransactionEnvelope::TxV0(_) => return None,
    };
    let instructions = match &inner.tx.ext {
        TransactionExt::V1(data) => u64::from(data.resources.instructions),
        TransactionExt::V0 => 0,
    };
    Some((inner.tx.source_account.clone(), instructions))
}

fn is_same(left: &MuxedAccount, right: &MuxedAccount) -> bool {
    let key = |account: &MuxedAccount| {
        AccountId(PublicKey::PublicKeyTypeEd25519(match account {
            MuxedAccount::Ed25519(key) => key.clone(),
            MuxedAccount::MuxedEd25519(muxed) => muxed.ed25519.clone(),
        }))
    };
    key(left) == key(right)
}

#[cfg(test)]
mod tests {
    use stellar_xdr::Uint256;

    use super::*;
    use crate::domain::{LedgerSeq, Network};
    use crate::source::sandbox::{Batch, FIRST_BATCH_LEDGER, SandboxConfig};

    fn account(number: u32) -> ScAddress {
        let mut key = [1; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        ScAddress::Account(AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(key))))
    }

    /// Whoever asks for coins again and again is turned away: when too many wait, and when the ledger is full.
    #[test]
    fn strangers_make_so_many_accounts_and_no_more() {
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
        live.room.entries = sandbox.size().0 + 250;
        let (mut asked, mut waits) = (0, Vec::new());
        let refused = loop {
            asked += 1;
            match live.fund(account(asked)) {
                Ok(told) => waits.push(told),
                Err(NotFunded::TooMany) => {
                    assert_eq!(waits.len(), MOST_UNFUNDED);
                    while !waits.is_empty() {
                        let taken = live.take();
                        assert!(taken.funded.len() <= MOST_FUNDED);
                        waits.drain(..taken.told.len());
                        let funded = taken.funded;
                        sandbox.next_ledger_of(&Batch { funded, ..Batch::default() }).unwrap();
                        live.is_at(&sandbox);
                    }
                }
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, NotFunded::Full);
        assert!(sandbox.size().0 >= live.room.entries);
        assert!(sandbox.size().0 < live.room.entries + MOST_UNFUNDED + 20);
    }
}
