//! The visitor of a whole `LedgerCloseMeta`: collects its parts, which
//! [`matching`](super::matching) combines.

use std::collections::HashMap;

use crate::domain::{Hash32, NetworkId, TxHash};

use super::changes::ChangedEntries;
use super::conditions::Conditions;
use super::entry::EntryKey;
use super::envelope::{Envelope, Envelopes};
use super::events::{Events, OperationEvents};
use super::view::HeaderView;
use super::xdr::{Cursor, Part, TransactionResultCode as Code, Visit, XdrError};

/// The parts of a ledger found so far.
pub struct Ledger<'a, 'n> {
    pub header: HeaderView<'a>,
    /// XDR of the transaction set.
    pub transaction_set: &'a [u8],
    pub envelopes: Envelopes<'a, 'n>,
    /// Results in apply order.
    pub results: Vec<AppliedTransaction<'a>>,
    pub events: Events<'a>,
    pub evicted: Vec<EntryKey<'a>>,
    pub conditions: Conditions<'a>,
    /// Hash that two envelopes have.
    pub repeated: Option<TxHash>,
    /// Positions of the envelopes, once all of them have been found.
    positions: HashMap<TxHash, usize>,
}

/// Data of a transaction outside its envelope.
pub struct AppliedTransaction<'a> {
    pub hash: TxHash,
    /// Inner hash in the result of a fee bump. `None` for other transactions, and when the inner
    /// transaction was not tried.
    pub inner_hash: Option<TxHash>,
    pub successful: bool,
    pub fee_charged: i64,
    /// XDR `TransactionResult`.
    pub result: &'a [u8],
    /// XDR `TransactionMeta`.
    pub meta: &'a [u8],
    /// Position of its envelope.
    pub envelope: Option<usize>,
    pub events: OperationEvents,
    /// Number of operations in its metadata.
    pub operations: u32,
    /// XDR `ScVal`.
    pub return_value: Option<&'a [u8]>,
    /// `None` unless this is a successful smart-contract transaction.
    pub changed: Option<ChangedEntries<'a>>,
}

impl<'a> AppliedTransaction<'a> {
    /// Reads a `TransactionResultPair`; what follows it is not known yet.
    pub fn of_result(pair: &'a [u8]) -> Result<Self, XdrError> {
        let (hash, result) = pair.split_first_chunk().ok_or(XdrError::UnexpectedEnd)?;
        let cursor = &mut Cursor::new(result);
        let fee_charged = cursor.i64()?;
        let code = cursor.i32()?;
        let inner_hash = match code {
            Code::FEE_BUMP_INNER_SUCCESS | Code::FEE_BUMP_INNER_FAILED => {
                Some(Hash32(*cursor.array()?))
            }
            _ => None,
        };
        Ok(Self {
            hash: Hash32(*hash),
            inner_hash,
            successful: matches!(code, Code::SUCCESS | Code::FEE_BUMP_INNER_SUCCESS),
            fee_charged,
            result,
            meta: &[],
            envelope: None,
            events: OperationEvents::default(),
            operations: 0,
            return_value: None,
            changed: None,
        })
    }
}

impl<'a, 'n> Ledger<'a, 'n> {
    /// Creates an empty collection.
    pub fn new(network: &'n NetworkId) -> Self {
        Self {
            header: HeaderView::default(),
            transaction_set: &[],
            envelopes: Envelopes::new(network),
            results: Vec::new(),
            events: Events::default(),
            evicted: Vec::new(),
            conditions: Conditions::default(),
            repeated: None,
            positions: HashMap::new(),
        }
    }

    /// Adds the result of a transaction, whose metadata follows it.
    fn add_result(&mut self, pair: &'a [u8]) -> Result<(), XdrError> {
        let envelopes = &self.envelopes.complete;
        if self.results.is_empty() {
            self.results.reserve_exact(envelopes.len());
            self.positions.reserve(envelopes.len());
            for (position, Envelope { hash, .. }) in envelopes.iter().enumerate() {
                if self.positions.insert(*hash, position).is_some() {
                    self.repeated.get_or_insert(*hash);
                }
            }
        }
        let mut applied = AppliedTransaction::of_result(pair)?;
        applied.envelope = self.positions.get(&applied.hash).copied();
        if applied.successful
            && applied.envelope.is_some_and(|position| envelopes[position].contracts.is_some())
        {
            applied.changed = Some(ChangedEntries::default());
        }
        self.results.push(applied);
        Ok(())
    }

    /// Completes the metadata of the current transaction.
    fn add_meta(&mut self, meta: &'a [u8]) {
        let events = self.events.end_transaction();
        if let Some(applied) = self.results.last_mut() {
            (applied.meta, applied.events) = (meta, events);
        }
    }
}

impl<'a> Visit<'a> for Ledger<'a, '_> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        self.header.visit(part, xdr)?;
        self.envelopes.visit(part, xdr)?;
        self.events.visit(part, xdr)?;
        self.conditions.visit(part, xdr)?;
        match part {
            Part::OperationChange => {
                if let Some(AppliedTransaction { changed: Some(changed), .. }) =
                    self.results.last_mut()
                {
                    changed.visit(part, xdr)?;
                }
            }
            Part::Header => self.events.ledger = self.header.sequence,
            Part::TransactionSetV0 | Part::TransactionSetV1 => self.transaction_set = xdr,
            Part::Outcome => self.add_result(xdr)?,
            Part::Operations | Part::OperationsV2 => {
                if let Some(applied) = self.results.last_mut() {
                    applied.operations = Cursor::new(xdr).u32()?;
                }
            }
            Part::ReturnValue => {
                if let Some(applied) = self.results.last_mut() {
                    applied.return_value = Some(xdr);
                }
            }
            Part::Meta => self.add_meta(xdr),
            Part::EvictedKey => self.evicted.extend(EntryKey::from_ledger_key(xdr)),
            _ => {}
        }
        Ok(())
    }
}
