//! Closes a ledger: builds the header that links it to the previous one, and the complete metadata.

use std::sync::Arc;

use orrery_ledger::domain::{is_temporary, ttl_key};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    EnvelopeType, ExtensionPoint, Hash, LedgerCloseMeta, LedgerCloseMetaExt, LedgerCloseMetaExtV1,
    LedgerCloseMetaV2, LedgerCloseValueSignature, LedgerHeader, LedgerHeaderExt,
    LedgerHeaderHistoryEntry, LedgerHeaderHistoryEntryExt, LedgerKey, Limits, Signature,
    StellarValue, StellarValueExt, StellarValueProposedMsValue, StellarValueProposedValue,
    StellarValueSignedMsValue, TimePoint, TimePointMs, TransactionResultMetaV1,
    TransactionResultSet, WriteXdr,
};

use super::actors::Actor;
use super::apply::{AppliedSet, apply_set};
use super::buckets::Buckets;
use super::envelope::SignedTransaction;
use super::error::Result;
use super::fees::{BASE_FEE, BASE_RESERVE, RENT_FEE_PER_1KB};
use super::host::PROTOCOL;
use super::open_ledger::OpenLedger;
use super::settings;
use super::state::LedgerState;
use super::tx_set::TransactionSet;

/// Total coins of a network, in stroops: the balance of the root account at genesis.
pub(super) const TOTAL_COINS: i64 = 1_000_000_000_000_000_000;
/// Maximum number of operations in a ledger, as its header states.
const MAX_TX_SET_SIZE: u32 = 1_000;
/// Intervals, in ledgers, at which the entries of the skip list advance.
const SKIP_INTERVALS: [u32; 4] = [50, 5_000, 50_000, 500_000];

/// A closed ledger's header and its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) header: LedgerHeader,
    pub(super) hash: [u8; 32],
}

impl Tip {
    pub(super) fn new(header: LedgerHeader) -> Result<Self> {
        let hash = Sha256::digest(header.to_xdr(Limits::none())?).into();
        Ok(Self { header, hash })
    }

    /// Returns the header as metadata has it.
    fn history_entry(&self) -> LedgerHeaderHistoryEntry {
        LedgerHeaderHistoryEntry {
            hash: Hash(self.hash),
            header: self.header.clone(),
            ext: LedgerHeaderHistoryEntryExt::V0,
        }
    }

    /// Returns the header of ledger 1, which no source ever serves.
    pub(super) fn genesis(close_time: u64) -> Result<Self> {
        Self::new(LedgerHeader {
            ledger_version: PROTOCOL,
            previous_ledger_hash: Hash::default(),
            scp_value: StellarValue {
                tx_set_hash: Hash::default(),
                close_time: TimePoint(close_time),
                upgrades: Default::default(),
                ext: StellarValueExt::Basic,
            },
            tx_set_result_hash: Hash::default(),
            bucket_list_hash: Hash::default(),
            ledger_seq: 1,
            total_coins: TOTAL_COINS,
            fee_pool: 0,
            inflation_seq: 0,
            id_pool: 0,
            base_fee: BASE_FEE,
            base_reserve: BASE_RESERVE,
            max_tx_set_size: MAX_TX_SET_SIZE,
            skip_list: Default::default(),
            ext: LedgerHeaderExt::V0,
        })
    }
}

/// Applies `transactions` on top of `previous` and returns the new tip with the ledger's metadata.
pub(super) fn close_ledger(
    previous: &Tip,
    state: &mut Arc<LedgerState>,
    buckets: &mut Option<Buckets>,
    ledger: &OpenLedger<'_>,
    transactions: Vec<SignedTransaction>,
    validator: &Actor,
) -> Result<(Tip, LedgerCloseMeta)> {
    let proposed = TransactionSet::new(Hash(previous.hash), transactions)?;
    let proposed_hash = proposed.hash;
    let set = if ledger.dropped {
        TransactionSet::new(Hash(previous.hash), Vec::new())?
    } else {
        proposed
    };
    let tx_set = set.set.clone();
    // Tells which entries are new to the buckets.
    let before = buckets.is_some().then(|| Arc::clone(state));
    let AppliedSet { transactions, fees } = apply_set(state, ledger, set)?;

    let state = Arc::make_mut(state);
    let mut evicted_keys = evict(state, ledger.sequence)?;
    let mut header = previous.header.clone();
    header.previous_ledger_hash = Hash(previous.hash);
    header.scp_value = agreed_value(previous, ledger, proposed_hash, validator)?;
    header.tx_set_result_hash = hash_of_results(&transactions)?;
    if let (Some(buckets), Some(before)) = (buckets, before) {
        evicted_keys.extend(buckets.close(ledger.sequence, &before, state)?);
        header.bucket_list_hash = buckets.hash();
        state.seal()?;
    } else {
        header.bucket_list_hash = commit(&previous.header.bucket_list_hash, &state.seal()?);
    }
    header.ledger_seq = ledger.sequence;
    header.fee_pool += fees;
    advance_skip_list(&mut header);
    let tip = Tip::new(header)?;

    let meta = LedgerCloseMeta::V2(LedgerCloseMetaV2 {
        ext: LedgerCloseMetaExt::V1(LedgerCloseMetaExtV1 {
            ext: ExtensionPoint::V0,
            soroban_fee_write1_kb: RENT_FEE_PER_1KB,
        }),
        ledger_header: tip.history_entry(),
        tx_set,
        tx_processing: transactions.try_into()?,
        upgrades_processing: settings::upgrades(ledger.sequence)?,
        scp_info: Default::default(),
        total_byte_size_of_live_soroban_state: state.contract_bytes(),
        evicted_keys: evicted_keys.try_into()?,
    });
    Ok((tip, meta))
}

