//! One event by itself: its name and its parameters, as its declaration has them, or as they are inferred
//! where it has none. What other events there are does not matter, so no name has a number of a shape or
//! version.

use std::sync::LazyLock;

use orrery_ledger::domain::ContractId;
use stellar_xdr::{ScAddress, ScVal};

use super::declaration::Matched;
use super::inferred::{Inferred, infer};
use super::names::folded;
use super::plain::Plain;
use super::types::Types;

static NO_TYPES: LazyLock<Types> = LazyLock::new(Types::default);

/// An event with its name and its parameters.
#[derive(Debug, Clone)]
pub enum NamedEvent<'a> {
    /// One that is declared.
    Declared(Matched<'a>),
    /// One without a declaration whose first topic is text.
    Inferred(Inferred<'a>),
}

impl<'a> NamedEvent<'a> {
    /// Returns what an event is called: by its declaration, if it has one, else by its topics; `None` where
    /// these begin with no text. System events have no declaration.
    pub fn of(
        declaration: Option<Matched<'a>>,
        topics: &'a [ScVal],
        data: &'a ScVal,
    ) -> Option<Self> {
        match declaration {
            Some(matched) => Some(Self::Declared(matched)),
            None => infer(topics, data).map(Self::Inferred),
        }
    }

    /// Returns the name of the event.
    pub fn name(&self) -> &str {
        match self {
            Self::Declared(matched) => matched.name(),
            Self::Inferred(inferred) => &inferred.name,
        }
    }

    /// Whether the event is called so, as SQL compares names. One without a declaration whose first two topics
    /// are text is called by both of them, too, whatever its table is called.
    pub fn is_called(&self, name: &str) -> bool {
        match self {
            Self::Declared(matched) => matched.name().eq_ignore_ascii_case(name),
            Self::Inferred(inferred) => inferred.is_called(name),
        }
    }

    /// Returns the value of a parameter, whose name is compared as SQL compares names. `None` where the
    /// event has none of this name; `Some(None)` where another form of the event has one, or this one's is
    /// absent.
    pub fn parameter(&self, name: &str) -> Option<Option<Plain<'a>>> {
        match self {
            Self::Declared(matched) => {
                let own = matched.parameters.iter().find(|it| it.name.eq_ignore_ascii_case(name));
                match own {
                    Some(own) => {
                        let types = matched.interface.types();
                        Some(Some(Plain::new(own.value, &own.declared.type_, types)))
                    }
                    None => {
                        let other = matched.interface.has_parameter(matched.name(), &folded(name));
                        other.then_some(None)
                    }
                }
            }
            Self::Inferred(inferred) => {
                let own = inferred.values.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
                own.map(|(_, value)| Some(Plain::undeclared(value, &NO_TYPES)))
            }
        }
    }

    /// Returns the contract whose address a parameter is. Lists, maps and other addresses have none.
    pub fn contract(&self, parameter: &str) -> Option<ContractId> {
        match self.parameter(parameter)??.value() {
            ScVal::Address(ScAddress::Contract(id)) => Some(ContractId(id.0.0)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use stellar_xdr::{self as xdr, ScSymbol};

    use super::*;
    use crate::bundled;

    fn symbol(text: &str) -> ScVal {
        ScVal::Symbol(ScSymbol(text.try_into().unwrap()))
    }

    fn contract(byte: u8) -> ScVal {
        ScVal::Address(ScAddress::Contract(xdr::ContractId(xdr::Hash([byte; 32]))))
    }

    #[test]
    fn an_event_without_a_declaration_has_its_topics_and_data_as_parameters() {
        let items = vec![symbol("x"), contract(7)];
        let data = ScVal::Vec(Some(items.try_into().unwrap()));
        let topics = [symbol("add_pool"), contract(9)];
        let event = NamedEvent::of(None, &topics, &data).unwrap();
        assert!(event.is_called("ADD_POOL") && !event.is_called("add_pool_2"));
        assert_eq!(event.contract("Value_2"), Some(ContractId([7; 32])));
        assert_eq!(event.contract("topic_2"), Some(ContractId([9; 32])));
        assert_eq!(event.contract("value_1"), None);
        assert!(event.parameter("value").is_none());
        assert!(NamedEvent::of(None, &[contract(1)], &data).is_none());
    }

    #[test]
    fn an_event_is_called_by_its_leading_topics_that_are_text() {
        let string = |text: &str| ScVal::String(xdr::ScString(text.try_into().unwrap()));
        let called = |topics: &[ScVal], names: [&str; 3]| {
            let event = NamedEvent::of(None, topics, &ScVal::Void).unwrap();
            names.map(|name| event.is_called(name))
        };
        let names = ["log", "LOG_new_pool", "log_new_pool_x"];
        let topics = [symbol("LOG"), symbol("NEW_POOL"), symbol("x")];
        assert_eq!(called(&topics, names), [true, true, false]);
        assert_eq!(
            called(&[symbol("LOG"), contract(1), symbol("NEW_POOL")], names),
            [true, false, false]
        );
        let names =
            ["soroswap_factory", "soroswap_factory_new_pair", "soroswap_factory_new_pair_x"];
        let topics = [string("SoroswapFactory"), symbol("new_pair"), symbol("x")];
        assert_eq!(called(&topics, names), [false, true, false]);
        assert_eq!(called(&topics[..1], names), [true, false, false]);
    }

    #[test]
    fn an_event_of_blend_has_the_parameter_of_the_interface_that_is_supplied() {
        let (topics, data) = ([symbol("deploy")], contract(5));
        let inferred = NamedEvent::of(None, &topics, &data).unwrap();
        assert_eq!(inferred.contract("value"), Some(ContractId([5; 32])));
        let blend = bundled("blend").unwrap();
        let declared = crate::declaration(&[blend], &topics, &data);
        let declared = NamedEvent::of(Some(declared.unwrap()), &topics, &data).unwrap();
        assert_eq!(declared.name(), "deploy");
        assert_eq!(declared.contract("pool_address"), Some(ContractId([5; 32])));
        assert!(declared.parameter("value").is_none());
    }
}
