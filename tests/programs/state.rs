//! Entries before transactions, compared with the model: never wrong, whatever is stored and in
//! whichever order it was ingested, and unknown only where they cannot be determined.

use std::collections::BTreeMap;
use std::fmt;

use orrery::domain::LedgerSeq;
use orrery::programs::engine::{EntryState, PreState};
use orrery::programs::state::{LedgerStates, States, Upstream};
use orrery::programs::transaction::HostCall;
use orrery::store::{IndexOptions, Store};
use stellar_xdr::{LedgerKey, LedgerKeyAccount};

use crate::state_sections::{Section, core_tests, local_network, public};
use crate::state_timeline::{CheckedTransaction, Timeline, Truth};
use orrery_testkit::data;

/// Counts of lookup results.
#[derive(Default)]
pub struct Answers {
    pub present: u64,
    pub absent: u64,
    /// Number of present entries whose TTL is known too.
    pub timed: u64,
    /// Number of unknown entries by kind, and how many of them the model knows.
    pub unknown: BTreeMap<&'static str, (u64, u64)>,
    pub transactions: u64,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { present, absent, timed, transactions, .. } = self;
        write!(
            f,
            "{transactions} transactions: {present} present ({timed} with their time), {absent} absent, \
             {} unknown {:?}",
            self.unknown(),
            self.unknown
        )
    }
}

impl Answers {
    pub fn unknown(&self) -> u64 {
        self.unknown.values().map(|(all, _)| all).sum()
    }

    /// Number of unknown entries that the model knows.
    pub fn known_to_model(&self) -> u64 {
        self.unknown.values().map(|(_, known)| known).sum()
    }

    pub fn add(&mut self, other: &Self) {
        self.present += other.present;
        self.absent += other.absent;
        self.timed += other.timed;
        self.transactions += other.transactions;
        for (kind, (all, known)) in &other.unknown {
            let sum = self.unknown.entry(kind).or_default();
            (sum.0, sum.1) = (sum.0 + all, sum.1 + known);
        }
    }
}

fn kind(key: &LedgerKey) -> &'static str {
    match key {
        LedgerKey::ContractData(data) => match data.durability {
            stellar_xdr::ContractDataDurability::Temporary => "temporary data",
            stellar_xdr::ContractDataDurability::Persistent => "persistent data",
        },
        _ => key.name(),
    }
}

/// The host function call in a stored transaction; `None` if it contains none.
pub fn host_call(
    store: &Store,
    checked: &CheckedTransaction,
    section: &Section,
) -> Option<HostCall> {
    let reader = store.entry_reader(LedgerSeq(checked.ledger)).unwrap();
    let mut call = None;
    reader
        .transactions_of(LedgerSeq(checked.ledger), |record| {
            if record.position.application_order == checked.order {
                call = HostCall::read(record, section.network.id()).unwrap();
            }
        })
        .unwrap();
    call
}

