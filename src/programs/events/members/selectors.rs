//! What selects the contracts of a project beside those that it names.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stellar_strkey::Strkey;

use crate::ProgramError;
use orrery_interfaces::NamedEvent;
use orrery_ledger::domain::{ContractId, Hash32, excerpt};
use orrery_membership::Creator;

/// Maximum number of selectors of one kind.
const MOST: usize = 200;
/// Longest name of an event or a parameter, in bytes.
const LONGEST_NAME: usize = 200;

/// What selects the contracts of a project, joined by *or*.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selectors {
    /// Contracts that events of other contracts announce.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub factories: Vec<FactorySelector>,
    /// Contracts that these accounts and contracts created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub created_by: Vec<CreatorAddress>,
    /// Contracts while they run these modules: SHA-256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wasm: Vec<Hash32>,
    /// Names of events of any contract.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<String>,
}

/// Each contract whose address this parameter of this event of a contract has had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactorySelector {
    /// The contract.
    pub contract: ContractId,
    /// Name of the event.
    pub event: String,
    /// Name of its parameter.
    pub param: String,
}

impl Display for FactorySelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "factory {}/{}.{}", self.contract, self.event, self.param)
    }
}

/// Address of an account or a contract that creates contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CreatorAddress(pub Creator);

impl FromStr for CreatorAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Strkey::from_string(text) {
            Ok(Strkey::PublicKeyEd25519(key)) => Ok(Self(Creator::Account(key.0))),
            Ok(Strkey::Contract(contract)) => Ok(Self(Creator::Contract(ContractId(contract.0)))),
            _ => Err(format!(
                "'{}' is not the address of an account or a contract: give one that begins with G or C",
                excerpt(text)
            )),
        }
    }
}

impl TryFrom<String> for CreatorAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CreatorAddress> for String {
    fn from(address: CreatorAddress) -> Self {
        address.to_string()
    }
}

impl Display for CreatorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Creator::Account(key) => {
                let text = stellar_strkey::ed25519::PublicKey(key).to_string();
                f.write_str(text.as_str())
            }
            Creator::Contract(contract) => Display::fmt(&contract, f),
            // No address stands for these.
            Creator::Asset | Creator::Unread => Ok(()),
        }
    }
}

impl Selectors {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether they select contracts, and not only names of events.
    pub fn have_members(&self) -> bool {
        !(self.factories.is_empty() && self.created_by.is_empty() && self.wasm.is_empty())
    }

    /// Returns them without repetitions, in their order.
    ///
    /// # Errors
    /// [`ProgramError::Value`] when there are too many, or a name cannot be that of an event.
    pub(crate) fn checked(mut self) -> Result<Self, ProgramError> {
        retain_first(&mut self.factories);
        retain_first(&mut self.created_by);
        retain_first(&mut self.wasm);
        retain_first(&mut self.all);
        let counts = [
            ("factories", self.factories.len()),
            ("created_by", self.created_by.len()),
            ("wasm", self.wasm.len()),
            ("all", self.all.len()),
        ];
        for (name, count) in counts {
            if count > MOST {
                let problem = format!("has {count} selectors: a project may have {MOST}");
                return Err(ProgramError::Value { name, problem });
            }
        }
        for FactorySelector { event, param, .. } in &self.factories {
            check_name("factories", event)?;
            check_name("factories", param)?;
        }
        self.all.iter().try_for_each(|name| check_name("all", name))?;
        Ok(self)
    }

    /// Whether declared events of this name are selected whatever contract emitted them.
    pub(crate) fn selects_all_called(&self, name: &str) -> bool {
        self.all.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
    }

    /// Whether an event is selected by what it is called, whatever contract emitted it.
    pub(crate) fn selects_by_name(&self, event: &NamedEvent<'_>) -> bool {
        self.all.iter().any(|wanted| event.is_called(wanted))
    }
}

fn retain_first<T: Clone + PartialEq>(all: &mut Vec<T>) {
    let mut kept: Vec<T> = Vec::with_capacity(all.len().min(MOST));
    for one in all.drain(..) {
        // More than the maximum is refused, so no long list is compared.
        if kept.len() > MOST || !kept.contains(&one) {
            kept.push(one);
        }
    }
    *all = kept;
}

fn check_name(selector: &'static str, name: &str) -> Result<(), ProgramError> {
    if (1..=LONGEST_NAME).contains(&name.len()) {
        return Ok(());
    }
    let shown = excerpt(name);
    let problem = format!("has the name '{shown}': give the name of an event, and of a parameter");
    Err(ProgramError::Value { name: selector, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_stored_as_they_are_given() {
        let contract = ContractId([7; 32]);
        let selectors = Selectors {
            factories: vec![FactorySelector {
                contract,
                event: "add_pool".to_owned(),
                param: "value_1".to_owned(),
            }],
            created_by: vec![
                CreatorAddress(Creator::Contract(contract)),
                CreatorAddress(Creator::Account([9; 32])),
            ],
            wasm: vec![Hash32([3; 32])],
            all: vec!["transfer".to_owned()],
        };
        let stored = serde_json::to_string(&selectors).unwrap();
        assert_eq!(serde_json::from_str::<Selectors>(&stored).unwrap(), selectors);
        let twice = Selectors {
            all: vec!["transfer".to_owned(), "transfer".to_owned()],
            ..Selectors::default()
        };
        assert_eq!(twice.checked().unwrap().all, ["transfer"]);
        assert!("M".parse::<CreatorAddress>().is_err());
        let unnamed = Selectors { all: vec![String::new()], ..Selectors::default() };
        assert!(unnamed.checked().is_err());
        let many = (0..=MOST).map(|at| format!("e{at}")).collect();
        assert!(Selectors { all: many, ..Selectors::default() }.checked().is_err());
    }
}
