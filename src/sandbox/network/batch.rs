//! Ledgers with input from outside: their close time, the submitted transactions they include, and
//! the addresses they fund.

use orrery_ledger::domain::{Funding, LedgerSeq};
use stellar_xdr::{
    CreateAccountOp, LedgerCloseMeta, Limits, Memo, OperationBody, ScAddress, ScVal,
    StellarValueExt, TransactionEnvelope, TransactionResultResult, WriteXdr,
};

use super::bootstrap;
use super::close::Tip;
use super::close_times::CloseTimestamp;
use super::envelope::SignedTransaction;
use super::error::Result;
use super::plan::Planner;
use super::validation::Admission;

/// Amount that an account or contract is funded with, in stroops: 10,000 lumens, as by the
/// friendbots of public test networks.
pub const FRIENDBOT_STROOPS: i64 = 100_000_000_000;
/// First ledger that can include a batch.
pub const FIRST_BATCH_LEDGER: LedgerSeq = LedgerSeq(bootstrap::LAST_LEDGER + 1);

/// Input from outside for one ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Close time in UNIX milliseconds; a time that is not after the latest ledger is replaced by
    /// the earliest possible one.
    pub close_time_ms: u64,
    /// Whether the header states the close time in milliseconds (CAP-88) instead of whole seconds.
    pub in_milliseconds: bool,
    /// Submitted transactions. The ledger leaves out those that can no longer be applied, as a node
    /// does, and all but the first of each source account.
    pub transactions: Vec<TransactionEnvelope>,
    /// Addresses to fund: accounts that do not exist yet, or one contract.
    pub funded: Vec<ScAddress>,
}

/// A ledger that was closed with a batch.
#[derive(Debug)]
pub struct Closed {
    /// The ledger's `LedgerCloseMeta`, as XDR.
    pub xdr: Vec<u8>,
    /// Transaction that funded addresses; `None` when there is none that succeeded.
    pub funding: Option<Funding>,
}

/// Returns the close time of a ledger in UNIX milliseconds; the last millisecond of its second when
/// the header states seconds.
pub(super) fn close_time_ms(tip: &Tip) -> u64 {
    let value = &tip.header.scp_value;
    match &value.ext {
        StellarValueExt::SignedMs(signed) => signed.close_time_ms.0,
        StellarValueExt::EmptyTxSetMs(proposed) => proposed.close_time_ms.0,
        _ => value.close_time.0.saturating_mul(1000).saturating_add(999),
    }
}

/// Returns the close time of the ledger after `tip`.
pub(super) fn close_timestamp(tip: &Tip, batch: &Batch) -> CloseTimestamp {
    let latest = tip.header.scp_value.close_time.0;
    if batch.in_milliseconds {
        let milliseconds = batch.close_time_ms.max(close_time_ms(tip).saturating_add(1));
        CloseTimestamp { seconds: milliseconds / 1000, milliseconds: Some(milliseconds) }
    } else {
        let seconds = (batch.close_time_ms / 1000).max(latest.saturating_add(1));
        CloseTimestamp { seconds, milliseconds: None }
    }
}

/// Plans the transactions of a batch; returns the hash of the one that funds addresses, if any.
pub(super) fn plan(planner: &mut Planner<'_>, batch: &Batch) -> Result<Option<[u8; 32]>> {
    let admission = Admission {
        network: planner.ledger.network,
        permanent: planner.permanent,
        state: planner.state,
        sequence: planner.ledger.sequence,
    };
    for envelope in &batch.transactions {
        let transaction = SignedTransaction::submitted(envelope.clone(), planner.ledger.network)?;
        let is_first = !planner.is_busy(&transaction.source()?);
        if is_first && admission.verdict(&transaction, planner.ledger.close_time)?.is_none() {
            planner.add_submitted(transaction)?;
        }
    }
    fund(planner, &batch.funded)
}

fn fund(planner: &mut Planner<'_>, funded: &[ScAddress]) -> Result<Option<[u8; 32]>> {
    let permanent = planner.permanent;
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
                let from = ScVal::Address(permanent.root.address());
                let arguments = vec![from, ScVal::Address(address.clone()), amount];
                let native = &planner.ledger.assets.native;
                let is_sent = planner.call(&permanent.root, native, "transfer", arguments)?;
                return Ok(planner.latest_hash().filter(|_| is_sent));
            }
            _ => {}
        }
    }
    if operations.is_empty() {
        return Ok(None);
    }
    let is_sent = planner.submit(&permanent.root, operations, Memo::None)?;
    Ok(planner.latest_hash().filter(|_| is_sent))
}

/// Returns the transaction with this hash from a ledger's metadata; `None` if it failed.
fn find(meta: &LedgerCloseMeta, hash: [u8; 32], envelope: TransactionEnvelope) -> Option<Funding> {
    let LedgerCloseMeta::V2(ledger) = meta else { return None };
    let transaction =
        ledger.tx_processing.iter().find(|it| it.result.transaction_hash.0 == hash)?;
    let succeeded = matches!(
        transaction.result.result.result,
        TransactionResultResult::TxSuccess(_) | TransactionResultResult::TxFeeBumpInnerSuccess(_)
    );
    let meta = transaction.tx_apply_processing.clone();
    succeeded.then_some(Funding { hash, envelope, meta })
}

/// Combines a ledger's metadata with its funding transaction.
pub(super) fn closed(meta: &LedgerCloseMeta, funding: Option<SignedTransaction>) -> Result<Closed> {
    let funding = funding.and_then(|signed| find(meta, signed.hash.0, signed.envelope));
    Ok(Closed { xdr: meta.to_xdr(Limits::none())?, funding })
}