/// Looks up every entry in the footprint of every stored transaction and compares the result with
/// the model. Both ways of reading must agree: lookups for one transaction use the index entry by
/// entry, lookups for all transactions of a ledger read the ledger as a whole.
pub fn check(
    section: &Section,
    timeline: &Timeline,
    store: &Store,
    upstream: Option<&dyn Upstream>,
) -> Answers {
    let mut answers = Answers::default();
    let states = States::new(store, upstream);
    let whole_states = States::new(store, upstream);
    let mut whole: Option<(u32, LedgerStates<'_>)> = None;
    for checked in &timeline.checked {
        let Some(call) = host_call(store, checked, section) else { continue };
        let footprint: Vec<LedgerKey> = call.footprint_keys().cloned().collect();
        let account = LedgerKey::Account(LedgerKeyAccount { account_id: call.source_account });
        let of_ledger = states.at(LedgerSeq(checked.ledger)).unwrap();
        let state = of_ledger.before(checked.order, &footprint);
        if whole.as_ref().is_none_or(|(ledger, _)| *ledger != checked.ledger) {
            whole = Some((checked.ledger, whole_states.at(LedgerSeq(checked.ledger)).unwrap()));
        }
        let whole = &whole.as_ref().unwrap().1;
        // Looking up an account reads all transactions of the ledger, because the index does not
        // cover changes before operations.
        whole.before(checked.order, &[]).entry(&account).unwrap();
        let beside = whole.before(checked.order, &footprint);
        answers.transactions += 1;
        for key in footprint.iter().chain([&account]) {
            let known = state.entry(key).unwrap();
            assert_eq!(beside.entry(key).unwrap(), known, "{:?}, {key:?}", checked.when);
            compare(section, timeline, checked, key, known, &mut answers);
        }
    }
    answers
}

#[track_caller]
fn compare(
    section: &Section,
    timeline: &Timeline,
    checked: &CheckedTransaction,
    key: &LedgerKey,
    known: EntryState,
    answers: &mut Answers,
) {
    let truth = timeline.truth(key, checked.when);
    let case = || format!("{}, transaction {:?}, {key:?}", section.name, checked.when);
    match known {
        EntryState::Present(entry, until) => {
            answers.present += 1;
            match &truth {
                Truth::Present(true_entry) | Truth::Archived(true_entry) => {
                    assert_eq!(*entry, *true_entry, "{}", case());
                }
                Truth::Absent => panic!("{} is absent, not {entry:?}, {until:?}", case()),
                Truth::Unknown => {}
            }
            if let Some(until) = until {
                answers.timed += 1;
                if let Some(true_until) = timeline.live_until(key, checked.when) {
                    assert_eq!(until, true_until, "{}", case());
                }
            }
        }
        EntryState::Absent => {
            answers.absent += 1;
            assert!(matches!(truth, Truth::Absent | Truth::Unknown), "{} is {truth:?}", case());
        }
        EntryState::Unknown => {
            let count = answers.unknown.entry(kind(key)).or_default();
            count.0 += 1;
            count.1 += u64::from(truth != Truth::Unknown);
        }
    }
}

fn options(raw_ledgers: bool) -> IndexOptions {
    IndexOptions { raw_ledgers, ..IndexOptions::default() }
}

pub fn timeline(section: &Section) -> Timeline {
    Timeline::new(section.ledgers.values(), &section.network, section.from_genesis)
}

fn in_order(section: &Section) -> impl Iterator<Item = u32> + use<> {
    section.first()..=section.last()
}

#[test]
fn changes_are_ordered_as_the_network_applied_them() {
    let sections = core_tests().into_iter().chain(local_network()).chain(public());
    for section in sections {
        let contradictions = timeline(&section).contradictions();
        // Transactions that run in parallel may extend the same entry's TTL without seeing each
        // other's changes.
        let (times, others): (Vec<_>, Vec<_>) =
            contradictions.into_iter().partition(|(key, ..)| matches!(key, LedgerKey::Ttl(_)));
        for (key, before, after) in &others {
            eprintln!("{}: {key:?}\n  {before:?}\n  {after:?}", section.name);
        }
        assert_eq!(others.len(), 0, "{}", section.name);
        if !times.is_empty() {
            eprintln!("{}: {} times to live", section.name, times.len());
        }
    }
}

#[test]
fn all_contract_entries_are_known_when_stored_from_genesis() {
    let mut all = [Answers::default(), Answers::default()];
    for section in core_tests() {
        let timeline = timeline(&section);
        for (raw, sum) in [true, false].into_iter().zip(&mut all) {
            let stored = section.store(in_order(&section), &options(raw));
            let answers = check(&section, &timeline, &stored.store, None);
            sum.add(&answers);
        }
    }
    for (raw, answers) in ["with raw ledgers", "without"].into_iter().zip(&all) {
        eprintln!("core tests, {raw}: {answers}");
        // Without raw ledgers, changes of accounts by classic transactions are unknown.
        let of_accounts = answers.unknown.get("Account").map_or(0, |(all, _)| *all);
        let may_be_unknown = if raw == "without" { of_accounts } else { 0 };
        assert_eq!(answers.unknown(), may_be_unknown, "{answers}");
        assert!(answers.transactions > 50 || data::missing());
    }
}

#[test]
fn recorded_ledgers_contain_restored_evicted_and_expired_entries() {
    let (mut restored, mut evicted, mut expired) = (0, 0, 0);
    for section in core_tests() {
        let rare = timeline(&section).rare();
        restored += rare.restored;
        evicted += rare.evicted;
        expired += rare.expired;
    }
    eprintln!("{restored} entries restored, {evicted} evicted, {expired} changed after their time");
    assert!(restored > 0 && evicted > 0 || data::missing());
}

#[test]
fn all_entries_of_a_local_network_are_known() {
    let Some(section) = local_network() else { return };
    let timeline = timeline(&section);
    for raw in [true, false] {
        let stored = section.store(in_order(&section), &options(raw));
        let answers = check(&section, &timeline, &stored.store, None);
        eprintln!("local network, raw {raw}: {answers}");
        assert_eq!((answers.transactions, answers.unknown()), (57, 0));
    }
}

#[test]
fn states_of_public_ledgers_match_the_model() {
    let Some(section) = public() else { return };
    let timeline = timeline(&section);
    for raw in [true, false] {
        let stored = section.store(in_order(&section), &options(raw));
        let answers = check(&section, &timeline, &stored.store, None);
        eprintln!("public network, raw {raw}: {answers}");
        // Only entries that no stored ledger changes are unknown.
        assert_eq!(answers.known_to_model(), 0, "{answers}");
        assert!(answers.present > 400, "{answers}");
    }
}
