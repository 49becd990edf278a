//! A ledger that is made for others: when it closes, which of their transactions are in it, and who is given coins.

use stellar_xdr::{
    AccountId, CreateAccountOp, LedgerCloseMeta, Limits, Memo, OperationBody, ScAddress, ScVal,
    StellarValueExt, TransactionEnvelope, TransactionMeta, TransactionResultResult, WriteXdr,
};

use super::close::Tip;
use super::close_times::Closes;
use super::envelope::SignedTransaction;
use super::plan::Planner;
use super::{Sandbox, SandboxError, bootstrap};
use crate::domain::LedgerSeq;

/// What an account or contract is given, in stroops: 10,000 lumens, as by the friendbots of public test networks.
pub const FRIENDBOT_STROOPS: i64 = 100_000_000_000;
/// The first ledger that can have a batch in it.
pub const FIRST_BATCH_LEDGER: LedgerSeq = LedgerSeq(bootstrap::LAST_LEDGER + 1);

/// What comes into a ledger from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// When it closes, in Unix milliseconds; the next possible moment when that has passed.
    pub close_time_ms: u64,
    /// Whether its header says so in milliseconds (CAP-88), or in whole seconds.
    pub in_milliseconds: bool,
    /// Those that cannot be applied any more are left out, as a node does.
    pub transactions: Vec<TransactionEnvelope>,
    /// New accounts, or one contract.
    pub funded: Vec<ScAddress>,
}

/// A ledger of a batch.
#[derive(Debug)]
pub struct Closed {
    /// Its `LedgerCloseMeta`, XDR.
    pub xdr: Vec<u8>,
    /// The transaction that gave coins; none when there could be none.
    pub funding: Option<Funding>,
}

/// A transaction that gave coins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Funding {
    /// Its hash.
    pub hash: [u8; 32],
    /// The transaction.
    pub envelope: TransactionEnvelope,
    /// What it did.
    pub meta: TransactionMeta,
    /// Whether it did.
    pub succeeded: bool,
}

impl Sandbox {
    /// Closes the next ledger with what came from outside in it; those before [`FIRST_BATCH_LEDGER`] have no room for
    /// anything.
    ///
    /// # Errors
    /// As [`Self::next_ledger`].
    pub fn next_ledger_of(&mut self, batch: &Batch) -> Result<Closed, SandboxError> {
        self.close_batch(batch)
    }

    /// Whether an account is there.
    pub fn has_account(&self, account: &AccountId) -> bool {
        self.state.account(account).is_some()
    }

    /// Close time of the latest ledger in Unix milliseconds; the last moment of its second where it is told in
    /// seconds.
    pub fn latest_close_time_ms(&self) -> u64 {
        close_time_ms(&self.tip)
    }
}

fn close_time_ms(tip: &Tip) -> u64 {
    let value = &tip.header.scp_value;
    match &value.ext {
        StellarValueExt::SignedMs(signed) => signed.close_time_ms.0,
        StellarValueExt::EmptyTxSetMs(proposed) => proposed.close_time_ms.0,
        _ => value.close_time.0.saturating_mul(1000).saturating_add(999),
    }
}

/// When the ledger after `tip` closes.
pub(super) fn closes(tip: &Tip, batch: &Batch) -> Closes {
    let latest = tip.header.scp_value.close_time.0;
    match batch.in_milliseconds {
        true => {
            let milliseconds = batch.close_time_ms.max(close_time_ms(tip).saturating_add(1));
            Closes { seconds: milliseconds / 1000, milliseconds: Some(milliseconds) }
        }
        false => {
            let seconds = (batch.close_time_ms / 1000).max(latest.saturating_add(1));
            Closes { seconds, milliseconds: None }
        }
    }
}

/// Plans the transactions of a batch; returns the hash of the one that gives coins.
pub(super) fn plan(
    sandbox: &Sandbox,
    planner: &mut Planner<'_>,
    batch: &Batch,
) -> Result<Option<[u8; 32]>, SandboxError> {
    for envelope in &batch.transactions {
        let transaction = SignedTransaction::submitted(envelope.clone(), planner.ledger.network)?;
        let is_first = !planner.is_busy(&transaction.source()?);
        if is_first && sandbox.verdict(&transaction, planner.ledger.close_time)?.is_none() {
            planner.add_submitted(transaction)?;
        }
    }
    fund(planner, &batch.funded)
}

fn fund(planner: &mut Planner<'_>, funded: &[ScAddress]) -> Result<Option<[u8; 32]>, SandboxError> {
    let cast = planner.cast;
    let mut operations = Vec::new();
    for address in funded {
        match address {
            ScAddress::Account(destination) if planner.state.account(destination).is_none() => {
                operations.push(OperationBody::CreateAccount(CreateAccountOp {
                    destination: destination.clone(),
                    starting_balance: FRIENDBOT_STROOPS,
                }));
            }
            ScAddress::Contract(_) if operations.is_empty() => {
                let amount = ScVal::from(i128::from(FRIENDBOT_STROOPS));
                let from = ScVal::Address(cast.root.address());
                let arguments = vec![from, ScVal::Address(address.clone()), amount];
                let native = &planner.ledger.assets.native;
                let is_sent = planner.call(&cast.root, native, "transfer", arguments)?;
                return Ok(planner.latest_hash().filter(|_| is_sent));
            }
            _ => {}
        }
    }
    if operations.is_empty() {
        return Ok(None);
    }
    let is_sent = planner.submit(&cast.root, operations, Memo::None)?;
    Ok(planner.latest_hash().filter(|_| is_sent))
}

/// The transaction of a hash in a ledger.
pub(super) fn find(
    meta: &LedgerCloseMeta,
    hash: [u8; 32],
    envelope: TransactionEnvelope,
) -> Option<Funding> {
    let LedgerCloseMeta::V2(ledger) = meta else { return None };
    let transaction =
        ledger.tx_processing.iter().find(|it| it.result.transaction_hash.0 == hash)?;
    let succeeded = matches!(
        transaction.result.result.result,
        TransactionResultResult::TxSuccess(_) | TransactionResultResult::TxFeeBumpInnerSuccess(_)
    );
    let meta = transaction.tx_apply_processing.clone();
    Some(Funding { hash, envelope, meta, succeeded })
}

/// A ledger's metadata with what was given in it.
pub(super) fn closed(
    meta: &LedgerCloseMeta,
    funding: Option<SignedTransaction>,
) -> Result<Closed, SandboxError> {
    let funding = funding.and_then(|signed| find(meta, signed.hash.0, signed.envelope));
    Ok(Closed { xdr: meta.to_xdr(Limits::none())?, funding })
}
