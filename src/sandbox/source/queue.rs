//! Transactions that clients have submitted and that wait for the next ledger, one for each account,
//! with the outcomes that the queue of a node has.

use std::collections::VecDeque;

use orrery_ledger::domain::Submission;
use stellar_xdr::{
    AccountId, MuxedAccount, PublicKey, TransactionEnvelope, TransactionExt, TransactionResult,
    TransactionResultExt, TransactionResultResult,
};

/// Maximum number of queued transactions, and of their bytes in total.
const MAX_WAITING: usize = 200;
const MAX_WAITING_BYTES: usize = 8 << 20;
/// Maximum number of submitted transactions in one ledger.
const MAX_TAKEN: usize = 50;
/// Maximum number of instructions that those may declare in total: four times the maximum of one
/// transaction.
const MAX_INSTRUCTIONS: u64 = 400_000_000;
/// How many times the fee of a waiting transaction another must bid to take its place, as nodes
/// require it.
const REPLACEMENT_FACTOR: i128 = 10;

/// Transactions that wait for the next ledger.
#[derive(Default)]
pub(super) struct TransactionQueue {
    transactions: VecDeque<Transaction>,
    /// Those that the ledger takes which is being made.
    applying: Vec<Transaction>,
    /// Bytes of those that wait.
    bytes: usize,
}

/// A submitted transaction.
pub(super) struct Transaction {
    pub(super) hash: [u8; 32],
    pub(super) parts: Parts,
    pub(super) bytes: usize,
    pub(super) envelope: TransactionEnvelope,
}

/// What decides about a transaction's place in the queue.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    source: MuxedAccount,
    sequence: i64,
    instructions: u64,
    is_fee_bump: bool,
    /// Fee that is bid for inclusion in a ledger, without that for resources.
    bid: i64,
    /// Number of operations that the bid is for.
    operations: i64,
}

impl Parts {
    /// Returns the bid with which a transaction of so many operations replaces this one.
    fn replacing_bid(&self, operations: i64) -> i64 {
        let (bid, own) = (i128::from(self.bid), i128::from(self.operations.max(1)));
        let least = (REPLACEMENT_FACTOR * bid * i128::from(operations) + own - 1) / own;
        i64::try_from(least).unwrap_or(i64::MAX)
    }
}

impl TransactionQueue {
    /// Takes the transactions of the next ledger; the rest waits for later ledgers.
    pub(super) fn take(&mut self) -> Vec<TransactionEnvelope> {
        let mut taken = Vec::new();
        let mut instructions = 0;
        while taken.len() < MAX_TAKEN
            && let Some(next) = self.transactions.front()
            && (taken.is_empty() || instructions + next.parts.instructions <= MAX_INSTRUCTIONS)
            && let Some(next) = self.transactions.pop_front()
        {
            instructions += next.parts.instructions;
            self.bytes -= next.bytes;
            taken.push(next.envelope.clone());
            self.applying.push(next);
        }
        taken
    }

    /// Forgets the transactions that were taken: their ledger is published.
    pub(super) fn forget_taken(&mut self) {
        self.applying.clear();
    }

    /// Queues a transaction, as the queue of a node does: one for each account, whose place only a
    /// fee bump of the same sequence number with a much higher bid takes. `checked` is whether it
    /// could be applied in the next ledger.
    pub(super) fn submit(
        &mut self,
        transaction: Transaction,
        checked: Result<(), TransactionResult>,
    ) -> Submission {
        let mut all = self.transactions.iter().chain(&self.applying);
        if all.any(|other| other.hash == transaction.hash) {
            return Submission::Duplicate;
        }
        let own = &transaction.parts;
        let is_of_account = |other: &&Transaction| is_same(&other.parts.source, &own.source);
        let other = self.transactions.iter().chain(&self.applying).find(is_of_account);
        if let Some(other) = other {
            // An older sequence number can never be applied; any other may, later.
            if own.sequence >= other.parts.sequence {
                return self.replace(transaction, checked);
            }
        }
        if let Err(result) = checked {
            return invalid(result);
        }
        if self.is_full_for(transaction.bytes) {
            return Submission::TryAgainLater;
        }
        self.bytes += transaction.bytes;
        self.transactions.push_back(transaction);
        Submission::Pending
    }

