//! What a ledger says about the keys of contracts, in the form in which it is gathered while the ledger
//! is decoded: a function of the ledger alone.

use orrery_ledger::decode::{HeaderView, LedgerView};
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::{RowCodec, row_codec};
use stellar_xdr::{LedgerHeader, LedgerUpgrade, Limits, ReadXdr, UpgradeType};

use super::changes::{DataChange, Kind, Unreadable, created_contract, data_changes};
use super::entry::Durability;
use super::rows::KeyTag;

/// Limits for decoding a header, which has some hundred bytes.
const UPGRADE_LIMITS: Limits = Limits { depth: 50, len: 1 << 16 };
/// Longest symbol (`SCSYMBOL_LIMIT`).
const LONGEST_SYMBOL: usize = 32;

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// 1-based position of the transaction in apply order.
    pub order: u32,
    /// The contract.
    pub contract: ContractId,
    /// The key.
    pub tag: KeyTag,
    /// Its durability.
    pub durability: Durability,
    /// What happened to the entry.
    pub what: What,
    /// Whether the transaction wrote the entry: then it also decides its time to live, which otherwise
    /// is the greatest of those that transactions of the ledger gave.
    pub is_written: bool,
    /// The new time to live; 0 when the transaction does not say one.
    pub live_until: u32,
    /// Whether value or time to live are others than before.
    pub is_change: bool,
    /// Whether this is the instance of a contract, which was created.
    pub is_new_contract: bool,
    /// Whether the symbol is the first element of a vector.
    pub leads: bool,
    /// The symbol by which the key is found, at most [`LONGEST_SYMBOL`] bytes; padded.
    pub name: Name,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It has the value that it had.
    Same,
    /// It has another value, is new or is live again.
    Changed,
    /// It is gone.
    Gone,
}

row_codec!(enum What);

impl What {
    const ALL: [Self; 3] = [Self::Same, Self::Changed, Self::Gone];

    fn of(kind: Option<Kind>) -> Self {
        match kind {
            None | Some(Kind::Extended) => Self::Same,
            Some(Kind::Created | Kind::Updated | Kind::Restored) => Self::Changed,
            Some(Kind::Removed) => Self::Gone,
        }
    }
}

/// A symbol with its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(pub Vec<u8>);

impl RowCodec for Name {
    fn write(&self, to: &mut Vec<u8>) {
        // At most 32.
        to.push(self.0.len() as u8);
        to.extend_from_slice(&self.0);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let length = u8::read(bytes)?;
        bytes.split_off(..usize::from(length)).map(|name| Self(name.to_vec()))
    }
}

row_codec!(Seen {
    order,
    contract,
    tag,
    durability,
    what,
    is_written,
    live_until,
    is_change,
    is_new_contract,
    leads,
    name
});

impl Seen {
    fn of(order: u32, ledger: LedgerSeq, hash: &Hash32, change: &DataChange<'_>) -> Self {
        let name = change.key.name().filter(|name| name.len() <= LONGEST_SYMBOL);
        let (created, kind) = (created_contract(change), change.kind(ledger));
        Self {
            order,
            contract: change.key.contract(),
            tag: KeyTag::of(hash),
            durability: change.key.durability(),
            what: What::of(kind),
            is_written: change.written.is_some(),
            live_until: change.ttl.and_then(|ttl| ttl.after).unwrap_or(0),
            is_change: kind.is_some(),
            is_new_contract: created.is_some(),
            leads: change.key.leads(),
            name: Name(name.unwrap_or_default().to_vec()),
        }
    }
}

/// Returns what a successful transaction says.
///
/// # Errors
/// When its metadata or its envelope cannot be read.
pub fn of_transaction(
    order: u32,
    ledger: LedgerSeq,
    meta: &[u8],
    envelope: &[u8],
) -> Result<Vec<Seen>, Unreadable> {
    let changes = data_changes(meta, envelope)?;
    Ok(changes.iter().map(|(hash, change)| Seen::of(order, ledger, hash, change)).collect())
}

/// Returns what a ledger says, in apply order, in the form for [`decode`]; empty when something cannot be
/// read, for the consumer reads the transactions then, and says what is wrong.
pub fn gather(ledger: &LedgerView<'_>) -> Vec<u8> {
    let mut gathered = vec![COMPLETE, u8::from(begins(&ledger.header))];
    for transaction in ledger.transactions.iter().filter(|it| !it.changed_entries.is_empty()) {
        let (order, sequence) = (transaction.application_order, ledger.header.sequence);
        match of_transaction(order, sequence, transaction.meta, transaction.envelope) {
            Ok(seen) => seen.iter().for_each(|seen| seen.write(&mut gathered)),
            Err(Unreadable(_)) => return Vec::new(),
        }
    }
    gathered
}

/// First byte of what was gathered from a ledger that could be read.
const COMPLETE: u8 = 1;

/// Decodes what was gathered, and whether the ledger [`begins`]; `None` when the transactions have to be
/// read instead.
pub fn decode(gathered: &[u8]) -> Option<(Vec<Seen>, bool)> {
    let (begins, mut left) = gathered.strip_prefix(&[COMPLETE])?.split_first()?;
    let mut all = Vec::new();
    while !left.is_empty() {
        all.push(Seen::read(&mut left)?);
    }
    Some((all, *begins == 1))
}

/// The first protocol with contracts.
pub const FIRST_PROTOCOL: u32 = 20;

/// Whether a ledger brought the network to the first protocol with contracts, which have no data before
/// the next ledger.
pub fn begins(header: &HeaderView<'_>) -> bool {
    if header.protocol != FIRST_PROTOCOL {
        return false;
    }
    let is_upgrade = |upgrade: &UpgradeType| {
        LedgerUpgrade::from_xdr(upgrade.0.as_slice(), UPGRADE_LIMITS)
            .is_ok_and(|upgrade| upgrade == LedgerUpgrade::Version(FIRST_PROTOCOL))
    };
    let decoded = LedgerHeader::from_xdr(header.xdr, UPGRADE_LIMITS);
    decoded.is_ok_and(|header| header.scp_value.upgrades.iter().any(is_upgrade))
}
