//! The transaction set of a ledger: its phases, stages and clusters, its hash and its apply order.
//!
//! The order inside the set and the order of application differ, as on the public network: the set
//! is sorted by hash, and the order of application shuffles that by the set's own hash.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use stellar_xdr::{
    DependentTxCluster, GeneralizedTransactionSet, Hash, LedgerKey, Limits,
    ParallelTxExecutionStage, ParallelTxsComponent, SorobanResources, TransactionPhase,
    TransactionSetV1, TxSetComponent, TxSetComponentTxsMaybeDiscountedFee, VecM, WriteXdr,
};

use super::envelope::SignedTransaction;
use super::error::Result;
use super::fees::BASE_FEE;

/// Maximum number of consecutive stages in a ledger.
const MAX_STAGES: usize = 3;

/// Transactions that touch the same entries and therefore run one after the other.
type Cluster = Vec<SignedTransaction>;
/// Clusters that may run in parallel.
type Stage = Vec<Cluster>;

/// A transaction set and the order in which its transactions are applied.
pub(super) struct TransactionSet {
    pub(super) set: GeneralizedTransactionSet,
    pub(super) hash: [u8; 32],
    /// Classic transactions, applied before all others.
    pub(super) classic: Vec<SignedTransaction>,
    /// Smart-contract transactions: stage after stage, cluster after cluster.
    pub(super) soroban: Vec<SignedTransaction>,
}

impl TransactionSet {
    /// Builds the set of one ledger's transactions, at most one per source account.
    pub(super) fn new(
        previous_ledger_hash: Hash,
        transactions: Vec<SignedTransaction>,
    ) -> Result<Self> {
        let (mut classic, mut soroban) = (Vec::new(), Vec::new());
        for transaction in transactions {
            match transaction.soroban()? {
                Some(_) => soroban.push(transaction),
                None => classic.push(transaction),
            }
        }
        classic.sort_by_key(|transaction| transaction.content_hash);
        soroban.sort_by_key(|transaction| transaction.content_hash);
        let mut stages = into_stages(soroban)?;
        let phases = vec![classic_phase(&classic)?, soroban_phase(&stages)?];
        let set = GeneralizedTransactionSet::V1(TransactionSetV1 {
            previous_ledger_hash,
            phases: phases.try_into()?,
        });
        let hash = Sha256::digest(set.to_xdr(Limits::none())?).into();

        let shuffled = |transaction: &SignedTransaction| xor(transaction.content_hash, hash);
        classic.sort_by_key(shuffled);
        for cluster in stages.iter_mut().flatten() {
            cluster.sort_by_key(shuffled);
        }
        stages.sort_by_key(|stage| stage.iter().flatten().next().map(shuffled));
        let soroban = stages.into_iter().flatten().flatten().collect();
        Ok(Self { set, hash, classic, soroban })
    }
}

fn xor(mut left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
    for (left, right) in left.iter_mut().zip(right) {
        *left ^= right;
    }
    left
}

fn classic_phase(transactions: &[SignedTransaction]) -> Result<TransactionPhase> {
    if transactions.is_empty() {
        return Ok(TransactionPhase::V0(VecM::default()));
    }
    let component =
        TxSetComponent::TxsetCompTxsMaybeDiscountedFee(TxSetComponentTxsMaybeDiscountedFee {
            base_fee: Some(i64::from(BASE_FEE)),
            txs: envelopes(transactions)?,
        });
    Ok(TransactionPhase::V0(vec![component].try_into()?))
}

fn soroban_phase(stages: &[Stage]) -> Result<TransactionPhase> {
    let mut execution_stages = Vec::new();
    for stage in stages {
        let clusters = stage
            .iter()
            .map(|cluster| Ok(DependentTxCluster(envelopes(cluster)?)))
            .collect::<Result<Vec<_>>>()?;
        execution_stages.push(ParallelTxExecutionStage(clusters.try_into()?));
    }
    Ok(TransactionPhase::V1(ParallelTxsComponent {
        base_fee: (!stages.is_empty()).then_some(i64::from(BASE_FEE)),
        execution_stages: execution_stages.try_into()?,
    }))
}

fn envelopes(transactions: &[SignedTransaction]) -> Result<VecM<stellar_xdr::TransactionEnvelope>> {
    let envelopes: Vec<_> = transactions.iter().map(|signed| signed.envelope.clone()).collect();
    Ok(envelopes.try_into()?)
}

/// Distributes transactions, sorted by hash, round-robin over stages, and each stage over clusters.
/// Every level of the result is sorted by hash.
fn into_stages(transactions: Vec<SignedTransaction>) -> Result<Vec<Stage>> {
    let count = transactions.len().div_ceil(2).min(MAX_STAGES);
    let mut dealt: Vec<Vec<SignedTransaction>> = vec![Vec::new(); count];
    for (index, transaction) in transactions.into_iter().enumerate() {
        dealt[index % count].push(transaction);
    }
    dealt.into_iter().map(into_clusters).collect()
}

/// Joins transactions whose footprints conflict, directly or transitively, into clusters.
fn into_clusters(transactions: Vec<SignedTransaction>) -> Result<Stage> {
    let mut clusters: Vec<(Touched, Cluster)> = Vec::new();
    for transaction in transactions {
        let mut touched = Touched::default();
        if let Some(data) = transaction.soroban()? {
            touched.add(&data.resources);
        }
        let mut cluster = Vec::new();
        let (conflicting, free) =
            clusters.into_iter().partition(|(other, _)| touched.conflicts(other));
        clusters = free;
        for (other, members) in conflicting {
            touched.merge(other);
            cluster.extend(members);
        }
        cluster.push(transaction);
        clusters.push((touched, cluster));
    }
    let mut stage: Stage = clusters.into_iter().map(|(_, cluster)| cluster).collect();
    for cluster in &mut stage {
        cluster.sort_by_key(|transaction| transaction.content_hash);
    }
    stage.sort_by_key(|cluster| cluster.first().map(|transaction| transaction.content_hash));
    Ok(stage)
}

/// Entries that a cluster reads and writes.
#[derive(Default)]
struct Touched {
    read: BTreeSet<LedgerKey>,
    written: BTreeSet<LedgerKey>,
}

impl Touched {
    fn add(&mut self, resources: &SorobanResources) {
        self.read.extend(resources.footprint.read_only.iter().cloned());
        self.written.extend(resources.footprint.read_write.iter().cloned());
    }

    fn merge(&mut self, other: Self) {
        self.read.extend(other.read);
        self.written.extend(other.written);
    }

    fn conflicts(&self, other: &Self) -> bool {
        !self.written.is_disjoint(&other.written)
            || !self.written.is_disjoint(&other.read)
            || !self.read.is_disjoint(&other.written)
    }
}
