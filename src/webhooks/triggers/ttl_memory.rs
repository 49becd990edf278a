//! What looks at expiring entries keep in memory from one to the next. It follows from what is stored.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Sources;
use super::ttl_notes::LOOKED;
use orrery_contract_data::{AllChanged, CodeLives, all_changed_in};
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{Mark, Rows, StoreError};

/// What is kept in memory from one look to the next.
#[derive(Default)]
pub(crate) struct TtlMemory {
    /// Times to live of modules.
    pub codes: CodeLives,
    /// What the transactions of a ledger changed.
    changed: Option<(LedgerSeq, Arc<AllChanged>)>,
    /// The members of projects at which subscriptions have looked, all of them.
    pub looked: HashMap<u32, Arc<[ContractId]>>,
    /// The members at which one subscription has looked, each with the first ledger.
    looked_since: Option<(u32, Arc<BTreeMap<ContractId, LedgerSeq>>)>,
}

impl TtlMemory {
    /// Forgets at whom subscriptions have looked, because that may not have been written.
    pub fn forget_looks(&mut self) {
        self.looked.clear();
    }

    /// Returns what the transactions of a ledger changed.
    pub fn changed(
        &mut self,
        sources: &Sources<'_>,
        ledger: LedgerSeq,
    ) -> Result<Arc<AllChanged>, StoreError> {
        if let Some((of, changed)) = &self.changed
            && *of == ledger
        {
            return Ok(Arc::clone(changed));
        }
        let changed = Arc::new(all_changed_in(sources.store, ledger)?);
        self.changed = Some((ledger, Arc::clone(&changed)));
        Ok(changed)
    }

    /// Returns the members at which a subscription has looked, each with the first ledger.
    pub fn looked_since(
        &mut self,
        rows: &dyn Rows,
        subscription: u32,
    ) -> Result<Arc<BTreeMap<ContractId, LedgerSeq>>, StoreError> {
        if let Some((of, looked)) = &self.looked_since
            && *of == subscription
        {
            return Ok(Arc::clone(looked));
        }
        let mut looked = BTreeMap::new();
        LOOKED.scan(rows, &(Mark, subscription), None, |(_, contract), since| {
            looked.insert(contract, since);
            Ok(ControlFlow::Continue(()))
        })?;
        let looked = Arc::new(looked);
        self.looked_since = Some((subscription, Arc::clone(&looked)));
        Ok(looked)
    }
}
