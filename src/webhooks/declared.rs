//! What the contracts of a new subscription are known to declare, against which the names of its message are
//! checked.

use super::WebhookError;
use super::manage::{NewSubscriptions, Webhooks};
use super::message::Message;
use super::projects::Declaring;
use super::trigger::Trigger;
use orrery_conditions::check_names;
use orrery_executables::Tried;
use orrery_ledger::domain::ContractId;

/// Names that the body of every trigger has.
const OF_ALL: [&str; 10] = [
    "_ledger",
    "on",
    "contract_id",
    "ledger",
    "ledger_closed_at",
    "application_order",
    "trigger",
    "tx",
    "tx_hash",
    "transaction",
];

/// Names that the body of a trigger has besides.
fn members(trigger: &Trigger) -> &'static [&'static str] {
    match trigger {
        Trigger::Event => &[],
        Trigger::Upgrade => &["old", "new", "interface"],
        Trigger::Storage { .. } => &[
            "key_hash",
            "key",
            "key_name",
            "key_args",
            "durability",
            "change",
            "value",
            "previous",
        ],
        Trigger::Ttl { .. } => &["key_hash", "key", "entry", "live_until", "ledgers_left"],
        Trigger::FailedCall { .. } => &["function", "args", "error"],
        Trigger::Silence { .. } => &["since_ledger"],
    }
}

/// Checks whether the names of a message are those of a trigger's body.
fn check_members(message: &Message, trigger: &Trigger) -> Result<(), String> {
    let known = || OF_ALL.iter().chain(members(trigger));
    let unknown = message.template().names().find(|path| !known().any(|it| path.root.is(it)));
    unknown.map_or(Ok(()), |path| {
        let known: Vec<&str> = known().copied().collect();
        Err(format!(
            "has the name '{path}', which '{}' does not have: it has {}",
            trigger.name(),
            known.join(", ")
        ))
    })
}

impl Webhooks {
    /// Checks whether the names of a message are those of events of its contracts, as far as it is known
    /// what these declare, and whether there is a page to link to.
    ///
    /// # Errors
    /// [`WebhookError::Value`] about the first name that no declared event has, and errors of the store.
    pub(super) fn check_message(&self, wanted: &NewSubscriptions) -> Result<(), WebhookError> {
        let Some(message) = &wanted.message else { return Ok(()) };
        let refused = |problem| WebhookError::Value { name: "message", problem };
        if message.template().has_link() && self.registry.public_url().is_none() {
            let problem = "has {link}, but the operator has not said at which address others reach the \
                           service (http.public_url): leave it out";
            return Err(refused(problem.to_owned()));
        }
        if !wanted.trigger.is_event() {
            return check_members(message, &wanted.trigger).map_err(refused);
        }
        let Declaring { contracts: Some(contracts), supplied } = self.declaring(wanted)? else {
            return Ok(());
        };
        let mut declared = self.declared(&contracts)?;
        declared.extend(supplied);
        let names = message.template().names();
        check_names(names, declared.iter().map(Tried::interface))
            .map_err(|problem| refused(format!("has a name that is none: {problem}")))
    }

    /// Returns the interfaces that contracts are known to have had. What is not known is left out.
    fn declared(&self, contracts: &[ContractId]) -> Result<Vec<Tried>, WebhookError> {
        let Some(names) = self.registry.naming.reader()? else { return Ok(Vec::new()) };
        let had = contracts.iter().flat_map(|contract| names.had(contract, |_| true).0).collect();
        names.finish()?;
        Ok(had)
    }
}
