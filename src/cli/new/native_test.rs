//! Generates a first test for a program whose functions are still empty: a call of one of them with
//! values of the right types, and the row that it is expected to emit.

use std::collections::BTreeSet;

use super::functions::Program;
use super::imports::Imports;
use super::interface::{Body, Definition, Field, Interface, Variant};
use super::kind::Kind;
use super::rust;

/// Maximum number of values generated for one argument; `todo!` stands for any further ones.
const MAX_VALUES: usize = 40;

/// Names that the test itself uses.
const TEST_VARIABLES: [&str; 8] =
    ["client", "contract", "emitted", "env", "expected", "row", "rows", "start"];

/// Returns `src/test.rs`.
pub fn source(program: &Program<'_>) -> String {
    let Program { interface, contract, example, row } = program;
    let mut values =
        Values { interface, imports: Imports::default(), remaining: MAX_VALUES, indent: 4 };
    let mut taken: BTreeSet<String> = TEST_VARIABLES.map(str::to_owned).into();
    let constructor = interface.functions.iter().find(|one| one.name == "__constructor");
    let constructor = constructor.map_or(&[][..], |one| &one.parameters);
    let (begin, given) = values.locals(constructor, &mut taken);
    let given = match given.as_slice() {
        [] => "()".to_owned(),
        [one] => format!("({one},)"),
        several => format!("({})", several.join(", ")),
    };
    let (text, locals) = values.locals(&example.parameters, &mut taken);
    let names = example.parameters.iter().map(|one| &one.name);
    let locals: Vec<(&String, String)> = names.zip(locals).collect();
    let arguments: Vec<_> = locals.iter().map(|(_, local)| format!("&{local}")).collect();
    let fields = row.fields.iter().map(|(field, value)| {
        match locals.iter().find(|(name, _)| **name == field.name) {
            Some((name, local)) if *name == local => local.clone(),
            Some((name, local)) => format!("{name}: {local}"),
            None => format!("{}: {value}", field.name),
        }
    });
    let expected = rust::literal(&row.name, &fields.collect::<Vec<_>>(), 4);
    let (name, table) = (&example.name, &row.table);
    let call = rust::list(&format!("client.{name}"), &arguments, ";", 4);
    let addresses = if values.imports.sdk.contains("Address") {
        "use soroban_sdk::testutils::Address as _;\n"
    } else {
        ""
    };
    let sdk = rust::import("soroban_sdk", &values.imports.sdk);
    let libraries = match format!("{addresses}{sdk}") {
        none if none.is_empty() => none,
        some => format!("{some}\n"),
    };
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

/// Generator of values.
struct Values<'a> {
    interface: &'a Interface,
    /// Imports that the values need.
    imports: Imports,
    /// Number of values that may still be generated for the current argument.
    remaining: usize,
    /// Indentation of the line on which the next value begins, in spaces.
    indent: usize,
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
            text.push_str(&format!("    let {name}: {kind} = {};\n", self.value(kind)));
            names.push(name);
        }
        (text, names)
    }

    /// Returns an expression for a value whose type can be inferred from its context.
    fn value(&mut self, kind: &Kind) -> String {
        let Some(left) = self.remaining.checked_sub(1) else {
            return "todo!(\"a value\")".to_owned();
        };
        self.remaining = left;
        match kind {
            Kind::Plain("bool") => "true".to_owned(),
            Kind::Plain("()") => "()".to_owned(),
            Kind::Plain(_) => "1".to_owned(),
            Kind::Sdk(name) => self.of_sdk(name),
            Kind::Option(_) => "None".to_owned(),
            Kind::BytesN(count) => {
                self.of_sdk("BytesN");
                format!("BytesN::from_array(&env, &[0; {count}])")
            }
            Kind::Vec(_) => self.of_sdk("Vec"),
            Kind::Map(..) => self.of_sdk("Map"),
            Kind::Tuple(values) => format!("({},)", self.all(values)),
            Kind::Result(value, _) => format!("Ok({})", self.value(value)),
            Kind::Named(name) => match self.interface.definition(name) {
                Some(definition) => self.defined(definition),
                None if self.interface.undefined.contains(name) => self.of_sdk("Val"),
                None => format!("todo!(\"a value of {name}\")"),
            },
        }
    }

    fn of_sdk(&mut self, name: &str) -> String {
        let own_error = self.interface.definition(rust::ERROR).filter(|_| name == rust::ERROR);
        if let Some(definition) = own_error {
            return self.defined(definition);
        }
        let needed = if name == "MuxedAddress" { "Address" } else { name };
        self.imports.sdk.insert(needed.to_owned());
        match name {
            "Vec" => "Vec::new(&env)",
            "Map" => "Map::new(&env)",
            "Val" => "Val::VOID.to_val()",
            "Error" => "Error::from_contract_error(1)",
            "Timepoint" => "Timepoint::from_unix(&env, 1_700_000_000)",
            "Duration" => "Duration::from_seconds(&env, 60)",
            "U256" => "U256::from_u32(&env, 1)",
            "I256" => "I256::from_i32(&env, 1)",
            "Bytes" => "Bytes::new(&env)",
            "String" => "String::from_str(&env, \"text\")",
            "Symbol" => "Symbol::new(&env, \"name\")",
            "Address" => "Address::generate(&env)",
            "MuxedAddress" => "Address::generate(&env).into()",
            _ => "todo!(\"a value\")",
        }
        .to_owned()
    }

    fn defined(&mut self, definition: &Definition) -> String {
        let name = &definition.name;
        self.imports.own.insert(name.clone());
        match &definition.body {
            Body::Struct(fields) => {
                let mut values = Vec::new();
                self.indent += 4;
                for Field { name, kind, .. } in fields {
                    values.push(format!("{name}: {}", self.value(kind)));
                }
                self.indent -= 4;
                rust::literal(name, &values, self.indent)
            }
            Body::Tuple(fields) => {
                let kinds: Vec<_> = fields.iter().map(|field| field.kind.clone()).collect();
                format!("{name}({})", self.all(&kinds))
            }
            Body::Union(variants) => {
                let plain = variants.iter().find(|one| one.values.is_empty());
                match plain.or(variants.first()) {
                    Some(Variant { name: one, values, .. }) if values.is_empty() => {
                        format!("{name}::{one}")
                    }
                    Some(Variant { name: one, values, .. }) => {
                        format!("{name}::{one}({})", self.all(values))
                    }
                    None => "todo!(\"a value\")".to_owned(),
                }
            }
            Body::Enum(cases) | Body::Errors(cases) => match cases.first() {
                Some(case) => format!("{name}::{}", case.name),
                None => "todo!(\"a value\")".to_owned(),
            },
            Body::Event { .. } => "todo!(\"a value\")".to_owned(),
        }
    }

    fn all(&mut self, kinds: &[Kind]) -> String {
        let values: Vec<_> = kinds.iter().map(|kind| self.value(kind)).collect();
        values.join(", ")
    }
}
