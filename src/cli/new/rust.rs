//! How Rust and `soroban-sdk` 25 want names and texts written.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Characters of a line, as rustfmt has it.
const WIDTH: usize = 100;
/// Characters of fields that rustfmt leaves in one line.
const LITERAL: usize = 18;

/// What the SDK calls any error, and what contracts like to call their own.
pub const ERROR: &str = "Error";

/// Words of the language that name nothing (edition 2021, those for the future included).
const KEYWORDS: [&str; 52] = [
    "Self", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue",
    "crate", "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if",
    "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub",
    "ref", "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Names that the SDK's macros take for something else than a type of the contract.
const TAKEN: [&str; 42] = [
    "Address",
    "Bls12381Fp",
    "Bls12381Fp2",
    "Bls12381G1Affine",
    "Bls12381G2Affine",
    "Bn254Fp",
    "Bn254G1Affine",
    "Bn254G2Affine",
    "Bytes",
    "BytesN",
    "Duration",
    "Env",
    "Event",
    "Fp",
    "Fp2",
    "Fr",
    "G1Affine",
    "G2Affine",
    "Hash",
    "I256",
    "IntoVal",
    "Map",
    "MuxedAddress",
    "Option",
    "Result",
    "Retroshade",
    "String",
    "Symbol",
    "Timepoint",
    "TryFromVal",
    "U256",
    "Val",
    "Vec",
    "bool",
    "i128",
    "i32",
    "i64",
    "str",
    "u128",
    "u32",
    "u64",
    "usize",
];

/// Names that the SDK gives to functions of a client beside those of the contract.
const OF_CLIENTS: [&str; 5] =
    ["mock_all_auths", "mock_all_auths_allowing_non_root_auth", "mock_auths", "new", "set_auths"];

/// Types that contracts take from the SDK's library without telling of them, and the module there.
const IN_LIBRARY: [(&str, &str); 8] = [
    ("Context", "auth::"),
    ("ContractContext", "auth::"),
    ("ContractExecutable", "auth::"),
    ("CreateContractHostFnContext", "auth::"),
    ("CreateContractWithConstructorHostFnContext", "auth::"),
    ("Executable", ""),
    ("InvokerContractAuthEntry", "auth::"),
    ("SubContractInvocation", "auth::"),
];

/// Whether something can have this name.
pub fn is_name(name: &str) -> bool {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    begins && name != "_" && name.bytes().all(usable) && !KEYWORDS.contains(&name)
}

/// Whether a type of a contract can have this name.
pub fn is_type(name: &str) -> bool {
    is_name(name) && !TAKEN.contains(&name)
}

/// Whether a function of a contract can have this name.
pub fn is_function(name: &str) -> bool {
    is_name(name) && !OF_CLIENTS.contains(&name)
}

/// The path within the SDK of a type that contracts need not define.
pub fn sdk_path(name: &str) -> Option<String> {
    let known = IN_LIBRARY.iter().find(|(known, _)| *known == name);
    known.map(|(name, module)| format!("{module}{name}"))
}

/// A name that is none of `taken`, made of `name`, and taken from now on.
pub fn free(name: &str, taken: &mut BTreeSet<String>) -> String {
    let usable = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let mut name: String = name.chars().map(usable).collect();
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        name.insert(0, '_');
    }
    while !is_name(&name) || taken.contains(&name) {
        name.push('_');
    }
    taken.insert(name.clone());
    name
}

/// `market_trade`, `market-trade` or `marketTrade` as `MarketTrade`: the name of a type.
pub fn pascal(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter_map(|word| Some(word.get(..1)?.to_ascii_uppercase() + &word[1..])).collect()
}

/// A comment that stays in the module, one line for each of the text. A line that an editor would show otherwise
/// than it is, is written with escapes.
pub fn doc(text: &str, indent: usize) -> String {
    let mut comment = String::new();
    for line in text.split('\n').filter(|_| !text.is_empty()) {
        let harmless = line.chars().all(|it| "'\"\\".contains(it) || it.escape_debug().len() == 1);
        // Writing to a string cannot fail.
        let _ = match (line, harmless) {
            ("", _) => writeln!(comment, "{:indent$}///", ""),
            (line, true) => writeln!(comment, "{:indent$}/// {line}", ""),
            (line, false) => writeln!(comment, "{:indent$}#[doc = {line:?}]", ""),
        };
    }
    comment
}

