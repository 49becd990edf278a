//! Works off backfills: programs on ledgers that were stored before, beside the new ones. Their orders
//! have turns as programs have on new ledgers: one that loops does not hold up the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::ProgramError;
use super::backfill::{Order, State};
use super::begun::Begun;
use super::feeder::Feeder;
use super::lanes::{Lane, Lanes, Turn, TurnClock};
use super::manifest::Manifest;
use super::orders_turn::{OrdersTurn, Passed};
use super::records::RunSource;
use super::registry::{Cell, Entry, Registry};
use super::runner::{Effects, RETRY, Runner};
use super::trouble::Trouble;
use super::writing::Wrote;
use crate::domain::{LedgerRange, LedgerSeq, ProgramId};
use crate::store::{ProgramChanges, StoreError, TransactionPosition};

/// How often it is written how far an order has got, when nothing else is.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// All orders.
pub(super) struct Older {
    runner: Arc<Runner>,
    registry: Arc<Registry>,
    feeder: Arc<Feeder>,
    orders: Mutex<Orders>,
    lanes: Lanes,
    begun: Begun,
    trouble: Arc<Trouble>,
    stopped: AtomicBool,
}

/// The last order of each program.
#[derive(Default)]
struct Orders {
    known: BTreeMap<ProgramId, Known>,
    /// Programs of which a write failed that may have been made all the same: what is known of their orders
    /// is read again before it is used.
    in_doubt: BTreeSet<ProgramId>,
    /// Orders that were known so far.
    count: u64,
}

/// An order, and what of it is on disk.
struct Known {
    /// Tells it from others for the same ledgers.
    number: u64,
    order: Order,
    /// When it was last written.
    written: Instant,
}

/// An order in somebody's hands.
struct Work {
    number: u64,
    order: Order,
}

impl Orders {
    /// Takes over an order that is on disk.
    fn insert(&mut self, order: Order) {
        self.count += 1;
        let known = Known { number: self.count, order, written: Instant::now() };
        self.known.insert(known.order.program, known);
    }

    fn running(&self, program: ProgramId) -> Option<Work> {
        let known = self.known.get(&program).filter(|known| known.order.state == State::Running)?;
        Some(Work { number: known.number, order: known.order.clone() })
    }

    /// What is known of an order that somebody works on, unless it was cancelled or replaced.
    fn of(&mut self, work: &Work) -> Option<&mut Known> {
        let known = self.known.get_mut(&work.order.program)?;
        let is_same = known.number == work.number && known.order.state == State::Running;
        is_same.then_some(known)
    }
}

impl Older {
    /// Reads the orders that are stored.
    pub(super) fn open(
        runner: &Arc<Runner>,
        registry: &Arc<Registry>,
        feeder: &Arc<Feeder>,
        trouble: &Arc<Trouble>,
    ) -> Result<Self, ProgramError> {
        let mut orders = Orders::default();
        let lanes = Lanes::default();
        for entry in registry.all() {
            let Some(order) = stored_order(runner, entry.id)? else { continue };
            if order.state == State::Running {
                lanes.add(entry.id);
            }
            orders.insert(order);
        }
        Ok(Self {
            runner: Arc::clone(runner),
            registry: Arc::clone(registry),
            feeder: Arc::clone(feeder),
            orders: Mutex::new(orders),
            lanes,
            begun: Begun::default(),
            trouble: Arc::clone(trouble),
            stopped: AtomicBool::new(false),
        })
    }

    /// A new order. It is on disk when this returns.
    pub(super) fn begin(&self, entry: &Entry, ledgers: LedgerRange) -> Result<Order, ProgramError> {
        let program = entry.id;
        let mut cell = entry.lock();
        let mut orders = self.settled(program)?;
        if orders.running(program).is_some() {
            return Err(ProgramError::BackfillRuns(program));
        }
        let order = Order::new(program, ledgers, self.runner.store.status().latest());
        self.put(&mut cell, &mut orders, &order)?;
        orders.insert(order.clone());
        // What another order of the program left half done is not for this one.
        self.begun.forget(program);
        self.lanes.add(program);
        self.lanes.wake(Some(program));
        Ok(order)
    }

    /// Ends an order.
    pub(super) fn cancel(&self, entry: &Entry) -> Result<Order, ProgramError> {
        let program = entry.id;
        let mut cell = entry.lock();
        let mut orders = self.settled(program)?;
        if let Some(Work { order, .. }) = orders.running(program) {
            let cancelled = Order { state: State::Cancelled, ..order };
            self.put(&mut cell, &mut orders, &cancelled)?;
            orders.insert(cancelled);
        }
        let known = orders.known.get(&program).ok_or(ProgramError::NoBackfill(program))?;
        Ok(known.order.clone())
    }

