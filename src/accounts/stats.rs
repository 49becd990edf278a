//! Totals of an account index, which share one row of [`STATS`] under the empty key.

use super::AccountIndex;
use orrery_store::{RowCodec, Rows, RowsMut, StoreError, Table};

/// The totals, as [`Stats::encode`] returns them.
pub(super) const STATS: Table<(), Vec<u8>> = Table::new("stats");

/// Totals of an index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// Number of events that counted.
    pub events: u64,
    /// Number of accounts.
    pub accounts: u64,
    /// Number of distinct credential ids.
    pub credentials: u64,
    /// Number of signers that accounts have or had, if signers are counted.
    pub signers: u64,
    /// Number of signers that were not removed, if signers are counted.
    pub active: u64,
    /// Ledger of the first event; 0 when there is none.
    pub first_ledger: u64,
    /// Ledger of the last event; 0 when there is none.
    pub last_ledger: u64,
    /// Number of events of each kind, in the order of [`AccountIndex::kinds`].
    pub kinds: Vec<u64>,
}

impl Stats {
    /// Counts an event of the kind with this number.
    pub(super) fn count(&mut self, kind: usize, ledger: u32) {
        let ledger = u64::from(ledger);
        self.events += 1;
        self.kinds[kind] += 1;
        self.first_ledger = match self.first_ledger {
            0 => ledger,
            first => first.min(ledger),
        };
        self.last_ledger = self.last_ledger.max(ledger);
    }

    /// Reads the totals from the store; zeros when there is no row yet.
    pub fn read<I: AccountIndex>(rows: &dyn Rows) -> Result<Self, StoreError> {
        match STATS.get(rows, &())? {
            Some(row) => Self::decode::<I>(&row).ok_or_else(|| STATS.damaged(&())),
            None => Ok(Self { kinds: vec![0; I::kinds().len()], ..Self::default() }),
        }
    }

    fn decode<I: AccountIndex>(mut row: &[u8]) -> Option<Self> {
        let mut number = || u64::read(&mut row);
        let [events, accounts, credentials] = [number()?, number()?, number()?];
        let [signers, active] = match I::COUNTS_SIGNERS {
            true => [number()?, number()?],
            false => [0; 2],
        };
        let [first_ledger, last_ledger] = [number()?, number()?];
        let kinds = I::kinds().map(|_| number()).collect::<Option<_>>()?;
        row.is_empty().then_some(Self {
            events,
            accounts,
            credentials,
            signers,
            active,
            first_ledger,
            last_ledger,
            kinds,
        })
    }

    fn encode<I: AccountIndex>(&self) -> Vec<u8> {
        let signers: &[u64] = if I::COUNTS_SIGNERS { &[self.signers, self.active] } else { &[] };
        let first = [self.events, self.accounts, self.credentials];
        let numbers =
            [&first, signers, &[self.first_ledger, self.last_ledger], &self.kinds].concat();
        numbers.into_iter().flat_map(u64::to_be_bytes).collect()
    }

    /// Writes the totals.
    pub(super) fn write<I: AccountIndex>(&self, rows: &mut dyn RowsMut) -> Result<(), StoreError> {
        STATS.put(rows, &(), &self.encode::<I>())
    }
}
