//! `orrery types --events`: the types of decoded events, as answers, streams and webhooks have them.

mod python;
mod shape;
mod typescript;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Display;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::domain::ContractId;
use orrery::interfaces::{Interface, asset_contract};

use super::super::remote::Remote;
use super::super::{Failure, output};
use super::Language;
use shape::Shapes;

/// Prints the types of the events that these contracts declare.
pub fn run(remote: &Remote, contracts: &[ContractId], language: Language) -> Result<(), Failure> {
    let mut shapes = Shapes::default();
    let mut seen = BTreeSet::new();
    for contract in contracts {
        let found = declared(remote, *contract)?;
        // Tokens and pools often have the same code.
        if seen.insert((found.spec.clone(), found.earlier.clone())) {
            let interfaces = found.interfaces()?;
            shapes.add(&interfaces.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        }
    }
    if shapes.events.is_empty() {
        let names: Vec<String> = contracts.iter().map(ToString::to_string).collect();
        return Err(Failure::failed(format!(
            "no event is declared by {}, so that answers have no names for its events: \
             `orrery watch NAME --contract C…` makes tables of them",
            names.join(", ")
        )));
    }
    output::print(&match language {
        Language::Ts => typescript::of(&shapes),
        Language::Python => python::of(&shapes),
    })
}

/// What a contract declares.
struct Declared {
    contract: ContractId,
    /// The entries of its interface in base64; `None` for the contract of an asset.
    spec: Option<String>,
    /// Those of the code that it ran before, whose events are stored, too.
    earlier: Vec<String>,
}

impl Declared {
    /// Returns its interfaces, the present one first.
    fn interfaces(&self) -> Result<Vec<Cow<'static, Interface>>, Failure> {
        let Some(spec) = &self.spec else { return Ok(vec![Cow::Borrowed(asset_contract())]) };
        let failed = |error: &dyn Display| {
            let contract = self.contract;
            Failure::failed(format!("the interface of {contract} cannot be read: {error}"))
        };
        let interface = |spec: &String| {
            let sections = STANDARD.decode(spec).map_err(|error| failed(&error))?;
            let interface = Interface::from_sections(&sections).map_err(|error| failed(&error))?;
            Ok::<_, Failure>(Cow::Owned(interface))
        };
        let mut interfaces = vec![interface(spec)?];
        // One that cannot be read gives no event a name.
        interfaces.extend(self.earlier.iter().filter_map(|spec| interface(spec).ok()));
        Ok(interfaces)
    }
}

/// Asks the service what a contract declares.
fn declared(remote: &Remote, contract: ContractId) -> Result<Declared, Failure> {
    let known = remote.get(&format!("contracts/{contract}?spec=true"))?.json()?;
    if known["executable"]["stellar_asset"] == true {
        return Ok(Declared { contract, spec: None, earlier: Vec::new() });
    }
    let earlier = known["earlier_specs"].as_array().into_iter().flatten();
    let earlier = earlier.filter_map(|spec| spec.as_str().map(str::to_owned)).collect();
    match (known["spec"].as_str(), known["interface_unknown_because"].as_str()) {
        (Some(spec), _) => Ok(Declared { contract, spec: Some(spec.to_owned()), earlier }),
        (None, Some(because)) => Err(Failure::failed(format!(
            "the interface of {contract} is not known: {because}; the names of events come from it, so \
             leave the contract out, or wait until it is known"
        ))),
        (None, None) => Err(Failure::failed(format!(
            "the service does not send the interface of {contract}: is it an older version?"
        ))),
    }
}
