//! Works off backfills: programs on ledgers that were stored before, beside the new ones. Their orders
//! have turns as programs have on new ledgers: one that loops does not hold up the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::ProgramError;
use super::backfill::{Order, State};
use super::feeder::Feeder;
use super::lanes::{Lane, Lanes, SHORT_TURN, Turn, held_up};
use super::records::RunSource;
use super::registry::{Cell, Entry, Registry};
use super::runner::{Effects, RETRY, Runner};
use crate::domain::{LedgerRange, LedgerSeq, ProgramId};
use crate::observe::health::Health;
use crate::store::ProgramChanges;

/// Name under which trouble is reported.
const COMPONENT: &str = "program backfill";
/// How often it is written how far an order has got, when nothing else is.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// All orders.
pub(super) struct Older {
    runner: Arc<Runner>,
    registry: Arc<Registry>,
    feeder: Arc<Feeder>,
    health: Arc<Health>,
    orders: Mutex<BTreeMap<ProgramId, Known>>,
    lanes: Lanes,
    /// Ledgers that are done in part. Nothing of them is written yet.
    begun: Mutex<HashMap<ProgramId, Effects>>,
    trouble: Mutex<BTreeMap<ProgramId, String>>,
    stopped: AtomicBool,
}

/// An order, and what of it is on disk.
struct Known {
    order: Order,
    /// When it was last written.
    written: Instant,
}

impl Known {
    fn written_now(order: Order) -> Self {
        Self { order, written: Instant::now() }
    }

    fn is_running(&self) -> bool {
        self.order.state == State::Running
    }

    /// Whether this is the order, still running, that a turn was begun with.
    fn is_same(&self, order: &Order) -> bool {
        self.is_running() && self.order.ledgers == order.ledgers
    }
}

impl Older {
    /// Reads the orders that are stored.
    pub(super) fn open(
        runner: &Arc<Runner>,
        registry: &Arc<Registry>,
        feeder: &Arc<Feeder>,
        health: Arc<Health>,
    ) -> Result<Self, ProgramError> {
        let mut orders = BTreeMap::new();
        let lanes = Lanes::default();
        for entry in registry.all() {
            let Some(stored) = runner.store.program_backfill(entry.id)? else { continue };
            let order: Order = serde_json::from_slice(&stored)
                .map_err(|_| ProgramError::Damaged("the backfill of a program"))?;
            if order.state == State::Running {
                lanes.add(entry.id);
            }
            orders.insert(entry.id, Known::written_now(order));
        }
        Ok(Self {
            runner: Arc::clone(runner),
            registry: Arc::clone(registry),
            feeder: Arc::clone(feeder),
            health,
            orders: Mutex::new(orders),
            lanes,
            begun: Mutex::default(),
            trouble: Mutex::default(),
            stopped: AtomicBool::new(false),
        })
    }

    /// A new order. It is on disk when this returns.
    pub(super) fn begin(&self, entry: &Entry, ledgers: LedgerRange) -> Result<Order, ProgramError> {
        let program = entry.id;
        let cell = entry.cell.lock();
        let mut orders = self.orders.lock();
        if orders.get(&program).is_some_and(Known::is_running) {
            return Err(ProgramError::BackfillRuns(program));
        }
        let order = Order::new(program, ledgers, self.runner.store.status().latest());
        self.put(&cell, &order)?;
        orders.insert(program, Known::written_now(order.clone()));
        // What another order of the program left half done is not for this one.
        self.begun.lock().remove(&program);
        self.lanes.add(program);
        self.lanes.wake(Some(program));
        Ok(order)
    }

    /// Ends an order.
    pub(super) fn cancel(&self, entry: &Entry) -> Result<Order, ProgramError> {
        let program = entry.id;
        let cell = entry.cell.lock();
        let mut orders = self.orders.lock();
        let known = orders.get_mut(&program).ok_or(ProgramError::NoBackfill(program))?;
        if known.is_running() {
            let cancelled = Order { state: State::Cancelled, ..known.order.clone() };
            self.put(&cell, &cancelled)?;
            *known = Known::written_now(cancelled);
        }
        Ok(known.order.clone())
    }

    /// The last order of a program.
    pub(super) fn order(&self, program: ProgramId) -> Option<Order> {
        self.orders.lock().get(&program).map(|known| known.order.clone())
    }

    /// A program is gone.
    pub(super) fn forget(&self, program: ProgramId) {
        self.lanes.remove(program);
        self.orders.lock().remove(&program);
        self.begun.lock().remove(&program);
        self.is_well(program);
    }