fn hash_of_results(transactions: &[TransactionResultMetaV1]) -> Result<Hash> {
    let results: Vec<_> = transactions.iter().map(|one| one.result.clone()).collect();
    let set = TransactionResultSet { results: results.try_into()? };
    Ok(Hash(Sha256::digest(set.to_xdr(Limits::none())?).into()))
}

/// Removes temporary entries that have expired. Returns the key of each after that of its TTL
/// entry.
fn evict(state: &mut LedgerState, sequence: u32) -> Result<Vec<LedgerKey>> {
    let mut expired = Vec::new();
    for (key, _) in state.entries().filter(|(key, _)| is_temporary(key)) {
        if state.live_until(key)?.is_none_or(|last| last < sequence) {
            expired.push(key.clone());
        }
    }
    let mut evicted = Vec::new();
    for key in expired {
        let ttl = ttl_key(&key)?;
        state.remove(&ttl)?;
        state.remove(&key)?;
        evicted.extend([ttl, key]);
    }
    Ok(evicted)
}

/// Builds the value that the validators agreed on, signed by the validator that proposed it.
fn agreed_value(
    previous: &Tip,
    ledger: &OpenLedger<'_>,
    proposed_hash: [u8; 32],
    validator: &Actor,
) -> Result<StellarValue> {
    let mut payload = ledger.network.0.to_vec();
    payload.extend((EnvelopeType::Scpvalue as i32).to_be_bytes());
    payload.extend(proposed_hash);
    payload.extend(ledger.close_time.to_be_bytes());
    payload.extend(ledger.close_time_ms.iter().flat_map(|time| time.to_be_bytes()));
    let lc_value_signature = LedgerCloseValueSignature {
        node_id: validator.node(),
        signature: Signature(validator.sign(&payload).try_into()?),
    };
    let tx_set_hash = Hash(if ledger.dropped { [0; 32] } else { proposed_hash });
    let proposed_set_hash = Hash(proposed_hash);
    let previous_ledger_hash = Hash(previous.hash);
    let previous_ledger_version = previous.header.ledger_version;
    let ext = match (ledger.dropped, ledger.close_time_ms.map(TimePointMs)) {
        (false, None) => StellarValueExt::Signed(lc_value_signature),
        (false, Some(close_time_ms)) => StellarValueExt::SignedMs(StellarValueSignedMsValue {
            close_time_ms,
            lc_value_signature,
        }),
        (true, None) => StellarValueExt::EmptyTxSet(StellarValueProposedValue {
            tx_set_hash: proposed_set_hash,
            previous_ledger_hash,
            previous_ledger_version,
            lc_value_signature,
        }),
        (true, Some(close_time_ms)) => StellarValueExt::EmptyTxSetMs(StellarValueProposedMsValue {
            close_time_ms,
            tx_set_hash: proposed_set_hash,
            previous_ledger_hash,
            previous_ledger_version,
            lc_value_signature,
        }),
    };
    let close_time = TimePoint(ledger.close_time);
    Ok(StellarValue { tx_set_hash, close_time, upgrades: Default::default(), ext })
}

/// Returns the substitute for the bucket list hash of a sandbox that keeps no buckets: a chain of
/// digests over all changes.
fn commit(previous: &Hash, changes: &[u8; 32]) -> Hash {
    let mut digest = Sha256::new();
    digest.update(previous.0);
    digest.update(changes);
    Hash(digest.finalize().into())
}

/// Inserts the bucket list hash into the skip list every 50 ledgers, and moves older ones up.
fn advance_skip_list(header: &mut LedgerHeader) {
    let (mut depth, mut offset) = (0, 0);
    for interval in SKIP_INTERVALS {
        let place = header.ledger_seq.saturating_sub(offset);
        if place == 0 || !place.is_multiple_of(interval) {
            break;
        }
        depth += 1;
        offset += interval;
    }
    if depth == 0 {
        return;
    }
    header.skip_list[..depth].rotate_right(1);
    header.skip_list[0] = header.bucket_list_hash.clone();
}
