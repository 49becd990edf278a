//! Checks the selectors of a new project against what is known of its factories.

use std::time::{Duration, Instant};

use super::selectors::{FactorySelector, Selectors};
use crate::ProgramError;
use crate::runner::Runner;
use orrery_interfaces::Interface;
use orrery_interfaces::names::folded;

/// How long factories are checked: a request waits for it.
const LONGEST_CHECK: Duration = Duration::from_secs(2);

impl Runner {
    /// Checks whether factories whose interface is known have the events and parameters that are named, as far as
    /// that can be read in some time.
    ///
    /// # Errors
    /// [`ProgramError::Value`] when one has not.
    pub(crate) fn check_factories(
        &self,
        selectors: &Selectors,
        supplied: Option<&[u8]>,
    ) -> Result<(), ProgramError> {
        if selectors.factories.is_empty() {
            return Ok(());
        }
        let supplied = supplied.map(Interface::of_events_from_file).transpose()?;
        let names = self.events.interfaces().loading_reader()?;
        let begun = Instant::now();
        for factory in &selectors.factories {
            if begun.elapsed() >= LONGEST_CHECK {
                // The others select nothing if they are wrong.
                break;
            }
            let (had, is_known) = names.had(&factory.contract, |_| true);
            let interfaces: Vec<&Interface> =
                supplied.iter().chain(had.iter().map(|tried| tried.interface())).collect();
            // Events that a contract does not declare have names, too.
            let declares = interfaces.iter().any(|interface| interface.events().next().is_some());
            if is_known && declares {
                check(factory, &interfaces)?;
            }
        }
        names.finish()?;
        Ok(())
    }
}

fn check(factory: &FactorySelector, interfaces: &[&Interface]) -> Result<(), ProgramError> {
    let FactorySelector { contract, event, param } = factory;
    let mut names: Vec<&str> = interfaces.iter().flat_map(|it| it.event_names()).collect();
    names.sort_unstable();
    names.dedup();
    let of_event: Vec<&str> =
        names.iter().copied().filter(|name| name.eq_ignore_ascii_case(event)).collect();
    if of_event.is_empty() {
        let problem = format!(
            "names the event '{event}', which {contract} does not declare: it declares {}",
            names.join(", ")
        );
        return Err(ProgramError::Value { name: "factories", problem });
    }
    let param_folded = folded(param);
    let has = |name: &&str| interfaces.iter().any(|it| it.has_parameter(name, &param_folded));
    if of_event.iter().any(has) {
        return Ok(());
    }
    let problem =
        format!("names the parameter '{param}', which the event '{event}' of {contract} has not");
    Err(ProgramError::Value { name: "factories", problem })
}
