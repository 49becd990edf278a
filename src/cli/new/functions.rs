//! Generates the sources of a program for a contract whose interface is known: its functions, with
//! bodies to fill in, and an example row for one of them.

use std::collections::BTreeSet;

use orrery::tables::{INJECTED, snake_cases};

use super::definitions;
use super::imports::Imports;
use super::interface::{Field, Function, Interface};
use super::kind::Kind;
use super::rust;

/// Maximum length of a table's name, which is a symbol, in characters.
const LONGEST_TABLE: usize = 32;
/// Value of the only field of a row when no parameter can be a column.
const LEDGER: &str = "env.ledger().sequence()";

/// Declaration of the test module in `src/lib.rs`.
const TESTS: &str = "\
#[cfg(all(test, feature = \"program\"))]
mod test;

#[cfg(test)]
extern crate std;
";

/// Parts from which the sources of a program are generated, derived from its contract's interface.
pub struct Program<'a> {
    pub interface: &'a Interface,
    /// Name of the struct that implements the contract.
    pub contract: String,
    /// The function that emits the example row.
    pub example: &'a Function,
    /// The struct that the example emits.
    pub row: Row,
}

/// A struct whose emitted values are the rows of a table.
pub struct Row {
    /// Name of the struct.
    pub name: String,
    /// Name of the table.
    pub table: String,
    /// Fields, each with the expression for its value in the function.
    pub fields: Vec<(Field, String)>,
}

impl<'a> Program<'a> {
    /// Prepares the program for a project of that name. `None` for an interface without functions,
    /// which [`Interface::of`] refuses.
    pub fn new(project: &str, interface: &'a Interface) -> Option<Self> {
        // The example is the first function with the most parameters, because functions that only
        // read, which transactions seldom call, have few. Functions whose name begins with `__` are
        // called by the network.
        let usual = interface.functions.iter().filter(|one| !one.name.starts_with("__"));
        let most = usual.clone().map(|one| one.parameters.len()).max();
        let example = usual.clone().find(|one| Some(one.parameters.len()) == most);
        let example = example.or(interface.functions.first())?;
        let contract = contract(project, &definitions::names(interface));
        Some(Self { interface, contract, example, row: Row::of(example, interface) })
    }

    /// Returns `src/lib.rs`; `about` is its first line.
    pub fn library(&self, about: &str) -> String {
        let mut imports = Imports::default();
        let kinds = self.interface.functions.iter().flat_map(Function::kinds);
        kinds.for_each(|kind| imports.add(kind, self.interface));
        imports.sdk.extend(["contract", "contractimpl", "Env"].map(str::to_owned));
        let interface = if self.has_types() { "pub mod interface;\n" } else { "" };
        let tests = if self.is_native() { TESTS } else { "" };
        let functions: Vec<_> =
            self.interface.functions.iter().map(|it| self.function(it)).collect();
        let own = rust::import("interface", &imports.own);
        let own = if own.is_empty() { own } else { format!("\n{own}") };
        format!(
            "\
//! {about}
//!
//! The functions have the names, parameters and results of the contract's. Each must do what the contract's function
//! does, as far as its rows, its result and other contracts depend on it. It runs on the state before the transaction,
//! and its writes are discarded. `orrery try` reports whether it did everything that the contract did.
#![no_std]
// Needed while functions are empty.
#![allow(unused_variables)]

{interface}#[cfg(feature = \"program\")]
pub mod rows;
{tests}
{}{own}
#[contract]
pub struct {};

#[contractimpl]
impl {} {{
{}}}
",
            rust::import("soroban_sdk", &imports.sdk),
            self.contract,
            self.contract,
            functions.join("\n"),
        )
    }

    /// Returns `src/rows.rs`.
    pub fn rows(&self) -> String {
        let mut imports = Imports::default();
        self.row.fields.iter().for_each(|(field, _)| imports.add(&field.kind, self.interface));
        imports.sdk.insert("contracttype".to_owned());
        let own = rust::import("crate::interface", &imports.own);
        let own = if own.is_empty() { own } else { format!("\n{own}") };
        let fields = self.row.fields.iter();
        let fields: String =
            fields.map(|(field, _)| format!("    pub {}: {},\n", field.name, field.kind)).collect();
        format!(
            "\
//! The rows of the program: each struct is a table, and its fields are columns.

use retroshade_sdk::Retroshade;
{}{own}
// An example: a row of the table `{}` for each call of `{}`.
#[derive(Clone, Debug, Retroshade)]
#[contracttype]
pub struct {} {{
{fields}}}
",
            rust::import("soroban_sdk", &imports.sdk),
            self.row.table,
            self.example.name,
            self.row.name,
        )
    }

