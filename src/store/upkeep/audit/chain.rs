//! Checks that ranges, runs and ledger rows agree with one another, and that ledger hashes link.

use orrery_ledger::domain::{EventId, LedgerRange, LedgerSeq, SummedLedgers};
use orrery_ledger::verify::{Link, verify_link};

use super::problems;
use super::subject::Subject;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, LedgerKey, RunKey, SettingKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::evicted;
use crate::encoding::indexed_as::Settings;
use crate::encoding::ledgers::LedgerRow;
use crate::encoding::settings::{LedgerConditions, SettingRow};
use crate::ingest::contradiction::CONTRADICTION_ROW;
use crate::ingest::live_position::LIVE_POSITION_ROW;
use crate::read::known_entries;
use crate::state::consumers::consumer;
use crate::state::coverage::{CoveredRange, Sums};
use crate::state::ingest_runs::IngestRun;
use crate::state::marks;
use crate::state::removed;
use crate::state::totals::TOTALS_ROW;
use crate::state::unrecorded::Unrecorded;
use crate::state::unused_ids;
use crate::state::unused_ids::UNUSED_FROM_ROW;
use crate::upkeep::format::FORMAT_ROW;
use crate::upkeep::index_fill;
use crate::upkeep::network::PASSPHRASE_ROW;

/// Runs all checks of this module for the wanted ledgers, and returns the audited part of each
/// covered range.
pub(super) fn check(subject: &Subject<'_>) -> Result<Vec<SummedLedgers>, StoreError> {
    check_meta(subject)?;
    check_encoding(subject, Family::KnownEntries, known_entries::check)?;
    check_encoding(subject, Family::Evicted, check_evicted)?;
    check_encoding(subject, Family::Conditions, check_conditions)?;
    check_encoding(subject, Family::Settings, check_setting)?;
    check_consumers(subject)?;
    check_ranges(subject);
    let runs = check_runs(subject);
    let mut walk = Walk {
        subject,
        runs: runs.iter().copied().peekable(),
        rows: subject.database.rows_on_disk(Family::Ledgers)?,
        before: None,
        all_rows_found: true,
    };
    walk.rows.seek(LedgerKey(subject.wanted.first).encode());
    let mut audited = Vec::new();
    for range in subject.coverage.ranges() {
        let ledgers = LedgerRange {
            first: range.ledgers.first.max(subject.wanted.first),
            last: range.ledgers.last.min(subject.wanted.last),
        };
        if ledgers.is_empty() {
            continue;
        }
        let sums = walk.range(ledgers);
        if walk.all_rows_found && ledgers == range.ledgers && sums != range.sums {
            let place = problems::row(Family::Ranges, &LedgerKey(ledgers.first).encode());
            let what = format!("it is not the sum of ledgers {ledgers}");
            subject.problems.add(place, what);
        }
        audited.push(SummedLedgers { ledgers, events: sums.events, digest: sums.digest });
    }
    walk.end();
    Ok(audited)
}

fn check_meta(subject: &Subject<'_>) -> Result<(), StoreError> {
    let mut rows = subject.database.rows_on_disk(Family::Meta)?;
    rows.seek_to_first();
    while let Some(name) = rows.key() {
        let known = match name {
            FORMAT_ROW | PASSPHRASE_ROW | TOTALS_ROW | LIVE_POSITION_ROW | UNUSED_FROM_ROW
            | CONTRADICTION_ROW => true,
            _ => {
                index_fill::is_row(name)
                    || removed::is_row(name)
                    || marks::is_row(name)
                    || Unrecorded::is_row(name)
            }
        };
        if !known {
            let what = "orrery never writes a row with this key".to_owned();
            subject.problems.add(problems::row(Family::Meta, name), what);
        }
        rows.next();
    }
    Ok(rows.status()?)
}

/// Known entries are answers from outside, and evictions, conditions and settings of ledgers follow from
/// raw ledgers alone, so only their encoding can be checked.
fn check_encoding(
    subject: &Subject<'_>,
    family: Family,
    check: fn(&[u8], &[u8]) -> Result<(), Malformed>,
) -> Result<(), StoreError> {
    let mut rows = subject.database.rows_on_disk(family)?;
    rows.seek_to_first();
    while let Some((key, value)) = rows.item() {
        if let Err(malformed) = check(key, value) {
            subject.add(problems::row(family, key), &corrupt(family, key)(malformed));
        }
        rows.next();
    }
    if let Err(error) = rows.status() {
        subject.add(family.name().to_owned(), &error.into());
    }
    Ok(())
}

