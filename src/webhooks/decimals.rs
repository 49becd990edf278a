//! Decimals of the tokens in whose units messages have numbers. They are found when a delivery is made, as
//! of its ledger, and kept with it, so that each attempt says the same.

use std::cell::RefCell;
use std::collections::HashMap;

use super::message::Message;
use super::message::body::Body;
use super::naming::Naming;
use super::subscription::Subscription;
use orrery_executables::{ASSET_DECIMALS, InterfaceReader};
use orrery_ledger::domain::{ContractId, LedgerSeq, NetworkId};
use orrery_store::{EventRecord, StoreError};

/// Maximum number of tokens whose decimals are remembered.
const MOST_KNOWN: usize = 1024;

/// Finds decimals, each once for a ledger.
pub(super) struct Decimals<'a> {
    naming: &'a Naming,
    known: RefCell<HashMap<(ContractId, LedgerSeq), Option<u32>>>,
}

impl<'a> Decimals<'a> {
    /// Finds decimals in what `naming` knows.
    pub fn new(naming: &'a Naming) -> Self {
        Self { naming, known: RefCell::default() }
    }

    /// Returns the decimals for the message of a subscription about a body, as of its ledger; `asset` is a
    /// contract that is known to be that of an asset.
    pub fn of(
        &self,
        subscription: &Subscription,
        body: &[u8],
        asset: Option<ContractId>,
    ) -> Result<Vec<Option<u32>>, StoreError> {
        match &subscription.message {
            Some(message) if subscription.has_units() => self.of_message(message, body, asset),
            _ => Ok(Vec::new()),
        }
    }

    /// As [`Self::of`], for a message.
    pub fn of_message(
        &self,
        message: &Message,
        body: &[u8],
        asset: Option<ContractId>,
    ) -> Result<Vec<Option<u32>>, StoreError> {
        // A body that cannot be read has no numbers.
        let Ok(body) = Body::parse(body) else { return Ok(Vec::new()) };
        let (tokens, ledger) = (message.tokens(&body), body.ledger());
        let decimals = |token: ContractId| match asset == Some(token) {
            true => Ok(Some(ASSET_DECIMALS)),
            false => self.as_of(token, ledger),
        };
        tokens.into_iter().map(|token| token.map_or(Ok(None), decimals)).collect()
    }

    fn as_of(&self, token: ContractId, ledger: LedgerSeq) -> Result<Option<u32>, StoreError> {
        if let Some(known) = self.known.borrow().get(&(token, ledger)) {
            return Ok(*known);
        }
        let found = self.naming.decimals(&token, ledger)?;
        let mut known = self.known.borrow_mut();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert((token, ledger), found);
        Ok(found)
    }
}

/// Returns the contract that emitted an event, if its last topic names the asset that it is the contract of.
pub(super) fn asset_emitter(
    event: &EventRecord<'_>,
    network: &NetworkId,
    names: Option<&InterfaceReader<'_>>,
) -> Option<ContractId> {
    let contract = ContractId(*event.contract?);
    let topic = event.topics.last()?;
    names?.is_of_asset(network, &contract, topic).then_some(contract)
}