    fn is_full_for(&self, bytes: usize) -> bool {
        self.transactions.len() >= MAX_WAITING || self.bytes + bytes > MAX_WAITING_BYTES
    }

    /// Puts a transaction in the place of the waiting one of its account, if it may have it.
    fn replace(
        &mut self,
        transaction: Transaction,
        checked: Result<(), TransactionResult>,
    ) -> Submission {
        let own = &transaction.parts;
        let mut waiting = self.transactions.iter_mut();
        let other = waiting.find(|other| is_same(&other.parts.source, &own.source));
        // One that a ledger is taking already keeps its place.
        let Some(other) = other.filter(|other| other.parts.sequence == own.sequence) else {
            return Submission::TryAgainLater;
        };
        if !own.is_fee_bump {
            return Submission::TryAgainLater;
        }
        let least = other.parts.replacing_bid(own.operations);
        if own.bid < least {
            return invalid(TransactionResult {
                fee_charged: least,
                result: TransactionResultResult::TxInsufficientFee,
                ext: TransactionResultExt::V0,
            });
        }
        if let Err(result) = checked {
            return invalid(result);
        }
        self.bytes = self.bytes - other.bytes + transaction.bytes;
        *other = transaction;
        Submission::Pending
    }
}

fn invalid(result: TransactionResult) -> Submission {
    Submission::Invalid { result: Box::new(result), events: Vec::new() }
}