fn check_evicted(key: &[u8], row: &[u8]) -> Result<(), Malformed> {
    LedgerKey::decode(key).ok_or(Malformed)?;
    evicted::decode(row).map(drop)
}

fn check_conditions(key: &[u8], row: &[u8]) -> Result<(), Malformed> {
    LedgerKey::decode(key).ok_or(Malformed)?;
    LedgerConditions::decode(row).map(drop)
}

fn check_setting(key: &[u8], row: &[u8]) -> Result<(), Malformed> {
    SettingKey::decode(key).ok_or(Malformed)?;
    SettingRow::decode(row).map(drop)
}

/// Consumer positions do not follow from other stored data, so only their encoding can be checked,
/// and that they do not lie beyond the stored ledgers.
fn check_consumers(subject: &Subject<'_>) -> Result<(), StoreError> {
    let mut rows = subject.database.rows_on_disk(Family::Consumers)?;
    rows.seek_to_first();
    while let Some((name, value)) = rows.item() {
        let place = || problems::row(Family::Consumers, name);
        match consumer::check(name, value) {
            Ok(at) if at > subject.coverage.last_place() => {
                let what = format!("it has seen {at} ledgers, and fewer are stored");
                subject.problems.add(place(), what);
            }
            Ok(_) => {}
            Err(malformed) => subject.add(place(), &corrupt(Family::Consumers, name)(malformed)),
        }
        rows.next();
    }
    if let Err(error) = rows.status() {
        subject.add(Family::Consumers.name().to_owned(), &error.into());
    }
    Ok(())
}

/// Checks that ranges ascend and leave a gap between one another.
fn check_ranges(subject: &Subject<'_>) {
    let ranges: Vec<&CoveredRange> = subject.coverage.ranges().collect();
    for pair in ranges.windows(2) {
        if pair[0].ledgers.last.next().is_none_or(|next| next >= pair[1].ledgers.first) {
            let place = problems::row(Family::Ranges, &LedgerKey(pair[1].ledgers.first).encode());
            let what = format!("it begins before or right after the end of {}", pair[0].ledgers);
            subject.problems.add(place, what);
        }
    }
}

/// Returns whether ids were skipped between `next` and `first`, as after a restoration.
fn is_beginning_after(first: EventId, next: EventId) -> bool {
    first > next && unused_ids::is_beginning(first)
}

/// Checks that event ids continue from run to run, or begin anew beyond, and that no ledger is in two runs. Returns the
/// runs sorted by first ledger.
fn check_runs(subject: &Subject<'_>) -> Vec<IngestRun> {
    let runs = subject.coverage.runs();
    let mut next = EventId(1);
    for (number, run) in runs.iter().enumerate() {
        let wrong = if run.ledgers.is_empty() || run.end_event < run.first_event {
            "it ends before it begins".to_owned()
        } else if run.first_event != next && !is_beginning_after(run.first_event, next) {
            format!("its events begin at {}, and those before it end at {next}", run.first_event)
        } else {
            next = run.end_event;
            continue;
        };
        next = run.end_event;
        subject.problems.add(problems::row(Family::Runs, &RunKey(number as u32).encode()), wrong);
    }
    let mut sorted = runs.to_vec();
    sorted.sort_unstable_by_key(|run| run.ledgers.first);
    for pair in sorted.windows(2) {
        if pair[1].ledgers.first <= pair[0].ledgers.last {
            let what = format!("{} and {} share ledgers", pair[0].ledgers, pair[1].ledgers);
            subject.problems.add(Family::Runs.name().to_owned(), what);
        }
    }
    sorted
}

/// A walk over all ledger rows.
struct Walk<'a, 'r> {
    subject: &'a Subject<'a>,
    runs: std::iter::Peekable<std::iter::Copied<std::slice::Iter<'r, IngestRun>>>,
    rows: rocksdb::DBRawIterator<'a>,
    /// Link of the preceding ledger, and the id after its last event; `None` at the start of a
    /// range and after a row that is missing or unreadable.
    before: Option<(Link, EventId)>,
    /// Whether every ledger of the current range has a readable row.
    all_rows_found: bool,
}

