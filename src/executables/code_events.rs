//! The feed consumer that keeps what events say of what contracts run. It needs no transactions, so it knows of
//! ledgers of which these were removed, or never kept, before the index of executables had read them.

use std::ops::ControlFlow;

use parking_lot::Mutex;

use super::emitted::{self, Emitted};
use super::rows::Inverted;
use super::updates::Update;
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::{
    ConsumerEffects, ConsumerSpec, ConsumerView, FedLedger, Gathers, LedgerConsumer, Needs,
    RowBounds, RowCodec, RowFlow, StartPosition, Store, StoreError, Table, TransactionPosition,
};

/// Name of the feed consumer.
pub const CODE_EVENTS: &str = "code_events";

/// What the events of contracts say of their own changes, by transaction, the latest first.
const UPDATES: Table<(ContractId, Inverted), Update> = Table::new("updates");
/// Hashes of the transactions with such events.
const TRANSACTIONS: Table<TransactionPosition, Hash32> = Table::new("transactions");
/// Contracts that emitted events: the first transaction with one.
const EMITTERS: Table<ContractId, TransactionPosition> = Table::new("emitters");

/// What each ledger says.
const EMITTED: Gathers = Gathers { consumer: CODE_EVENTS, from: emitted::gather };

/// Somebody else who keeps what the events of some ledgers say. It is told again where the rows of a step were not
/// written, so it must not matter how often.
pub type Tell = fn(&Store, &[Emitted]) -> Result<(), StoreError>;

/// Feed consumer that keeps what events say of what contracts run.
#[derive(Debug, Default)]
pub struct CodeEvents {
    tell: Option<Tell>,
    /// What the ledgers of this step say.
    to_tell: Mutex<Vec<Emitted>>,
}

impl CodeEvents {
    /// A consumer that tells somebody else, too, before it keeps something itself.
    pub fn telling(tell: Tell) -> Self {
        Self { tell: Some(tell), to_tell: Mutex::default() }
    }
}

impl LedgerConsumer for CodeEvents {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CODE_EVENTS,
            families: &[UPDATES.family, TRANSACTIONS.family, EMITTERS.family],
            needs: Needs::EVENTS,
            start: StartPosition::FirstLedger,
        }
    }

    fn gathers(&self) -> Option<Gathers> {
        Some(EMITTED)
    }

    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        let ledger = ledger.ledger;
        let emitted = emitted_in(store, ledger)?;
        for (contract, emitter) in &emitted.emitters {
            let first = TransactionPosition { ledger, application_order: emitter.first };
            // Ledgers may arrive in any order.
            if EMITTERS.get(effects, contract)?.is_none_or(|known| first < known) {
                EMITTERS.put(effects, contract, &first)?;
            }
        }
        for ((contract, application_order), steps) in &emitted.updates {
            let at = TransactionPosition { ledger, application_order: *application_order };
            let update = Update::of_all(&steps.updates);
            UPDATES.put(effects, &(*contract, Inverted(at)), &update)?;
            TRANSACTIONS.put(effects, &at, &steps.transaction)?;
        }
        if self.tell.is_some() && !emitted.emitters.is_empty() {
            self.to_tell.lock().push(emitted);
        }
        Ok(())
    }

    fn finish_step(&self, store: &Store) -> Result<(), StoreError> {
        let emitted = std::mem::take(&mut *self.to_tell.lock());
        match self.tell {
            Some(tell) if !emitted.is_empty() => tell(store, &emitted),
            _ => Ok(()),
        }
    }

    fn on_step_failed(&self) {
        self.to_tell.lock().clear();
    }
}

/// Returns what the stored events of a ledger say.
fn emitted_in(store: &Store, ledger: LedgerSeq) -> Result<Emitted, StoreError> {
    let gathered = store.take_gathered(&EMITTED, ledger);
    // Where contracts are listed, a ledger has events that are not stored.
    let is_listed = store.ledger(ledger)?.is_some_and(|row| row.indexed_as.listed_contracts);
    match gathered.filter(|_| !is_listed).and_then(|gathered| Emitted::decode(&gathered)) {
        Some(emitted) => Ok(emitted),
        None => Emitted::stored(store, ledger),
    }
}

/// A snapshot of what events say.
pub(super) struct EventRows<'s> {
    view: ConsumerView<'s>,
    /// Place in the feed up to which it has what all ledgers say.
    place: u64,
}

impl<'s> EventRows<'s> {
    /// Takes a snapshot; `None` where nobody keeps it.
    pub fn new(store: &'s Store) -> Result<Option<Self>, StoreError> {
        // Read before the snapshot, which then has the rows of all ledgers up to this place.
        let Some(consumer) = store.consumer(CODE_EVENTS) else { return Ok(None) };
        let view = store.consumer_view(CODE_EVENTS, RowBounds::none())?;
        Ok(Some(Self { view, place: consumer.place }))
    }

    pub fn place(&self) -> u64 {
        self.place
    }

    /// Returns the first transaction in which a contract emitted an event.
    pub fn first_of(
        &self,
        contract: &ContractId,
    ) -> Result<Option<TransactionPosition>, StoreError> {
        EMITTERS.get(&self.view, contract)
    }

    /// Returns the hash of a transaction in which a contract changed its executable.
    pub fn hash_of(&self, at: TransactionPosition) -> Result<Option<Hash32>, StoreError> {
        TRANSACTIONS.get(&self.view, &at)
    }

    /// Returns what is said of the changes of a contract in a transaction.
    pub fn in_transaction(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
    ) -> Result<Option<Update>, StoreError> {
        UPDATES.get(&self.view, &(*contract, Inverted(at)))
    }

    /// Returns the last change of a contract at or before a position.
    pub fn at_or_before(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
    ) -> Result<Option<(TransactionPosition, Update)>, StoreError> {
        let (mut found, from) = (None, (*contract, Inverted(at)));
        UPDATES.scan(&self.view, contract, Some(&from), |(_, Inverted(at)), update| {
            found = Some((at, update));
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Returns the first change of a contract after a position.
    pub fn after(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
    ) -> Result<Option<(TransactionPosition, Update)>, StoreError> {
        let mut found = None;
        self.visit_from(contract, at, |next, update| {
            if next == at {
                return Ok(ControlFlow::Continue(()));
            }
            found = Some((next, update));
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Visits the changes of a contract from a position on, in the order of the chain, until `visit` breaks.
    pub fn visit_from(
        &self,
        contract: &ContractId,
        from: TransactionPosition,
        mut visit: impl FnMut(TransactionPosition, Update) -> RowFlow,
    ) -> Result<(), StoreError> {
        UPDATES.scan_back(
            &self.view,
            contract,
            &(*contract, Inverted(from)),
            |(_, Inverted(at)), update| -> RowFlow { visit(at, update) },
        )
    }

    /// Visits the changes of a contract, the latest first, until `visit` breaks.
    pub fn visit_latest(
        &self,
        contract: &ContractId,
        mut visit: impl FnMut(TransactionPosition, Update) -> RowFlow,
    ) -> Result<(), StoreError> {
        UPDATES.scan(&self.view, contract, None, |(_, Inverted(at)), update| visit(at, update))?;
        Ok(())
    }
}
