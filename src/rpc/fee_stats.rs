//! `getFeeStats`: the inclusion fees that transactions of the newest ledgers paid.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use stellar_xdr::{
    FeeBumpTransactionInnerTx, SorobanTransactionMetaExt, TransactionEnvelope, TransactionMeta,
};

use super::range::Needed;
use super::{CallLimits, Outcome, Params, Rpc, RpcError, result, xdr};
use orrery_ledger::decode::TransactionView;
use orrery_ledger::domain::LedgerSeq;

/// Number of newest ledgers from which fees of smart-contract transactions are taken.
const SOROBAN_LEDGERS: u32 = 50;
/// Number of newest ledgers from which fees of other transactions are taken.
const CLASSIC_LEDGERS: u32 = 10;

/// Inclusion fees of one ledger, in stroops.
#[derive(Debug, Default)]
struct Fees {
    /// Of smart-contract transactions: the fee without the resource fee.
    soroban: Vec<u64>,
    /// Of other transactions: the fee per operation.
    classic: Vec<u64>,
}

/// Cached fees of the newest ledgers, so that only new ledgers have to be decoded.
#[derive(Default)]
pub(super) struct FeeCache(Mutex<BTreeMap<LedgerSeq, Arc<Fees>>>);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    soroban_inclusion_fee: Distribution,
    inclusion_fee: Distribution,
    latest_ledger: u32,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Distribution {
    max: String,
    min: String,
    mode: String,
    p10: String,
    p20: String,
    p30: String,
    p40: String,
    p50: String,
    p60: String,
    p70: String,
    p80: String,
    p90: String,
    p95: String,
    p99: String,
    transaction_count: String,
    ledger_count: u32,
}

impl Distribution {
    fn of(mut fees: Vec<u64>, ledgers: u32) -> Self {
        fees.sort_unstable();
        // Nearest-rank percentile.
        let percentile = |percent: usize| {
            let rank = (percent * fees.len()).div_ceil(100);
            rank.checked_sub(1).map_or(0, |place| fees[place]).to_string()
        };
        let end = |fee: Option<&u64>| fee.copied().unwrap_or(0).to_string();
        Self {
            max: end(fees.last()),
            min: end(fees.first()),
            mode: mode(&fees).to_string(),
            p10: percentile(10),
            p20: percentile(20),
            p30: percentile(30),
            p40: percentile(40),
            p50: percentile(50),
            p60: percentile(60),
            p70: percentile(70),
            p80: percentile(80),
            p90: percentile(90),
            p95: percentile(95),
            p99: percentile(99),
            transaction_count: fees.len().to_string(),
            ledger_count: if fees.is_empty() { 0 } else { ledgers },
        }
    }
}

/// Returns the most frequent of sorted values, the smallest if there are several, and 0 if there
/// are no values.
fn mode(sorted: &[u64]) -> u64 {
    let (mut mode, mut most) = (0, 0);
    for same in sorted.chunk_by(|one, other| one == other) {
        if same.len() > most {
            (mode, most) = (same[0], same.len());
        }
    }
    mode
}

impl Rpc {
    pub(super) fn get_fee_stats(&self, params: Params<'_>, _: CallLimits<'_>) -> Outcome {
        params.none()?;
        let range = self.range(Needed::RawLedger)?;
        let newest = |ledgers: u32| {
            let first = range.oldest.0.max(range.latest.0.saturating_sub(ledgers - 1));
            first..=range.latest.0
        };
        let (mut soroban, mut classic) = (Vec::new(), Vec::new());
        for sequence in newest(SOROBAN_LEDGERS) {
            let fees = self.fees(LedgerSeq(sequence))?;
            soroban.extend_from_slice(&fees.soroban);
            if newest(CLASSIC_LEDGERS).contains(&sequence) {
                classic.extend_from_slice(&fees.classic);
            }
        }
        // Drop the fees of ledgers that have left the window.
        let mut cached = self.fees.0.lock();
        let oldest = LedgerSeq(*newest(SOROBAN_LEDGERS).start());
        *cached = cached.split_off(&oldest);
        drop(cached);
        let ledgers = |most| newest(most).count() as u32;
        result(&Answer {
            soroban_inclusion_fee: Distribution::of(soroban, ledgers(SOROBAN_LEDGERS)),
            inclusion_fee: Distribution::of(classic, ledgers(CLASSIC_LEDGERS)),
            latest_ledger: range.latest.0,
        })
    }