impl Walk<'_, '_> {
    /// Checks the rows of covered ledgers and returns their sums.
    fn range(&mut self, ledgers: LedgerRange) -> Sums {
        let mut sums = Sums::default();
        let mut missing: Option<LedgerRange> = None;
        (self.before, self.all_rows_found) = (None, true);
        for sequence in (ledgers.first.0..=ledgers.last.0).map(LedgerSeq) {
            match self.row(sequence) {
                Ok(Some(row)) => {
                    self.report_missing(missing.take());
                    sums = sums.and(Sums {
                        events: row.counts.events(),
                        digest: row.digest,
                        settings: Settings::from(row.indexed_as),
                    });
                    self.check(sequence, &row);
                }
                Ok(None) => {
                    (self.before, self.all_rows_found) = (None, false);
                    missing.get_or_insert(LedgerRange::only(sequence)).last = sequence;
                }
                Err(error) => {
                    (self.before, self.all_rows_found) = (None, false);
                    self.subject.add(problems::of_ledger(Family::Ledgers, sequence), &error);
                }
            }
            if self.subject.problems.limit_exceeded() {
                break;
            }
        }
        self.report_missing(missing);
        sums
    }

    /// Reports a row that follows the last covered ledger.
    fn end(&mut self) {
        let subject = self.subject;
        if let Some(key) = self.rows.key()
            && LedgerKey::decode(key).is_none_or(|key| key.0 <= subject.wanted.last)
        {
            self.report_uncovered(key);
        }
        if let Err(error) = self.rows.status() {
            subject.add(Family::Ledgers.name().to_owned(), &error.into());
        }
    }

    /// Returns the row of a covered ledger, and reports rows before it that are in no covered
    /// range.
    fn row(&mut self, sequence: LedgerSeq) -> Result<Option<LedgerRow>, StoreError> {
        let wanted = LedgerKey(sequence).encode();
        loop {
            let Some((key, value)) = self.rows.item() else {
                let status = self.rows.status();
                if status.is_err() {
                    self.rows.seek(LedgerKey(LedgerSeq(sequence.0.saturating_add(1))).encode());
                }
                return Ok(status.map(|()| None)?);
            };
            if key > wanted.as_slice() {
                return Ok(None);
            }
            if key == wanted.as_slice() {
                let row = LedgerRow::decode(value).map_err(corrupt(Family::Ledgers, key));
                self.rows.next();
                return row.map(Some);
            }
            self.report_uncovered(key);
            self.rows.next();
        }
    }

    fn check(&mut self, sequence: LedgerSeq, row: &LedgerRow) {
        let place = || problems::of_ledger(Family::Ledgers, sequence);
        let link = Link { sequence, hash: row.hash, previous_hash: row.previous_hash };
        if let Some((before, _)) = &self.before
            && let Err(error) = verify_link(before, &link)
        {
            self.subject.problems.add(place(), error.to_string());
        }
        let end = EventId(row.first_event.0.saturating_add(row.counts.events()));
        while self.runs.next_if(|run| run.ledgers.last < sequence).is_some() {}
        match self.runs.peek().filter(|run| run.ledgers.contains(sequence)) {
            None => self.subject.problems.add(place(), "no run contains it".to_owned()),
            Some(run) => {
                let is_first = run.ledgers.first == sequence;
                let due = if is_first {
                    Some(run.first_event)
                } else {
                    self.before.as_ref().map(|(_, end)| *end)
                };
                if due.is_some_and(|due| due != row.first_event) {
                    let what = format!(
                        "its events begin at {}, and those before it end at {}",
                        row.first_event,
                        due.unwrap_or_default()
                    );
                    self.subject.problems.add(place(), what);
                }
                if run.ledgers.last == sequence && run.end_event != end {
                    let what = format!("its events end at {end}, and its run at {}", run.end_event);
                    self.subject.problems.add(place(), what);
                }
            }
        }
        let (indexed, counts) = (&row.indexed_as, &row.counts);
        if counts.classic_events > 0 && !indexed.classic_events
            || counts.fee_events > 0 && !indexed.fee_events
        {
            let what = "it holds events that its settings leave out".to_owned();
            self.subject.problems.add(place(), what);
        }
        self.before = Some((link, end));
    }

    fn report_missing(&self, missing: Option<LedgerRange>) {
        if let Some(missing) = missing {
            let what = "they are in a covered range, but not stored".to_owned();
            self.subject.problems.add(format!("{} {missing}", Family::Ledgers.name()), what);
        }
    }

    fn report_uncovered(&self, key: &[u8]) {
        let what = match LedgerKey::decode(key).ok_or(Malformed) {
            Ok(key) => format!("ledger {} is stored, and in no covered range", key.0),
            Err(Malformed) => "its key is not that of a ledger".to_owned(),
        };
        self.subject.problems.add(problems::row(Family::Ledgers, key), what);
    }
}