    /// Whether a native test can be generated: the SDK supports all of the contract's types there.
    pub fn is_native(&self) -> bool {
        self.interface.not_native().is_empty()
    }

    /// Whether the project has a `src/interface.rs`.
    pub fn has_types(&self) -> bool {
        !self.interface.definitions.is_empty() || !self.interface.undefined.is_empty()
    }

    fn function(&self, function: &Function) -> String {
        let Function { doc, name, parameters, returns } = function;
        let mut all = vec!["env: Env".to_owned()];
        all.extend(parameters.iter().map(|one| format!("{}: {}", one.name, one.kind)));
        let returns = returns.as_ref().map(|kind| format!(" -> {kind}")).unwrap_or_default();
        let head = rust::list(&format!("pub fn {name}"), &all, &format!("{returns} {{"), 4);
        let example =
            if std::ptr::eq(function, self.example) { self.emit() } else { String::new() };
        format!(
            "{}{head}{example}        todo!(\"what the contract does in `{name}`\")\n    }}\n",
            rust::doc(doc, 4)
        )
    }

    fn emit(&self) -> String {
        let Row { name, table, fields } = &self.row;
        let field = |(field, value): &(Field, String)| {
            if field.name == *value { value.clone() } else { format!("{}: {value}", field.name) }
        };
        let fields: Vec<_> = fields.iter().map(field).collect();
        let row = rust::literal(&format!("rows::{name}"), &fields, 8);
        let own_line = if row.contains('\n') { "\n        " } else { "" };
        format!(
            "        // An example: a row of the table `{table}`. Rows of a failed call are discarded.
        #[cfg(feature = \"program\")]
        {row}{own_line}.emit(&env);
"
        )
    }
}

impl Row {
    fn of(function: &Function, interface: &Interface) -> Self {
        let called = format!("{}Called", rust::pascal(&function.name));
        // Emitting into a table with a longer name fails.
        let called =
            if table(&called).len() <= LONGEST_TABLE { called } else { "Called".to_owned() };
        let name = rust::unique_name(&called, &mut definitions::names(interface));
        // SQL ignores the case of column names, and every table has the injected columns.
        let mut columns: BTreeSet<String> =
            INJECTED.iter().map(|(name, _)| (*name).to_owned()).collect();
        let is_new = |field: &&Field| columns.insert(field.name.to_ascii_lowercase());
        let native = function.parameters.iter().filter(|field| interface.is_native(&field.kind));
        let new = native.filter(is_new).cloned();
        let with_value = |field: Field| {
            let clone = if interface.is_copy(&field.kind) { "" } else { ".clone()" };
            let value = format!("{}{clone}", field.name);
            (field, value)
        };
        let mut fields: Vec<_> = new.map(with_value).collect();
        if fields.is_empty() {
            let (doc, name) = (String::new(), "ledger".to_owned());
            let field = Field { doc, name, kind: Kind::Plain("u32") };
            fields.push((field, LEDGER.to_owned()));
        }
        Self { table: table(&name), name, fields }
    }
}

/// Returns the table name of a struct, as `retroshade-sdk` 0.1 derives it.
fn table(name: &str) -> String {
    snake_cases(name).into_iter().next().unwrap_or_default()
}

/// Returns a free name for the contract's type; the SDK also derives `…Client` and `…Args` from it.
fn contract(project: &str, taken: &BTreeSet<String>) -> String {
    let mut name = rust::pascal(project);
    let is_free = |name: &str| {
        let made = ["", "Client", "Args"].map(|end| format!("{name}{end}"));
        rust::is_type(name) && name != rust::ERROR && made.iter().all(|it| !taken.contains(it))
    };
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        name.insert_str(0, "Program");
    }
    while !is_free(&name) {
        name.push_str("Program");
    }
    name
}
