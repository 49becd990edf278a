//! What a ledger and its transactions say about executables: which transactions have to be read, and
//! what the metadata of one says. Does not depend on how it is stored.

use std::collections::BTreeMap;

use stellar_xdr::LedgerEntryData;

pub use super::rows::Change;
use super::updates::is_update;
pub use super::value::id_of;
use super::value::{Before, Executable, entry};
use orrery_ledger::decode::{
    ChangeKind, ChangedEntry, EntryChange, EntryKind, EventType, LedgerView, TransactionChanges,
    XdrError, changed_entries, transaction_changes,
};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};

/// A transaction that may say something new about executables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mention {
    /// 1-based position in apply order.
    pub application_order: u32,
    /// A contract whose instance the transaction wrote without changing its executable; `None` if it
    /// may have changed executables.
    pub written: Option<ContractId>,
}

/// Length of a mention in [`encode`]'s form, in bytes.
const MENTION: usize = 4 + 1 + size_of::<ContractId>();

/// Returns the mentions of a ledger, in apply order, in the form for [`decode`].
pub fn mentions(ledger: &LedgerView<'_>) -> Vec<u8> {
    let mut found = Vec::new();
    for transaction in ledger.transactions.iter().filter(|it| it.successful) {
        let order = transaction.application_order;
        let updates = ledger.events[transaction.operation_events.clone()].iter().any(|event| {
            event.event_type == EventType::System && is_update(ledger.topics(event).iter().copied())
        });
        let changed = &transaction.changed_entries;
        let may_change = transaction.has_new_contract
            || updates
            || changed
                .iter()
                .any(|it| it.key.kind == EntryKind::ContractCode || it.key.is_executable_tag());
        if may_change {
            encode(Mention { application_order: order, written: None }, &mut found);
            continue;
        }
        for contract in changed.iter().filter_map(|it| it.key.instance_of()) {
            let written = Some(contract);
            encode(Mention { application_order: order, written }, &mut found);
        }
    }
    found
}

fn encode(mention: Mention, out: &mut Vec<u8>) {
    out.extend_from_slice(&mention.application_order.to_be_bytes());
    out.push(u8::from(mention.written.is_some()));
    out.extend_from_slice(&mention.written.unwrap_or(ContractId([0; 32])).0);
}

/// Decodes mentions.
pub fn decode(mentions: &[u8]) -> impl Iterator<Item = Mention> + '_ {
    mentions.as_chunks::<MENTION>().0.iter().filter_map(|mention| {
        let (order, rest) = mention.split_first_chunk()?;
        let (is_written, contract) = rest.split_first()?;
        let contract = ContractId(contract.try_into().ok()?);
        Some(Mention {
            application_order: u32::from_be_bytes(*order),
            written: (*is_written == 1).then_some(contract),
        })
    })
}

/// Whether a transaction has to be read when its mention is not known.
///
/// # Errors
/// When `meta` is not an XDR `TransactionMeta`.
pub fn is_mentioned(meta: &[u8]) -> Result<bool, XdrError> {
    let changed = changed_entries(meta)?;
    Ok(changed.iter().any(|ChangedEntry { key, .. }| {
        key.kind == EntryKind::ContractCode
            || key.is_executable_tag()
            || key.instance_of().is_some()
    }))
}

/// Whether a transaction changes an entry to which contracts may refer.
///
/// # Errors
/// When `meta` is not an XDR `TransactionMeta`.
pub fn changes_tag(meta: &[u8]) -> Result<bool, XdrError> {
    Ok(changed_entries(meta)?.iter().any(|it| it.key.is_executable_tag()))
}

/// What a transaction says about one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Contract to which the entry belongs.
    pub contract: ContractId,
    /// Whether it is the contract's instance; else it is one that instances refer to.
    pub is_instance: bool,
    /// The entry before and after the transaction.
    pub change: Change,
}

/// What a transaction says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Entries that it changed, by id.
    pub changes: BTreeMap<[u8; 32], Said>,
    /// Modules in its metadata, by hash.
    pub code: BTreeMap<Hash32, Vec<u8>>,
}

impl Facts {
    /// Reads the metadata of a transaction of a ledger.
    ///
    /// # Errors
    /// When `meta` is not an XDR `TransactionMeta`.
    pub fn of(meta: &[u8], ledger: LedgerSeq) -> Result<Self, XdrError> {
        let TransactionChanges { before, operations, after, .. } = transaction_changes(meta)?;
        let mut facts = Self::default();
        for change in before.iter().chain(&operations).chain(&after) {
            if change.key.kind == EntryKind::ContractCode {
                facts.add_code(change);
            } else if change.key.instance_of().is_some() || change.key.is_executable_tag() {
                facts.add_change(change, ledger);
            }
        }
        Ok(facts)
    }

    fn add_code(&mut self, change: &EntryChange<'_>) {
        if let Some(LedgerEntryData::ContractCode(code)) =
            change.entry.and_then(entry).map(|entry| entry.data)
        {
            self.code.insert(Hash32(code.hash.0), code.code.into_vec());
        }
    }

    fn add_change(&mut self, change: &EntryChange<'_>, ledger: LedgerSeq) {
        let Some(contract) = change.key.contract() else { return };
        let found = change.entry.and_then(entry);
        let executable = found.as_ref().and_then(Executable::in_entry);
        let held = |since| match executable.clone() {
            Some(executable) => Before::Held { executable, since },
            None => Before::Unknown,
        };
        let id = id_of(&change.key.to_ledger_key());
        let modified = found.as_ref().map_or(ledger.0, |entry| entry.last_modified_ledger_seq);
        let before = match change.kind {
            ChangeKind::State => held(modified),
            ChangeKind::Created => Before::Absent,
            // An archived entry comes back as it was; since when it was so is not said.
            ChangeKind::Restored => held(ledger.0),
            ChangeKind::Updated | ChangeKind::Removed => Before::Unknown,
        };
        let first = Change { before, after: None };
        let is_instance = change.key.instance_of().is_some();
        let said = self.changes.entry(id).or_insert(Said { contract, is_instance, change: first });
        match change.kind {
            ChangeKind::State => {}
            ChangeKind::Removed => said.change.after = None,
            ChangeKind::Created | ChangeKind::Updated | ChangeKind::Restored => {
                said.change.after = executable;
            }
        }
    }
}
