//! Index from hashes to ledgers for all transactions whose ledger is kept in its raw form. The
//! store itself only indexes smart-contract transactions and those with stored events;
//! `getTransaction` has to find all others as well.

use std::ops::ControlFlow;

use super::transaction_places::{self, HashPrefix, hash_prefixes};
use super::{Rpc, RpcError};
use orrery_ledger::decode::TransactionParts;
use orrery_ledger::domain::{LedgerSeq, TxHash};
use orrery_store::{
    ConsumerEffects, ConsumerSpec, FedLedger, Gathers, LedgerConsumer, Needs, RowBounds,
    StartPosition, Store, StoreError, Table,
};

/// Name of the consumer in the feed.
pub const CONSUMER: &str = "transaction_hashes";

/// Ledgers by the first bytes of outer and inner hashes.
const HASHES: Table<(HashPrefix, LedgerSeq), ()> = Table::new("hashes").skip_damaged();
/// The same bytes of all hashes of a ledger, to remove them together with the ledger, and where its
/// transactions are in its raw form ([`transaction_places`]).
const LEDGERS: Table<LedgerSeq, Vec<u8>> = Table::new("ledgers").skip_damaged();

/// Maximum number of newest ledgers that are searched for a transaction while they are not indexed.
const MAX_UNINDEXED_LEDGERS: u64 = 16;
/// Number of old ledgers whose rows are removed per new ledger: more than one, so that removal
/// keeps up.
const REMOVED_AT_ONCE: usize = 4;

/// The row of a ledger, gathered while it is prepared.
const ROW: Gathers = Gathers { consumer: CONSUMER, from: transaction_places::encode };

/// The feed consumer that maintains the index.
#[derive(Debug, Clone, Copy, Default)]
pub struct TransactionHashes;

impl LedgerConsumer for TransactionHashes {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: &[HASHES.family, LEDGERS.family],
            // Needs nothing: a transaction whose raw ledger is missing could not be returned
            // either.
            needs: Needs::default(),
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(ROW)
    }

    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        remove_old(store, effects)?;
        let Some(row) = store.gathered(&ROW, ledger.ledger)? else { return Ok(()) };
        for prefix in hash_prefixes(&row) {
            HASHES.put(effects, &(*prefix, ledger.ledger), &())?;
        }
        LEDGERS.put(effects, &ledger.ledger, &row)
    }

    fn cannot_be_rebuilt(&self) -> Option<&'static str> {
        Some("it is known of ledgers alone whose raw form is still stored")
    }
}

/// Removes the rows of the oldest ledgers whose raw form is no longer stored.
fn remove_old(store: &Store, effects: &mut ConsumerEffects<'_>) -> Result<(), StoreError> {
    let first = store.first_raw()?;
    let mut old = Vec::new();
    LEDGERS.scan_all(effects, None, |ledger, row| {
        let is_old = first.is_none_or(|first| ledger < first);
        if !is_old || old.len() == REMOVED_AT_ONCE {
            return Ok(ControlFlow::Break(()));
        }
        old.push((ledger, row));
        Ok(ControlFlow::Continue(()))
    })?;
    for (ledger, row) in old {
        for prefix in hash_prefixes(&row) {
            HASHES.delete(effects, &(*prefix, ledger))?;
        }
        LEDGERS.delete(effects, &ledger)?;
    }
    Ok(())
}

/// Where a transaction may be.
pub(super) struct Candidates {
    /// Ledgers that may hold it, the likeliest first.
    pub ledgers: Vec<LedgerSeq>,
    /// Number of other stored ledgers that may hold it, because they are not indexed yet.
    pub unindexed: u64,
}

