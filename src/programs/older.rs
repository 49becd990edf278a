//! Works off backfills: programs on ledgers that were stored before, beside the new ones. One thread
//! takes the orders by turns, a few ledgers at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::ProgramError;
use super::backfill::{Order, State};
use super::feeder::Feeder;
use super::records::RunSource;
use super::registry::{Cell, Entry, Registry};
use super::runner::{Effects, RETRY, Runner};
use crate::domain::{LedgerRange, LedgerSeq, ProgramId};
use crate::observe::health::Health;
use crate::store::ProgramChanges;

/// Name under which trouble is reported.
const COMPONENT: &str = "program backfill";
/// How long one order is worked on before the next one's turn.
const TURN: Duration = Duration::from_millis(250);

/// All orders.
pub(super) struct Older {
    runner: Arc<Runner>,
    registry: Arc<Registry>,
    feeder: Arc<Feeder>,
    health: Arc<Health>,
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Default)]
struct Orders {
    by_program: BTreeMap<ProgramId, Order>,
    /// The program that had the last turn.
    last: ProgramId,
    stopped: bool,
}

impl Older {
    /// Reads the orders that are stored.
    pub(super) fn open(
        runner: &Arc<Runner>,
        registry: &Arc<Registry>,
        feeder: &Arc<Feeder>,
        health: Arc<Health>,
    ) -> Result<Self, ProgramError> {
        let mut orders = Orders::default();
        for entry in registry.all() {
            let Some(stored) = runner.store.program_backfill(entry.id)? else { continue };
            let order = serde_json::from_slice(&stored)
                .map_err(|_| ProgramError::Damaged("the backfill of a program"))?;
            orders.by_program.insert(entry.id, order);
        }
        Ok(Self {
            runner: Arc::clone(runner),
            registry: Arc::clone(registry),
            feeder: Arc::clone(feeder),
            health,
            orders: Mutex::new(orders),
            changed: Condvar::new(),
        })
    }

    /// A new order. It is on disk when this returns.
    pub(super) fn begin(&self, entry: &Entry, ledgers: LedgerRange) -> Result<Order, ProgramError> {
        let program = entry.id;
        let cell = entry.cell.lock();
        let mut orders = self.orders.lock();
        if orders.by_program.get(&program).is_some_and(|order| order.state == State::Running) {
            return Err(ProgramError::BackfillRuns(program));
        }
        let order = Order::new(program, self.stored_part(ledgers));
        self.put(&cell, &order)?;
        orders.by_program.insert(program, order.clone());
        self.changed.notify_all();
        Ok(order)
    }

    /// Ends an order.
    pub(super) fn cancel(&self, entry: &Entry) -> Result<Order, ProgramError> {
        let program = entry.id;
        let cell = entry.cell.lock();
        let mut orders = self.orders.lock();
        let order = orders.by_program.get_mut(&program).ok_or(ProgramError::NoBackfill(program))?;
        if order.state == State::Running {
            let cancelled = Order { state: State::Cancelled, ..order.clone() };
            self.put(&cell, &cancelled)?;
            *order = cancelled;
        }
        Ok(order.clone())
    }

    /// The last order of a program.
    pub(super) fn order(&self, program: ProgramId) -> Option<Order> {
        self.orders.lock().by_program.get(&program).cloned()
    }

    /// A program is gone.
    pub(super) fn forget(&self, program: ProgramId) {
        self.orders.lock().by_program.remove(&program);
    }

    /// Ends [`Self::work`].
    pub(super) fn stop(&self) {
        self.orders.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Works until stopped.
    pub(super) fn work(&self) {
        while let Some(order) = self.next() {
            let program = order.program;
            match self.turn(order) {
                Ok(()) => {
                    if self.health.is_down(COMPONENT) {
                        self.health.forget(COMPONENT);
                    }
                }
                Err(error) => {
                    tracing::error!(%program, "a backfill cannot go on: {error}");
                    self.health.down(COMPONENT, format!("program {program}: {error}"));
                    let mut orders = self.orders.lock();
                    if !orders.stopped {
                        self.changed.wait_for(&mut orders, RETRY);
                    }
                }
            }
        }
    }

    /// Waits for the order whose turn is next; none when stopped.
    fn next(&self) -> Option<Order> {
        let mut orders = self.orders.lock();
        loop {
            if orders.stopped {
                return None;
            }
            let running = |order: &&Order| order.state == State::Running;
            let waiting = orders.by_program.values().filter(running);
            let after = waiting.clone().find(|order| order.program > orders.last);
            if let Some(order) = after.or_else(|| waiting.clone().next()).cloned() {
                orders.last = order.program;
                return Some(order);
            }
            self.changed.wait(&mut orders);
        }
    }

    fn turn(&self, mut order: Order) -> Result<(), ProgramError> {
        let Some(entry) = self.registry.get(order.program) else {
            self.forget(order.program);
            return Ok(());
        };
        let until = Instant::now() + TURN;
        while order.state == State::Running && Instant::now() < until {
            self.ledger(&entry, &mut order)?;
            if !self.still_wanted(&order) {
                return Ok(());
            }
        }
        // Ledgers without runs are not worth a write each.
        let cell = entry.cell.lock();
        let mut orders = self.orders.lock();
        match orders.by_program.get_mut(&order.program) {
            Some(known) if known.state == State::Running => {
                self.put(&cell, &order)?;
                *known = order;
            }
            _ => {}
        }
        Ok(())
    }

    /// Runs the program on the order's next ledger.
    fn ledger(&self, entry: &Entry, order: &mut Order) -> Result<(), ProgramError> {
        let store = &self.runner.store;
        let ledger = order.next;
        if store.range_of(ledger).is_none() {
            // Everything up to the next stored ledger is missing.
            let next = self.next_stored(ledger).filter(|next| *next <= order.ledgers.last);
            let end = next.map_or(u64::from(order.ledgers.last.0) + 1, |next| u64::from(next.0));
            order.missing += end - u64::from(ledger.0);
            order.reached(next);
            return Ok(());
        }
        let manifest = entry.cell.lock().manifest.clone();
        if !store.touches(ledger, &manifest.contracts)? {
            order.reached(ledger.next());
            return Ok(());
        }
        let effects = Effects::none(&manifest, ledger, RunSource::Backfill);
        let effects = self.runner.run(entry, &manifest.contracts, effects, None)?;
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
        Ok(())
    }

    fn next_stored(&self, after: LedgerSeq) -> Option<LedgerSeq> {
        let ranges = self.runner.store.status().ranges;
        ranges.iter().map(|range| range.first).find(|first| *first > after)
    }

    /// Nobody has to wait for ledgers beyond all that are stored.
    fn stored_part(&self, ledgers: LedgerRange) -> LedgerRange {
        let latest = self.runner.store.status().latest().unwrap_or(ledgers.first);
        LedgerRange { first: ledgers.first, last: ledgers.last.min(latest.max(ledgers.first)) }
    }

    fn still_wanted(&self, order: &Order) -> bool {
        let orders = self.orders.lock();
        let known = orders.by_program.get(&order.program);
        !orders.stopped && known.is_some_and(|known| known.state == State::Running)
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
