//! The contracts that events of factories announce.

use super::selectors::FactorySelector;
use crate::ProgramError;
use crate::events::examining::Declaring;
use crate::events::logged::LoggedEvent;
use crate::events::values::values;
use orrery_interfaces::NamedEvent;
use orrery_ledger::domain::ContractId;
use orrery_store::TransactionPosition;

/// Finds the contracts that events announce.
pub struct Announcing<'a, 'd> {
    declaring: &'a Declaring<'d>,
    factories: &'a [FactorySelector],
}

/// What an event announces.
pub struct Announced {
    /// The numbers of the selectors, with the contracts.
    pub contracts: Vec<(u8, ContractId)>,
    /// Whether all interfaces that may declare the event are known.
    pub is_sure: bool,
}

impl<'a, 'd> Announcing<'a, 'd> {
    pub fn new(declaring: &'a Declaring<'d>, factories: &'a [FactorySelector]) -> Self {
        Self { declaring, factories }
    }

    /// Returns what an event announces.
    pub fn announced(
        &self,
        event: &LoggedEvent<'_>,
        at: TransactionPosition,
    ) -> Result<Announced, ProgramError> {
        let (candidates, is_sure) = match event.is_system {
            true => (Vec::new(), true),
            false => self.declaring.candidates(event, at)?,
        };
        let (topics, data) = values(event);
        let tried = candidates.iter().map(|(_, known)| &**known);
        let matched = self.declaring.interfaces.declaration(event.id, tried, (&topics, &data));
        let mut contracts = Vec::new();
        if let Some(named) = NamedEvent::of(matched, &topics, &data) {
            // At most 200.
            for (number, factory) in (0..).zip(self.factories) {
                if factory.contract == event.contract && named.is_called(&factory.event) {
                    let contract = named.contract(&factory.param);
                    contracts.extend(contract.map(|contract| (number, contract)));
                }
            }
        }
        Ok(Announced { contracts, is_sure })
    }
}