    /// Ends [`Self::work`].
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.lanes.stop();
    }

    /// Works until stopped.
    pub(super) fn work(&self, lane: Lane) {
        self.lanes.work(lane, |program| match self.turn(program) {
            Ok(turn) => {
                self.is_well(program);
                turn
            }
            Err(error) => {
                tracing::error!(%program, "a backfill cannot go on: {error}");
                self.trouble.lock().insert(program, error.to_string());
                self.report();
                Turn::Failed(RETRY)
            }
        });
    }

    fn is_well(&self, program: ProgramId) {
        if self.trouble.lock().remove(&program).is_some() {
            self.report();
        }
    }

    fn report(&self) {
        match self.trouble.lock().first_key_value() {
            None => self.health.forget(COMPONENT),
            Some((program, reason)) => {
                self.health.down(COMPONENT, format!("program {program}: {reason}"));
            }
        }
    }

    /// A turn of an order: as many ledgers as there is time for, or a part of one.
    fn turn(&self, program: ProgramId) -> Result<Turn, ProgramError> {
        let Some(entry) = self.registry.get(program) else {
            self.forget(program);
            return Ok(Turn::Idle);
        };
        let order = self.order(program).filter(|order| order.state == State::Running);
        let Some(mut order) = order else { return Ok(Turn::Idle) };
        let begun = Instant::now();
        let worked = self.ledgers(&entry, &mut order, begun);
        if !self.still_wanted(&order) {
            return Ok(Turn::Idle);
        }
        // What was done before something failed is done, and is not done again.
        self.keep(&entry, order)?;
        worked.map(|()| Turn::Worked { held_up: held_up(begun) })
    }

    /// Ledgers of an order until it is over, or its time is.
    fn ledgers(
        &self,
        entry: &Entry,
        order: &mut Order,
        begun: Instant,
    ) -> Result<(), ProgramError> {
        let mut done = true;
        while done && order.state == State::Running && begun.elapsed() < SHORT_TURN {
            done = self.ledger(entry, order, begun + SHORT_TURN)? && self.still_wanted(order);
        }
        Ok(())
    }

    /// Takes over how far an order has got.
    fn keep(&self, entry: &Entry, order: Order) -> Result<(), ProgramError> {
        let cell = entry.cell.lock();
        let mut orders = self.orders.lock();
        let Some(known) = orders.get_mut(&order.program).filter(|known| known.is_same(&order))
        else {
            return Ok(());
        };
        // Ledgers without runs are not worth a write each.
        if order.state != State::Running || known.written.elapsed() > WRITE_EVERY {
            self.put(&cell, &order)?;
            *known = Known::written_now(order);
        } else {
            known.order = order;
        }
        Ok(())
    }

    /// Runs the program on the order's next ledger, or on a part of it when there is no more time. Says
    /// whether the ledger is done.
    fn ledger(
        &self,
        entry: &Entry,
        order: &mut Order,
        until: Instant,
    ) -> Result<bool, ProgramError> {
        let store = &self.runner.store;
        let ledger = order.next;
        if store.range_of(ledger).is_none() {
            // Everything up to the next stored ledger is missing.
            let next = self.next_stored(ledger).filter(|next| *next <= order.ledgers.last);
            let end = next.map_or(u64::from(order.ledgers.last.0) + 1, |next| u64::from(next.0));
            order.missing += end - u64::from(ledger.0);
            order.reached(next);
            return Ok(true);
        }
        let manifest = entry.cell.lock().manifest.clone();
        if !store.touches(ledger, &manifest.contracts)? {
            order.reached(ledger.next());
            return Ok(true);
        }
        if self.runner.is_full(&self.registry, &manifest.owner) {
            order.state = State::Stopped;
            order.message = Some(ProgramError::Full(manifest.owner.to_string()).to_string());
            return Ok(true);
        }
        if let Some(because) = self.registry.make_ready(entry)? {
            order.state = State::Stopped;
            order.message = Some(because);
            return Ok(true);
        }
        let begun = self.begun.lock().remove(&entry.id);
        let effects = begun
            .filter(|begun| begun.ledger == ledger)
            .unwrap_or_else(|| Effects::none(&manifest, ledger, RunSource::Backfill));
        let effects = self.runner.run(entry, &manifest.contracts, effects, Some(until))?;
        if effects.rest.is_some() {
            self.begun.lock().insert(entry.id, effects);
            return Ok(false);
        }
        let written = self.runner.write(entry, &effects, |_, written| {
            order.executions += written.executions;
            order.errors += written.errors;
            order.rows += written.rows;
            order.reached(ledger.next());
            self.still_wanted(order).then(|| stored_form(order))
        })?;
        if written.is_some_and(|written| written.rows > 0) {
            self.feeder.wake();
        }
        Ok(true)
    }

    fn next_stored(&self, after: LedgerSeq) -> Option<LedgerSeq> {
        let ranges = self.runner.store.status().ranges;
        ranges.iter().map(|range| range.first).find(|first| *first > after)
    }

    fn still_wanted(&self, order: &Order) -> bool {
        let orders = self.orders.lock();
        let known = orders.get(&order.program);
        !self.stopped.load(Ordering::Relaxed) && known.is_some_and(|known| known.is_same(order))
    }

    /// Whoever changes an order holds the program's cell first and the orders second.
    fn put(&self, cell: &Cell, order: &Order) -> Result<(), ProgramError> {
        if cell.deleted {
            return Err(ProgramError::Unknown(order.program));
        }
        let change = |changes: &mut ProgramChanges<'_>| {
            changes.put_backfill(order.program, &stored_form(order))
        };
        Ok(self.runner.store.change_programs(change)?)
    }
}

fn stored_form(order: &Order) -> Vec<u8> {
    serde_json::to_vec(order).expect("numbers and texts serialize")
}