/// Returns what decides about a transaction's place; `None` for an envelope of version 0.
pub(super) fn parts(envelope: &TransactionEnvelope) -> Option<Parts> {
    let (inner, bump) = match envelope {
        TransactionEnvelope::Tx(inner) => (inner, None),
        TransactionEnvelope::TxFeeBump(bump) => {
            let stellar_xdr::FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
            (inner, Some(bump.tx.fee))
        }
        TransactionEnvelope::TxV0(_) => return None,
    };
    let (instructions, resource_fee) = match &inner.tx.ext {
        TransactionExt::V1(data) => (u64::from(data.resources.instructions), data.resource_fee),
        TransactionExt::V0 => (0, 0),
    };
    // A fee bump pays for one operation more (CAP-15).
    let operations = inner.tx.operations.len() + usize::from(bump.is_some());
    Some(Parts {
        source: inner.tx.source_account.clone(),
        sequence: inner.tx.seq_num.0,
        instructions,
        is_fee_bump: bump.is_some(),
        bid: bump.unwrap_or(i64::from(inner.tx.fee)).saturating_sub(resource_fee),
        operations: i64::try_from(operations).unwrap_or(i64::MAX),
    })
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
    use orrery_ledger::domain::Submission;
    use stellar_xdr::{
        BumpSequenceOp, FeeBumpTransaction, FeeBumpTransactionEnvelope, FeeBumpTransactionExt,
        FeeBumpTransactionInnerTx, Memo, Operation, OperationBody, Preconditions, SequenceNumber,
        TransactionV1Envelope, Uint256,
    };

    use super::*;

    /// A transaction of one account, or its fee bump.
    fn transaction(sequence: i64, bid: i64, bumped: bool, memo: u64) -> Transaction {
        let source = MuxedAccount::Ed25519(Uint256([1; 32]));
        let bump = Operation {
            source_account: None,
            body: OperationBody::BumpSequence(BumpSequenceOp { bump_to: SequenceNumber(0) }),
        };
        let tx = stellar_xdr::Transaction {
            source_account: source.clone(),
            fee: if bumped { 100 } else { u32::try_from(bid).unwrap() },
            seq_num: SequenceNumber(sequence),
            cond: Preconditions::None,
            memo: Memo::Id(memo),
            operations: vec![bump].try_into().unwrap(),
            ext: TransactionExt::V0,
        };
        let inner = TransactionV1Envelope { tx, signatures: Default::default() };
        let envelope = if bumped {
            TransactionEnvelope::TxFeeBump(FeeBumpTransactionEnvelope {
                tx: FeeBumpTransaction {
                    fee_source: source,
                    fee: bid,
                    inner_tx: FeeBumpTransactionInnerTx::Tx(inner),
                    ext: FeeBumpTransactionExt::V0,
                },
                signatures: Default::default(),
            })
        } else {
            TransactionEnvelope::Tx(inner)
        };
        let mut hash = [0; 32];
        for (place, number) in [sequence, bid, i64::from(bumped), memo as i64].iter().enumerate() {
            hash[place * 8..][..8].copy_from_slice(&number.to_be_bytes());
        }
        Transaction { hash, parts: parts(&envelope).unwrap(), bytes: 100, envelope }
    }

    fn bad(result: TransactionResultResult) -> TransactionResult {
        TransactionResult { fee_charged: 0, result, ext: TransactionResultExt::V0 }
    }

    #[test]
    fn a_waiting_transaction_keeps_its_place_as_in_the_queue_of_a_node() {
        use Submission::{Duplicate, Invalid, Pending, TryAgainLater};

        let mut waiting = TransactionQueue::default();
        let bad_sequence = || Err(bad(TransactionResultResult::TxBadSeq));
        assert_eq!(waiting.submit(transaction(8, 100, false, 0), Ok(())), Pending);
        assert_eq!(waiting.submit(transaction(8, 100, false, 0), Ok(())), Duplicate);
        // The next sequence number, and other content under the same one, may be sent again later.
        assert_eq!(waiting.submit(transaction(9, 100, false, 0), bad_sequence()), TryAgainLater);
        assert_eq!(waiting.submit(transaction(8, 100, false, 1), Ok(())), TryAgainLater);
        assert_eq!(waiting.submit(transaction(8, 9_000, false, 2), Ok(())), TryAgainLater);
        assert_eq!(waiting.submit(transaction(9, 9_000, true, 0), bad_sequence()), TryAgainLater);
        // A used one never can be.
        let refused = bad(TransactionResultResult::TxBadSeq);
        assert_eq!(waiting.submit(transaction(7, 100, false, 0), bad_sequence()), invalid(refused));
        // A fee bump replaces it if it bids ten times as much for each operation.
        let Invalid { result: refused, .. } =
            waiting.submit(transaction(8, 1_999, true, 0), Ok(()))
        else {
            panic!("it bids too little")
        };
        assert_eq!(refused.result, TransactionResultResult::TxInsufficientFee);
        assert_eq!(refused.fee_charged, 2_000);
        let refused = bad(TransactionResultResult::TxBadSeq);
        let refusal = waiting.submit(transaction(8, 2_000, true, 9), bad_sequence());
        assert_eq!(refusal, invalid(refused));
        assert_eq!(waiting.submit(transaction(8, 2_000, true, 0), Ok(())), Pending);
        assert_eq!((waiting.transactions.len(), waiting.bytes), (1, 100));
        assert!(waiting.transactions[0].parts.is_fee_bump);
    }

    #[test]
    fn a_transaction_keeps_its_place_while_its_ledger_is_made() {
        let mut queue = TransactionQueue::default();
        let submit = |queue: &mut TransactionQueue, sequence, memo| {
            queue.submit(transaction(sequence, 100, false, memo), Ok(()))
        };
        assert_eq!(submit(&mut queue, 8, 0), Submission::Pending);
        assert_eq!(queue.take().len(), 1);
        assert_eq!(submit(&mut queue, 8, 0), Submission::Duplicate);
        assert_eq!(submit(&mut queue, 8, 1), Submission::TryAgainLater);
        queue.forget_taken();
        assert_eq!(submit(&mut queue, 9, 0), Submission::Pending);
    }
}