/// `use path::{…};` in the order and the lines in which rustfmt writes it; nothing for no names.
pub fn import(path: &str, names: &BTreeSet<String>) -> String {
    // Modules and functions stand before types, and those before what looks like a constant.
    let class = |name: &str| match name.starts_with(|it: char| it.is_ascii_uppercase()) {
        true if name.bytes().any(|it| it.is_ascii_lowercase()) => 1,
        true => 2,
        false => 0,
    };
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_by_key(|name| (class(name), *name));
    let list = match names.as_slice() {
        [] => return String::new(),
        [one] => return format!("use {path}::{one};\n"),
        names => names.join(", "),
    };
    let line = format!("use {path}::{{{list}}};\n");
    if line.len() <= WIDTH + 1 {
        return line;
    }
    let mut lines = format!("use {path}::{{\n   ");
    let mut width = 3;
    for name in names {
        if width + name.len() + 2 >= WIDTH {
            lines.push_str("\n   ");
            width = 3;
        }
        lines.push_str(&format!(" {name},"));
        width += name.len() + 2;
    }
    lines + "\n};\n"
}

/// `head(items)tail`, in one line if it fits, else with a line for each.
pub fn list(head: &str, items: &[String], tail: &str, indent: usize) -> String {
    let line = format!("{:indent$}{head}({}){tail}\n", "", items.join(", "));
    if line.chars().count() <= WIDTH + 1 {
        return line;
    }
    let within = indent + 4;
    let items: String = items.iter().map(|item| format!("{:within$}{item},\n", "")).collect();
    format!("{:indent$}{head}(\n{items}{:indent$}){tail}\n", "", "")
}

/// `name { fields }`, in one line where rustfmt leaves it there, else with a line for each.
pub fn literal(name: &str, fields: &[String], indent: usize) -> String {
    let list = fields.join(", ");
    if list.len() <= LITERAL && !list.contains('\n') {
        return format!("{name} {{ {list} }}");
    }
    let within = indent + 4;
    let fields: String = fields.iter().map(|field| format!("{:within$}{field},\n", "")).collect();
    format!("{name} {{\n{fields}{:indent$}}}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_rust_or_the_sdk_has_are_not_given() {
        for name in ["a", "_a", "amount_2", "union", "Error", "__constructor"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "_", "2a", "a-b", "ä", "type", "Self", "r#type", "a b", "a\n"] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_type("Error") && is_type("Key") && !is_type("Vec") && !is_type("u32"));
        assert!(is_function("mint") && !is_function("new"));
        let mut taken = BTreeSet::from(["env".to_owned()]);
        let names = ["a", "a", "env", "type", "2ä", ""].map(|name| free(name, &mut taken));
        assert_eq!(names, ["a", "a_", "env_", "type_", "_2_", "__"]);
        assert_eq!(pascal("market-trade_2x"), "MarketTrade2x");
        assert_eq!(sdk_path("Context").as_deref(), Some("auth::Context"));
    }

    #[test]
    fn comments_cannot_end_or_hide() {
        assert_eq!(doc("", 0), "");
        assert_eq!(doc("one\n\n\"two\"", 2), "  /// one\n  ///\n  /// \"two\"\n");
        assert_eq!(doc("a\r\u{202e}b", 0), "#[doc = \"a\\r\\u{202e}b\"]\n");
    }

    #[test]
    fn lists_are_written_in_one_line_where_they_fit() {
        let names = |count: u32| (10..10 + count).map(|it| format!("Name{it}")).collect();
        assert_eq!(import("a", &names(0)), "");
        assert_eq!(import("a", &names(1)), "use a::Name10;\n");
        let mut mixed: BTreeSet<String> = names(2);
        mixed.extend(["vec", "I256"].map(str::to_owned));
        assert_eq!(import("a", &mixed), "use a::{vec, Name10, Name11, I256};\n");
        for count in 3..40 {
            let text = import("soroban_sdk", &names(count));
            assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
            assert_eq!(text.matches("Name").count() as u32, count);
        }
        assert_eq!(list("f", &["a: u32".to_owned()], " {", 4), "    f(a: u32) {\n");
        let long = vec!["a".repeat(60), "b".repeat(60)];
        let expected = format!("f(\n    {},\n    {},\n);\n", long[0], long[1]);
        assert_eq!(list("f", &long, ";", 0), expected);
        assert_eq!(literal("A", &["a".to_owned(), "b: 1".to_owned()], 4), "A { a, b: 1 }");
        let inner = literal("A", &["a".repeat(19)], 8);
        assert_eq!(inner, format!("A {{\n            {},\n        }}", "a".repeat(19)));
    }
}
