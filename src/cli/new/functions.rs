//! Generates the sources of a program for a contract whose interface is known: its functions, with
//! bodies to fill in, and an example row for one of them.

use std::collections::BTreeSet;

use orrery::tables::{INJECTED, snake_cases};
use stellar_xdr::ScSpecTypeDef;

use super::imports::Imports;
use super::interface::{Field, Function, Interface};
use super::{kind, rust};

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
        let contract = contract(project, &interface.type_names());
        Some(Self { interface, contract, example, row: Row::of(example, interface) })
    }

    /// Returns `src/lib.rs`; `about` is its first line.
    pub fn library(&self, about: &str) -> String {
        let kinds = self.interface.functions.iter().flat_map(Function::kinds);
        let imports = Imports::of(kinds, self.interface, &["contract", "contractimpl", "Env"]);
        let interface = if self.has_types() { "pub mod interface;\n" } else { "" };
        let tests = if self.is_native() { TESTS } else { "" };
        let functions: Vec<_> =
            self.interface.functions.iter().map(|it| self.function(it)).collect();
        let contract = &self.contract;
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
{}
#[contract]
pub struct {contract};

#[contractimpl]
impl {contract} {{
{}}}
",
            imports.lines("interface"),
            functions.join("\n"),
        )
    }

    /// Returns `src/rows.rs`.
    pub fn rows(&self) -> String {
        let Row { name, table, fields } = &self.row;
        let kinds = fields.iter().map(|(field, _)| &field.kind);
        let imports = Imports::of(kinds, self.interface, &["contracttype"]);
        let column = |(field, _): &(Field, String)| format!("    pub {field},\n");
        let columns: String = fields.iter().map(column).collect();
        let is_printable = fields.iter().all(|(field, _)| self.interface.is_printable(&field.kind));
        let debug = if is_printable { "Debug, " } else { "" };
        format!(
            "\
//! The rows of the program: each struct is a table, and its fields are columns.

use retroshade_sdk::Retroshade;
{}
// An example: a row of the table `{table}` for each call of `{}`.
#[derive(Clone, {debug}Retroshade)]
#[contracttype]
pub struct {name} {{
{columns}}}
",
            imports.lines("crate::interface"),
            self.example.name,
        )
    }

    /// Whether a native test can be generated: the SDK supports all of the contract's types there.
    pub fn is_native(&self) -> bool {
        self.interface.not_native().is_empty()
    }

    /// Whether the project has a `src/interface.rs`.
    pub fn has_types(&self) -> bool {
        !self.interface.type_names().is_empty()
    }

    fn function(&self, function: &Function) -> String {
        let Function { doc, name, parameters, returns } = function;
        let mut all = vec!["env: Env".to_owned()];
        all.extend(parameters.iter().map(Field::to_string));
        let returns = returns.as_ref().map(|kind| format!(" -> {}", kind::in_rust(kind)));
        let returns = returns.unwrap_or_default();
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
        let fields = fields.iter().map(|(field, value)| (field.name.as_str(), value.clone()));
        let row = rust::literal(&format!("rows::{name}"), fields);
        let own_line = if row.contains('\n') { "\n" } else { "" };
        let statement = rust::indented(&format!("{row}{own_line}.emit(&env);"), 8);
        format!(
            "        // An example: a row of the table `{table}`. Rows of a failed call are discarded.
        #[cfg(feature = \"program\")]
        {statement}
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
        let name = rust::unique_name(&called, &mut interface.type_names());
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
            let field = Field { name: "ledger".to_owned(), kind: ScSpecTypeDef::U32 };
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