    /// The last order of a program.
    pub(super) fn order(&self, program: ProgramId) -> Result<Option<Order>, ProgramError> {
        Ok(self.settled(program)?.known.get(&program).map(|known| known.order.clone()))
    }

    /// A program is gone.
    pub(super) fn forget(&self, program: ProgramId) {
        self.lanes.remove(program);
        self.orders.lock().known.remove(&program);
        self.begun.forget(program);
        self.trouble.is_over(RunSource::Backfill, program);
    }

    /// All orders, with that of a program as the store has it.
    fn settled(&self, program: ProgramId) -> Result<MutexGuard<'_, Orders>, ProgramError> {
        let mut orders = self.orders.lock();
        if orders.in_doubt.contains(&program) {
            match stored_order(&self.runner, program)? {
                Some(order) => {
                    if order.state == State::Running {
                        self.lanes.add(program);
                        self.lanes.wake(Some(program));
                    }
                    orders.insert(order);
                }
                None => drop(orders.known.remove(&program)),
            }
            orders.in_doubt.remove(&program);
        }
        Ok(orders)
    }

    /// Ends [`Self::work`].
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.lanes.stop();
    }

    /// Works until stopped.
    pub(super) fn work(&self, lane: Lane) {
        self.lanes.work(lane, |program| self.turn(program));
    }

    /// One turn of a program's order.
    pub(super) fn turn(&self, program: ProgramId) -> Turn {
        match self.next_ledgers(program) {
            Ok(turn) => {
                self.trouble.is_over(RunSource::Backfill, program);
                turn
            }
            Err(error) => {
                self.trouble.has(RunSource::Backfill, program, &error);
                Turn::Failed(RETRY)
            }
        }
    }

    /// As many ledgers of an order as there is time for, or a part of one.
    fn next_ledgers(&self, program: ProgramId) -> Result<Turn, ProgramError> {
        let Some(entry) = self.registry.get(program) else {
            self.forget(program);
            return Ok(Turn::Idle);
        };
        let Some(mut work) = self.settled(program)?.running(program) else {
            return Ok(Turn::Idle);
        };
        let mut cell = entry.lock();
        cell.settle(&self.runner.store)?;
        if cell.deleted {
            return Ok(Turn::Idle);
        }
        drop(cell);
        let clock = TurnClock::start();
        let worked = self.ledgers(&entry, &mut work, clock.end());
        if worked.is_err() && self.orders.lock().in_doubt.contains(&program) {
            return worked.map(|()| Turn::Idle);
        }
        // What was passed over before something failed is not looked at again.
        let kept = self.keep(&entry, &work);
        worked.and(kept)?;
        Ok(Turn::Worked { held_up: clock.held_up() })
    }

    /// Ledgers of an order until it is over, or its time is. What their runs left is written at once; the
    /// order moves only past what is done and on disk, or needs no run.
    fn ledgers(&self, entry: &Entry, work: &mut Work, until: Instant) -> Result<(), ProgramError> {
        let manifest = entry.shown().manifest;
        let mut turn = OrdersTurn::of(&work.order);
        let mut ran = Ok(());
        while turn.goes_on() && Instant::now() < until && self.still_wanted(work) {
            ran = self.ledger(entry, &manifest, &mut turn, until);
            if ran.is_err() {
                break;
            }
        }
        ran.and(self.write(entry, &manifest, work, turn))
    }

    /// Takes over how far an order has got over ledgers without runs; what came of runs is on disk, and
    /// known, already.
    fn keep(&self, entry: &Entry, work: &Work) -> Result<(), ProgramError> {
        let mut cell = entry.lock();
        let mut orders = self.orders.lock();
        let Some(known) = orders.of(work).filter(|_| !cell.deleted) else { return Ok(()) };
        // Ledgers without runs are not worth a write each.
        if work.order.state == State::Running && known.written.elapsed() < WRITE_EVERY {
            known.order = work.order.clone();
            return Ok(());
        }
        self.put(&mut cell, &mut orders, &work.order)?;
        if let Some(known) = orders.of(work) {
            known.order = work.order.clone();
            known.written = Instant::now();
        }
        Ok(())
    }

    /// Runs the program on the order's next ledger, or on a part of it when there is no more time.
    fn ledger(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        turn: &mut OrdersTurn,
        until: Instant,
    ) -> Result<(), ProgramError> {
        let store = &self.runner.store;
        let ledger = turn.order.next;
        if store.range_of(ledger).is_none() {
            // Everything up to the next stored ledger is missing.
            let next = self.next_stored(ledger).filter(|next| *next <= turn.order.ledgers.last);
            let last = turn.order.ledgers.last;
            let end = next.map_or(u64::from(last.0) + 1, |next| u64::from(next.0));
            // One more than a sequence number, which has a predecessor.
            let missing = Some(LedgerRange::new(ledger, (end - 1) as u32));
            turn.passes(Passed { missing, next });
            return Ok(());
        }
        if !store.touches(ledger, &manifest.contracts)? {
            let is_whole = self.runner.is_whole(ledger, &manifest.contracts)?;
            let missing = (!is_whole).then_some(LedgerRange { first: ledger, last: ledger });
            turn.passes(Passed { missing, next: ledger.next() });
            return Ok(());
        }
        if self.runner.is_full(entry) {
            turn.stops(ProgramError::Full(manifest.owner.to_string()).to_string());
            return Ok(());
        }
        if let Some(because) = self.registry.make_ready(entry)? {
            turn.stops(because);
            return Ok(());
        }
        let goes_on =
            |effects: &Effects| effects.ledger == ledger && effects.contracts == manifest.contracts;
        let effects = self.begun.take(entry.id, goes_on).unwrap_or_else(|| {
            let mut effects = Effects::none(manifest, ledger, RunSource::Backfill);
            let part = turn.order.part;
            effects.rest = part.map(|from| TransactionPosition { ledger, application_order: from });
            effects
        });
        let effects = self.runner.run(entry, &manifest.contracts, effects, Some(until))?;
        match effects.rest {
            None => turn.ran(effects),
            Some(_) => match self.begun.keep(entry.id, effects) {
                None => turn.is_over = true,
                Some(effects) => turn.ran(effects),
            },
        }
        Ok(())
    }

    /// Writes what the runs of a turn left together with the order as it is then, and takes over both.
    fn write(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        work: &mut Work,
        turn: OrdersTurn,
    ) -> Result<(), ProgramError> {
        let OrdersTurn { ledgers, before, after, stops, .. } = turn;
        let mut order = work.order.clone();
        if ledgers.is_empty() {
            // With other contracts there may be runs in what was passed over.
            if entry.lock().manifest.contracts != manifest.contracts {
                return Ok(());
            }
        } else {
            let mut passed = before.iter();
            let begun_with = &*work;
            let moved = &mut order;
            let wrote = self.runner.write(entry, &ledgers, |_, effects, written, executions| {
                passed.next().into_iter().flatten().for_each(|passed| passed.of(moved));
                moved.ran(effects, written, executions);
                self.orders.lock().of(begun_with).is_some().then(|| moved.clone())
            });
            let mut orders = self.orders.lock();
            if wrote.is_err() {
                orders.in_doubt.insert(entry.id);
            }
            let Wrote::Runs(written) = wrote? else { return Ok(()) };
            if let Some(known) = orders.of(work) {
                known.order = order.clone();
                known.written = Instant::now();
            }
            drop(orders);
            if written.rows > 0 {
                self.feeder.has_rows(entry);
            }
            if written.waiting_changed {
                self.trouble.report();
            }
        }
        after.iter().for_each(|passed| passed.of(&mut order));
        if let Some(because) = stops {
            order.state = State::Stopped;
            order.message = Some(because);
        }
        work.order = order;
        Ok(())
    }

    fn next_stored(&self, after: LedgerSeq) -> Option<LedgerSeq> {
        let ranges = self.runner.store.status().ranges;
        ranges.iter().map(|range| range.first).find(|first| *first > after)
    }

    fn still_wanted(&self, work: &Work) -> bool {
        !self.stopped.load(Ordering::Relaxed) && self.orders.lock().of(work).is_some()
    }

    /// Whoever changes an order holds the program's cell first and the orders second.
    fn put(&self, cell: &mut Cell, orders: &mut Orders, order: &Order) -> Result<(), ProgramError> {
        cell.settle(&self.runner.store)?;
        if cell.deleted {
            return Err(ProgramError::Unknown(order.program));
        }
        let written = self.runner.store.change_programs(|changes| put_order(changes, order));
        if written.is_err() {
            orders.in_doubt.insert(order.program);
        }
        Ok(written?)
    }
}

/// The order of a program that is on disk.
fn stored_order(runner: &Runner, program: ProgramId) -> Result<Option<Order>, ProgramError> {
    let Some(stored) = runner.store.program_backfill(program)? else { return Ok(None) };
    let order = serde_json::from_slice(&stored).map(Order::revised);
    order.map(Some).map_err(|_| ProgramError::Damaged("the backfill of a program"))
}

/// Puts an order in its stored form. Once it is over, the ledgers that it was done with are not missing to
/// the program any more.
pub(super) fn put_order(changes: &mut ProgramChanges<'_>, order: &Order) -> Result<(), StoreError> {
    let seen = order.seen();
    if !seen.is_empty() {
        changes.put_seen(order.program, &seen, true);
    }
    let json = serde_json::to_vec(order).expect("numbers and texts serialize");
    changes.put_backfill(order.program, &json)
}
