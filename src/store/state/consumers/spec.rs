//! What consumers of the feed declare about themselves, their status, and the names of the builds of their
//! rows.

use std::fmt::Display;

use orrery_ledger::domain::LedgerSet;

use crate::encoding::columns::SharedFamily;

/// Data of a ledger that a consumer reads and that retention may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Its raw form.
    pub raw_ledgers: bool,
    /// Its events.
    pub events: bool,
    /// Its smart-contract transactions.
    pub transactions: bool,
}

impl Needs {
    /// Only the raw form.
    pub const RAW_LEDGERS: Self = Self { raw_ledgers: true, events: false, transactions: false };
    /// Only the events.
    pub const EVENTS: Self = Self { raw_ledgers: false, events: true, transactions: false };
    /// Only the transactions.
    pub const TRANSACTIONS: Self = Self { raw_ledgers: false, events: false, transactions: true };
    /// Events and transactions: what is found by queries.
    pub const RECORDS: Self = Self { raw_ledgers: false, events: true, transactions: true };

    /// Returns whether everything in `other` is in these needs.
    pub(crate) fn includes(self, other: Self) -> bool {
        self.raw_ledgers >= other.raw_ledgers
            && self.events >= other.events
            && self.transactions >= other.transactions
    }
}

/// Where a consumer begins that is new to the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPosition {
    /// At the first ledger that was ingested.
    FirstLedger,
    /// With the next ledger that is ingested.
    NextLedger,
}

/// Specification of a consumer, registered when a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSpec {
    /// Its name, of lower-case letters, digits and `_`.
    pub name: &'static str,
    /// Names of its families, of the same characters. When a directory lacks one of them, another
    /// version has written the rows: those of a consumer that begins at the first ledger are then
    /// made again.
    pub families: &'static [&'static str],
    /// Data that it reads of each ledger.
    pub needs: Needs,
    /// Where it begins when it is new to the directory.
    pub start: StartPosition,
}

/// A kind of consumers that are created and deleted while the store is open, registered when it is
/// opened. They share families, and each has a cursor of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumerKind {
    /// Its name, of lower-case letters, digits and `_`.
    pub name: &'static str,
    /// Families that its consumers share.
    pub families: &'static [SharedFamily],
    /// Data that its consumers read of each ledger.
    pub needs: Needs,
}

impl ConsumerKind {
    /// Returns the name of a consumer of this kind.
    pub fn consumer(&self, id: impl Display) -> String {
        format!("{}/{id}", self.name)
    }
}

/// State of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// Whether it processes ledgers in this process, so that retention waits for it.
    pub active: bool,
    /// Place up to which it has processed every ledger.
    pub place: u64,
    /// Number of stored ledgers after `place`, less those that a consumer working out of order has
    /// processed or lost.
    pub lag: u64,
    /// Ledgers that were removed, or were not stored in full, before it could process them.
    pub lost: LedgerSet,
    /// Progress of a second build of its rows, while one is built.
    pub rebuild: Option<RebuildProgress>,
}

impl ConsumerStatus {
    /// Returns the part of the name that consumers of one kind share: everything before the first
    /// `/`.
    pub fn kind(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}

/// Progress of a second build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildProgress {
    /// Place that the second build has reached.
    pub done: u64,
    /// Place that the served build has reached.
    pub target: u64,
}

/// Suffix of the name of a second build; no other name ends with it.
const SECOND_SUFFIX: char = '~';

/// Returns the name under which a consumer's second build is fed.
pub(crate) fn second_build(name: &str) -> String {
    format!("{name}{SECOND_SUFFIX}")
}

/// Returns whether a name is that of a second build.
pub(crate) fn is_second_build(name: &str) -> bool {
    name.ends_with(SECOND_SUFFIX)
}

/// Returns the name of the consumer to which a build belongs, which is that of its first build.
pub(crate) fn first_build(name: &str) -> &str {
    name.strip_suffix(SECOND_SUFFIX).unwrap_or(name)
}