    fn fees(&self, sequence: LedgerSeq) -> Result<Arc<Fees>, RpcError> {
        if let Some(cached) = self.fees.0.lock().get(&sequence) {
            return Ok(Arc::clone(cached));
        }
        let fees = self.with_ledger(sequence, |ledger| {
            let mut fees = Fees::default();
            for transaction in &ledger.transactions {
                fees.add(transaction)?;
            }
            Ok(fees)
        })?;
        let fees = Arc::new(fees);
        self.fees.0.lock().insert(sequence, Arc::clone(&fees));
        Ok(fees)
    }
}

impl Fees {
    fn add(&mut self, transaction: &TransactionView<'_>) -> Result<(), RpcError> {
        let charged = transaction.fee_charged;
        if transaction.smart_contract {
            let resource_fee =
                xdr::read(transaction.meta, |meta: &TransactionMeta| Ok(resource_fee(meta)))?;
            // A transaction that failed before it ran has no resource fee in its metadata and is
            // left out.
            if let Some(resource_fee) = resource_fee {
                self.soroban.push(charged.saturating_sub(resource_fee).try_into().unwrap_or(0));
            }
            return Ok(());
        }
        let operations = xdr::read(transaction.envelope, |envelope: &TransactionEnvelope| {
            Ok(operation_count(envelope) as i64)
        })?;
        if let Some(each) = charged.checked_div(operations) {
            self.classic.push(each.try_into().unwrap_or(0));
        }
        Ok(())
    }
}

/// Returns the resource fee of a smart-contract transaction, refundable and not, if its metadata
/// states it.
fn resource_fee(meta: &TransactionMeta) -> Option<i64> {
    let ext = match meta {
        TransactionMeta::V3(meta) => &meta.soroban_meta.as_ref()?.ext,
        TransactionMeta::V4(meta) => &meta.soroban_meta.as_ref()?.ext,
        _ => return None,
    };
    match ext {
        SorobanTransactionMetaExt::V0 => None,
        SorobanTransactionMetaExt::V1(fees) => Some(
            fees.total_non_refundable_resource_fee_charged
                .saturating_add(fees.total_refundable_resource_fee_charged),
        ),
    }
}

fn operation_count(envelope: &TransactionEnvelope) -> usize {
    match envelope {
        TransactionEnvelope::TxV0(envelope) => envelope.tx.operations.len(),
        TransactionEnvelope::Tx(envelope) => envelope.tx.operations.len(),
        TransactionEnvelope::TxFeeBump(envelope) => match &envelope.tx.inner_tx {
            FeeBumpTransactionInnerTx::Tx(envelope) => envelope.tx.operations.len(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let one_to = |last| Distribution::of((1..=last).rev().collect(), 5);
        let hundred = one_to(100);
        assert_eq!((&*hundred.p10, &*hundred.p99, &*hundred.max), ("10", "99", "100"));
        assert_eq!(&*one_to(3).p50, "2");
        assert_eq!(&*one_to(1).p10, "1");
        let none = Distribution::of(Vec::new(), 5);
        assert_eq!((&*none.p50, &*none.mode, none.ledger_count), ("0", "0", 0));
        assert_eq!(mode(&[1, 1, 2, 2, 3]), 1);
        assert_eq!(mode(&[1, 2, 2, 3, 3]), 2);
    }
}
