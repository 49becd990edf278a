//! Calls about the state at the end of a stored ledger, which they give as `ledger`.

use serde::Deserialize;
use serde::de::IgnoredAny;
use stellar_xdr::{LedgerKey, Limits, WriteXdr};

use super::{Params, Rpc, RpcError, xdr};
use orrery_contract_data::CONSUMER;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::Needs;

/// Whether a call gives a ledger, perhaps of a wrong type.
pub(super) fn is_given(params: Params<'_>) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct WithLedger {
        ledger: Option<IgnoredAny>,
    }
    params.read::<WithLedger>().is_ok_and(|given| given.ledger.is_some())
}

/// Returns the error for a key under which it is not known what there was.
pub(super) fn unknown(ledger: LedgerSeq, key: &LedgerKey) -> Result<RpcError, RpcError> {
    let key = xdr::base64(&encode(key)?);
    Ok(RpcError::invalid_params(format!("unknown at ledger {ledger}: {key}")))
}

/// Encodes a key as XDR.
pub(super) fn encode(key: &LedgerKey) -> Result<Vec<u8>, RpcError> {
    key.to_xdr(Limits::none()).map_err(|error| {
        tracing::error!(%error, "a key of a call cannot be written as XDR");
        RpcError::internal("a key cannot be written as XDR")
    })
}

impl Rpc {
    /// Returns the newest ledger, or the given one if that is newer.
    ///
    /// # Errors
    /// When the given one is not stored, or what contracts hold at its end is not indexed.
    pub(super) fn newest_beside(&self, ledger: LedgerSeq) -> Result<LedgerSeq, RpcError> {
        let newest = self.store.ends().latest;
        let newest = newest.ok_or_else(|| RpcError::internal("data stores are not initialized"))?;
        if self.store.range_of(ledger).is_none() {
            return Err(self.not_stored(ledger)?);
        }
        if self.store.lacks(CONSUMER, ledger) == Some(true) {
            return Err(self.not_indexed());
        }
        // This one may have been stored after the newest was asked for.
        Ok(newest.max(ledger))
    }

    /// Whether there are stored ledgers, perhaps old ones, that have not been processed.
    pub(super) fn is_behind(&self) -> bool {
        self.store.has_passed(CONSUMER, self.store.last_place()) == Some(false)
    }

    pub(super) fn not_indexed(&self) -> RpcError {
        let ledgers = self.store.consumer(CONSUMER).map_or(0, |consumer| consumer.lag);
        RpcError::not_indexed(CONSUMER, ledgers)
    }

    /// Whether retention has removed the transactions of a ledger: then only what later ledgers hold is
    /// kept.
    pub(super) fn is_removed(&self, ledger: LedgerSeq) -> Result<bool, RpcError> {
        Ok(self.store.removed(Needs::TRANSACTIONS)?.contains(ledger))
    }

    /// Returns the error for a ledger that is not stored.
    pub(super) fn not_stored(&self, ledger: LedgerSeq) -> Result<RpcError, RpcError> {
        let mut stored = self.store.ledgers_after(0);
        stored.remove_all(&self.store.removed(Needs::TRANSACTIONS)?);
        let distance =
            |ends: [LedgerSeq; 2]| ends.map(|end| end.0.abs_diff(ledger.0)).into_iter().min();
        let nearest =
            stored.ranges().iter().min_by_key(|range| distance([range.first, range.last]));
        let message = format!("ledger {ledger} is not stored");
        Ok(RpcError::invalid_params(match nearest {
            Some(range) => {
                format!(
                    "{message}: the nearest stored ledgers are {} - {}",
                    range.first, range.last
                )
            }
            None => message,
        }))
    }
}
