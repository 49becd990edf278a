//! Generates a first test for a program whose functions are still empty: a call of one of them with
//! values of the right types, and the row that it is expected to emit.

use std::collections::BTreeSet;

use stellar_xdr::ScSpecTypeDef;

use super::functions::Program;
use super::imports::Imports;
use super::interface::{Definition, Field, Form, Interface};
use super::{kind, rust};

/// Maximum number of values generated for one argument; `todo!` stands for any further ones.
const MAX_VALUES: usize = 40;

/// Stands for a value that is not generated.
const UNKNOWN: &str = "todo!(\"a value\")";

/// Names that the test itself uses.
const TEST_VARIABLES: [&str; 8] =
    ["client", "contract", "emitted", "env", "expected", "row", "rows", "start"];

/// Returns `src/test.rs`.
pub fn source(program: &Program<'_>) -> String {
    let Program { interface, contract, example, row } = program;
    let mut values = Values { interface, imports: Imports::default(), remaining: MAX_VALUES };
    let mut taken: BTreeSet<String> = TEST_VARIABLES.map(str::to_owned).into();
    let constructor = interface.functions.iter().find(|one| one.name == "__constructor");
    let constructor = constructor.map_or(&[][..], |one| &one.parameters);
    let (begin, given) = values.locals(constructor, &mut taken);
    let given = match given.as_slice() {
        [one] => format!("({one},)"),
        several => format!("({})", several.join(", ")),
    };
    let (text, locals) = values.locals(&example.parameters, &mut taken);
    let arguments: Vec<_> = locals.iter().map(|local| format!("&{local}")).collect();
    let fields = row.fields.iter().map(|(field, value)| {
        let mut given = example.parameters.iter().zip(&locals);
        let local = given.find(|(parameter, _)| parameter.name == field.name);
        (field.name.as_str(), local.map_or(value, |(_, local)| local).clone())
    });
    let expected = rust::indented(&rust::literal(&row.name, fields), 4);
    let (name, table) = (&example.name, &row.table);
    let call = rust::list(&format!("client.{name}"), &arguments, ";", 4);
    let libraries = libraries(&values.imports);
    format!(
        "\
//! Calls of the contract in the SDK's test environment, and the rows that they emit.

mod emitted;

{libraries}{}use super::rows::{};
use super::{{{contract}, {contract}Client}};
use emitted::{{row, rows, start}};

#[test]
#[ignore = \"`{name}` is still empty\"]
fn a_call_of_{name}_is_a_row() {{
    let env = start();
{begin}    let contract = env.register({contract}, {given});
    let client = {contract}Client::new(&env, &contract);
{text}{call}    let expected = {expected};
    assert_eq!(rows(&env), [row(&env, \"{table}\", expected)]);
}}
",
        rust::import("super::interface", &values.imports.own),
        row.name,
    )
}

/// Returns the imports from libraries, with an empty line behind them if there are any.
fn libraries(imports: &Imports) -> String {
    let addresses = match imports.sdk.contains("Address") {
        true => "use soroban_sdk::testutils::Address as _;\n",
        false => "",
    };
    match format!("{addresses}{}", rust::import("soroban_sdk", &imports.sdk)) {
        none if none.is_empty() => none,
        some => format!("{some}\n"),
    }
}

/// Generator of values.
struct Values<'a> {
    interface: &'a Interface,
    /// Imports that the values need.
    imports: Imports,
    /// Number of values that may still be generated for the current argument.
    remaining: usize,
}

impl Values<'_> {
    /// Generates a variable for each parameter. Returns the lines that declare them, and their
    /// names.
    fn locals(
        &mut self,
        parameters: &[Field],
        taken: &mut BTreeSet<String>,
    ) -> (String, Vec<String>) {
        let (mut text, mut names) = (String::new(), Vec::new());
        for Field { name, kind, .. } in parameters {
            self.remaining = MAX_VALUES;
            self.imports.add(kind, self.interface);
            let name = rust::unique_name(name, taken);
            let (value, kind) = (rust::indented(&self.value(kind), 4), kind::in_rust(kind));
            text.push_str(&format!("    let {name}: {kind} = {value};\n"));
            names.push(name);
        }
        (text, names)
    }

    /// Returns an expression for a value whose type can be inferred from its context.
    fn value(&mut self, kind: &ScSpecTypeDef) -> String {
        let Some(left) = self.remaining.checked_sub(1) else {
            return UNKNOWN.to_owned();
        };
        self.remaining = left;
        match kind {
            ScSpecTypeDef::Bool => "true".to_owned(),
            ScSpecTypeDef::Void => "()".to_owned(),
            plain if kind::is_plain(plain) => "1".to_owned(),
            ScSpecTypeDef::Option(_) => "None".to_owned(),
            ScSpecTypeDef::Tuple(tuple) => format!("({},)", self.all(&tuple.value_types)),
            other => {
                let named = kind::named(other);
                let own = self.interface.definition(named.as_deref().unwrap_or(other.name()));
                match (own, named) {
                    (Some(definition), _) => self.defined(definition),
                    (None, Some(name)) if self.interface.undefined.contains(&name) => {
                        self.of_sdk(&ScSpecTypeDef::Val)
                    }
                    (None, Some(name)) => format!("todo!(\"a value of {name}\")"),
                    (None, None) => self.of_sdk(other),
                }
            }
        }
    }

    fn of_sdk(&mut self, kind: &ScSpecTypeDef) -> String {
        let (name, call): (&str, &str) = match kind {
            ScSpecTypeDef::BytesN(bytes) => {
                ("BytesN", &format!("from_array(&env, &[0; {}])", bytes.n))
            }
            ScSpecTypeDef::Vec(_) => ("Vec", "new(&env)"),
            ScSpecTypeDef::Map(_) => ("Map", "new(&env)"),
            ScSpecTypeDef::Val => ("Val", "VOID.to_val()"),
            ScSpecTypeDef::Error => ("Error", "from_contract_error(1)"),
            ScSpecTypeDef::Timepoint => ("Timepoint", "from_unix(&env, 1_700_000_000)"),
            ScSpecTypeDef::Duration => ("Duration", "from_seconds(&env, 60)"),
            ScSpecTypeDef::U256 => ("U256", "from_u32(&env, 1)"),
            ScSpecTypeDef::I256 => ("I256", "from_i32(&env, 1)"),
            ScSpecTypeDef::Bytes => ("Bytes", "new(&env)"),
            ScSpecTypeDef::String => ("String", "from_str(&env, \"text\")"),
            ScSpecTypeDef::Symbol => ("Symbol", "new(&env, \"name\")"),
            ScSpecTypeDef::Address => ("Address", "generate(&env)"),
            ScSpecTypeDef::MuxedAddress => ("Address", "generate(&env).into()"),
            _ => return UNKNOWN.to_owned(),
        };
        self.imports.sdk.insert(name.to_owned());
        format!("{name}::{call}")
    }

    fn defined(&mut self, definition: &Definition) -> String {
        let Definition { name, form, members, .. } = definition;
        self.imports.own.insert(name.clone());
        // A variant without values if there is one.
        let member = members.iter().find(|one| one.content.kinds().is_empty()).or(members.first());
        match (form, member) {
            (Form::Struct, _) => {
                let fields =
                    members.iter().map(|one| (one.name.as_str(), self.all(one.content.kinds())));
                rust::literal(name, fields)
            }
            (Form::Tuple, _) => format!("{name}({})", self.all(definition.kinds())),
            (Form::Event { .. }, _) | (_, None) => UNKNOWN.to_owned(),
            (_, Some(one)) if one.content.kinds().is_empty() => format!("{name}::{}", one.name),
            (_, Some(one)) => format!("{name}::{}({})", one.name, self.all(one.content.kinds())),
        }
    }

    fn all<'a>(&mut self, kinds: impl IntoIterator<Item = &'a ScSpecTypeDef>) -> String {
        let values: Vec<_> = kinds.into_iter().map(|kind| self.value(kind)).collect();
        values.join(", ")
    }
}