impl Rpc {
    /// Returns the ledgers that may hold the transaction with this hash. They include the newest
    /// ledgers that the consumer has not processed yet, so that a transaction of a new ledger is
    /// found at once.
    pub(super) fn ledgers_of_transaction(&self, hash: &TxHash) -> Result<Candidates, RpcError> {
        let seen = self.store.consumer(CONSUMER).map(|consumer| consumer.place);
        let newest = self.store.last_place();
        let searched_from = newest.saturating_sub(MAX_UNINDEXED_LEDGERS);
        let unseen_from = seen.unwrap_or(0).max(searched_from);
        let unseen = self
            .store
            .fed_after(unseen_from, usize::try_from(MAX_UNINDEXED_LEDGERS).unwrap_or(usize::MAX));
        let mut ledgers: Vec<_> = unseen.into_iter().rev().map(|fed| fed.ledger).collect();
        if seen.is_some() {
            let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
            HASHES.scan(&view, &transaction_places::prefix(hash), None, |(_, ledger), ()| {
                ledgers.push(ledger);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let unindexed = seen.map_or(0, |seen| searched_from.saturating_sub(seen));
        Ok(Candidates { ledgers, unindexed })
    }

    /// Returns where the transactions of a ledger are that may have this hash, with their application
    /// order: none where that is not recorded.
    pub(super) fn places_of_transaction(
        &self,
        ledger: LedgerSeq,
        hash: &TxHash,
    ) -> Result<Vec<(u32, TransactionParts)>, RpcError> {
        if self.store.consumer(CONSUMER).is_none() {
            return Ok(Vec::new());
        }
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let row = LEDGERS.get(&view, &ledger)?;
        Ok(row.map(|row| transaction_places::find(&row, hash)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orrery_testkit::sandbox::sandbox_of;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::super::transaction_places::PREFIX_BYTES;
    use super::*;
    use crate::{CallLimits, Otherwise, Params, Settings};
    use orrery_ledger::decode::decode;
    use orrery_ledger::domain::Network;
    use orrery_store::{Durability, Extensions, IndexOptions, RowCodec};

    /// Each ledger that may hold a transaction is decoded, which takes milliseconds.
    #[test]
    fn only_ledgers_with_the_hash_are_decoded() {
        let network = Network::from_passphrase("transaction hashes");
        let mut sandbox = sandbox_of(network.clone(), 5, 1..=4);
        let directory = tempfile::tempdir().unwrap();
        let extensions = Extensions::for_consumers(&[Arc::new(TransactionHashes)]);
        let store = Store::open_with(directory.path(), Some(&network), extensions).unwrap();
        let store = Arc::new(store);
        let options = IndexOptions { raw_ledgers: true, ..IndexOptions::default() };
        let mut hashes = Vec::new();
        for _ in 0..30 {
            let xdr = sandbox.next_ledger().unwrap();
            let view = decode(&xdr, network.id()).unwrap();
            let sequence = view.header.sequence;
            hashes.extend(view.transactions.iter().map(|it| (it.hash, sequence)));
            let prepared = store.prepare(&view, None, &options).unwrap();
            store.commit(prepared, Durability::Synced).unwrap();
        }
        let rpc = Rpc::new(Arc::clone(&store), Settings::default(), Arc::new(|| 0));
        let is_found = |hash: &TxHash| {
            let params = to_raw_value(&json!({ "hash": hash.to_string() })).unwrap();
            match rpc.call("getTransaction", Params(Some(&params)), CallLimits::UNLIMITED) {
                Ok(answer) => {
                    assert!(!answer.get().contains("NOT_FOUND"), "{hash} is stored");
                    true
                }
                Err(error) => {
                    assert_eq!(error.otherwise, Some(Otherwise::Consumer(CONSUMER)), "{error}");
                    false
                }
            }
        };
        let found = hashes.iter().filter(|(hash, _)| is_found(hash)).count();
        assert!(0 < found && found < hashes.len(), "{found} of {}", hashes.len());
        while store.step(&TransactionHashes).unwrap() {}
        assert!(hashes.iter().all(|(hash, _)| is_found(hash)));
        let ledgers = |hash: [u8; 32]| rpc.ledgers_of_transaction(&hash.into()).unwrap().ledgers;
        assert!(hashes.len() > 30);
        for (hash, sequence) in hashes {
            assert_eq!(ledgers(*hash.as_bytes()), [sequence]);
            let places = rpc.places_of_transaction(sequence, &hash).unwrap();
            let place = places.first().map(|(application_order, _)| *application_order);
            let alone = rpc.find_by_place(sequence, &hash, |it| Ok(it.application_order));
            assert_eq!(alone.unwrap(), place, "{hash} is read without its ledger");
            assert_eq!(places.len(), 1);
            for (changed, expected) in [(PREFIX_BYTES - 1, vec![]), (PREFIX_BYTES, vec![sequence])]
            {
                let mut other = *hash.as_bytes();
                other[changed] ^= 1;
                assert_eq!(ledgers(other), expected);
            }
        }
    }

    /// Stores of earlier versions have these bytes.
    #[test]
    fn stored_bytes_are_as_ever() {
        let key: (HashPrefix, _) = ([1, 2, 3, 4, 5, 6, 7, 8], LedgerSeq(258));
        assert_eq!(key.encode(), [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 2]);
    }
}
