//! Rules of Rust, rustfmt and `soroban-sdk` 25 for names and the layout of generated sources.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Maximum width of a line, as for rustfmt.
const WIDTH: usize = 100;
/// Maximum width of the fields of a struct literal that rustfmt leaves on one line.
const LITERAL: usize = 18;

/// Name of the SDK's generic error type, which contracts often give to their own.
pub const ERROR: &str = "Error";

/// Words that cannot be names in Rust (edition 2021, including those reserved for the future).
const KEYWORDS: &str = "
    Self abstract as async await become box break const continue crate do dyn else enum extern false
    final fn for gen if impl in let loop macro match mod move mut override priv pub ref return self
    static struct super trait true try type typeof unsafe unsized use virtual where while yield
";

/// Names that the SDK's macros interpret as something other than a type of the contract.
const RESERVED_TYPE_NAMES: &str = "
    Address Bls12381Fp Bls12381Fp2 Bls12381G1Affine Bls12381G2Affine Bn254Fp Bn254G1Affine
    Bn254G2Affine Bytes BytesN Duration Env Event Fp Fp2 Fr G1Affine G2Affine Hash I256 IntoVal Map
    MuxedAddress Option Result Retroshade String Symbol Timepoint TryFromVal U256 Val Vec bool i128
    i32 i64 str u128 u32 u64 usize
";

/// Names of functions that the SDK adds to a contract's client.
const CLIENT_METHODS: &str =
    "mock_all_auths mock_all_auths_allowing_non_root_auth mock_auths new set_auths";

/// Types of the SDK's library that contracts use without defining them in their spec, each with its
/// path.
const SDK_TYPES: &str = "
    auth::Context auth::ContractContext auth::ContractExecutable auth::CreateContractHostFnContext
    auth::CreateContractWithConstructorHostFnContext Executable auth::InvokerContractAuthEntry
    auth::SubContractInvocation
";

fn has_word(words: &str, name: &str) -> bool {
    words.split_whitespace().any(|word| word == name)
}

/// Whether the name is a valid name in Rust.
pub fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    begins && name != "_" && is_word(name) && !has_word(KEYWORDS, name)
}

/// Whether all characters of the name are allowed in names of Rust.
pub fn is_word(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether the name is valid for a type of a contract.
pub fn is_type(name: &str) -> bool {
    is_name(name) && !has_word(RESERVED_TYPE_NAMES, name)
}

/// Whether the name is valid for a function of a contract.
pub fn is_function(name: &str) -> bool {
    is_name(name) && !has_word(CLIENT_METHODS, name)
}

/// Returns the path within the SDK of a type that contracts need not define; `None` for other
/// types.
pub fn sdk_path(name: &str) -> Option<&'static str> {
    SDK_TYPES.split_whitespace().find(|path| path.trim_start_matches("auth::") == name)
}

/// Derives from `name` a valid name that is not in `taken`, and adds it there.
pub fn unique_name(name: &str, taken: &mut BTreeSet<String>) -> String {
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

/// Converts `market_trade`, `market-trade` or `marketTrade` to `MarketTrade`, for the name of a
/// type.
pub fn pascal(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter_map(|word| Some(word.get(..1)?.to_ascii_uppercase() + &word[1..])).collect()
}

/// Returns a doc comment with one line for each line of the text. A line with characters that an
/// editor may not display as they are becomes a `#[doc]` attribute with escapes.
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

/// Returns `use path::{…};`, sorted and wrapped as by rustfmt; an empty string for no names.
pub fn import(path: &str, names: &BTreeSet<String>) -> String {
    // rustfmt sorts modules and functions before types, and types before names that look like
    // constants.
    let class = |name: &str| {
        let is_type = name.starts_with(|first: char| first.is_ascii_uppercase());
        (is_type, is_type && !name.bytes().any(|byte| byte.is_ascii_lowercase()))
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

/// Returns `head(items)tail` on one line if it fits, otherwise with one line for each item.
pub fn list(head: &str, items: &[String], tail: &str, indent: usize) -> String {
    let line = format!("{:indent$}{head}({}){tail}\n", "", items.join(", "));
    if line.chars().count() <= WIDTH + 1 {
        return line;
    }
    format!("{:indent$}{head}(\n{}{:indent$}){tail}\n", "", lines(items, indent + 4), "")
}

/// Returns the literal of a struct, given its fields and their values, on one line if rustfmt would
/// leave it there, otherwise with one line for each field.
pub fn literal<'a>(name: &str, fields: impl Iterator<Item = (&'a str, String)>) -> String {
    let field = |(name, value): (&str, String)| {
        if name == value { value } else { format!("{name}: {}", indented(&value, 4)) }
    };
    let fields: Vec<_> = fields.map(field).collect();
    let list = fields.join(", ");
    if list.len() <= LITERAL && !list.contains('\n') {
        return format!("{name} {{ {list} }}");
    }
    format!("{name} {{\n{}}}", lines(&fields, 4))
}

fn lines(items: &[String], indent: usize) -> String {
    items.iter().map(|item| format!("{:indent$}{item},\n", "")).collect()
}

/// Indents all lines of an expression but the first.
pub fn indented(expression: &str, indent: usize) -> String {
    expression.replace('\n', &format!("\n{:indent$}", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_not_generated() {
        for name in ["a", "_a", "amount_2", "union", "Error", "__constructor"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "_", "2a", "a-b", "ä", "type", "Self", "r#type", "a b", "a\n"] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_type("Error") && is_type("Key") && !is_type("Vec") && !is_type("u32"));
        assert!(is_function("mint") && !is_function("new"));
        let mut taken = BTreeSet::from(["env".to_owned()]);
        let names = ["a", "a", "env", "type", "2ä", ""].map(|name| unique_name(name, &mut taken));
        assert_eq!(names, ["a", "a_", "env_", "type_", "_2_", "__"]);
        assert_eq!(pascal("market-trade_2x"), "MarketTrade2x");
        assert_eq!(sdk_path("Context"), Some("auth::Context"));
    }

    #[test]
    fn control_characters_in_comments_are_escaped() {
        assert_eq!(doc("", 0), "");
        assert_eq!(doc("one\n\n\"two\"", 2), "  /// one\n  ///\n  /// \"two\"\n");
        assert_eq!(doc("a\r\u{202e}b", 0), "#[doc = \"a\\r\\u{202e}b\"]\n");
    }

    #[test]
    fn lists_are_written_on_one_line_if_they_fit() {
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
        let short = [("a", "a".to_owned()), ("b", "1".to_owned())];
        assert_eq!(literal("A", short.into_iter()), "A { a, b: 1 }");
        let long = "a".repeat(19);
        let inner = literal("A", [(long.as_str(), long.clone())].into_iter());
        assert_eq!(inner, format!("A {{\n    {long},\n}}"));
        let outer = indented(&literal("B", [("a", inner)].into_iter()), 4);
        assert_eq!(
            outer,
            format!("B {{\n        a: A {{\n            {long},\n        }},\n    }}")
        );
    }
}
