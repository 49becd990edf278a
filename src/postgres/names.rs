//! Names of schemas, tables and columns in PostgreSQL: which it can have, and what stands for those that it cannot.

use sha2::{Digest, Sha256};

/// Length of the longest name that PostgreSQL keeps, in bytes (`NAMEDATALEN` - 1).
const LONGEST: usize = 63;
/// Bytes of a longer name that stay.
const KEPT: usize = 54;
/// Bytes of the hash that follow them, each two digits.
const HASHED: usize = 4;
/// Bytes of the hash in a name that something has for a while.
const WAITING: usize = 12;
/// Beginning of such a name.
pub(crate) const WAITS: &str = "_orrery_";
/// Columns that every table of PostgreSQL has already.
const OF_POSTGRES: [&str; 6] = ["tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"];
/// Column with the key of a row.
pub const ROW: &str = "_row";

/// Quotes a name for SQL, whatever characters it has.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the name of something in a schema for SQL.
pub(crate) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quoted(schema), quoted(name))
}

/// Returns a text for SQL, whatever characters it has but U+0000, and however the server reads backslashes.
pub(crate) fn literal(text: &str) -> String {
    format!(" E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Returns the name itself, or, beyond 63 bytes, its first 54, `_` and 8 hex digits of its SHA-256.
pub fn shortened(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let end = (0..=KEPT).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
    format!("{}_{}", &name[..end], hashed(name, HASHED))
}

/// Returns the first bytes of the SHA-256 of a text as hex digits.
fn hashed(text: &str, bytes: usize) -> String {
    Sha256::digest(text).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the names of the columns in PostgreSQL, in the same order: those that are too long are shortened, and
/// those that PostgreSQL or the sink has itself get `_` at their end until they are free.
pub fn columns<'a>(exact: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken: Vec<String> = vec![ROW.to_owned()];
    taken.extend(OF_POSTGRES.map(str::to_owned));
    let reserved = taken.len();
    for exact in exact {
        let exact = exact.replace('\0', "_");
        let mut name = shortened(if exact.is_empty() { "_" } else { &exact });
        let mut longer = exact.clone();
        while taken.contains(&name) {
            longer.push('_');
            name = shortened(&longer);
        }
        taken.push(name);
    }
    taken.split_off(reserved)
}

/// Returns what stands for a column in the digest of a row: the first 8 bytes of the SHA-256 of its exact name, so
/// that a digest does not depend on the order of columns.
pub(crate) fn mark(column: &str) -> [u8; 8] {
    let mut mark = [0; 8];
    let hash = Sha256::digest(column);
    mark.copy_from_slice(&hash[..8]);
    mark
}

/// Returns a name for what waits to take the place of something, or to be dropped, told from others by these texts.
pub(crate) fn waiting(texts: &[&str]) -> String {
    format!("{WAITS}{}", hashed(&texts.join("\n"), WAITING))
}

/// Returns the schema of a project, after a pattern in which `{project}` stands for its name.
///
/// # Errors
/// A sentence, when PostgreSQL or the sink has a schema of that name itself, or can have none.
pub fn schema(pattern: &str, project: &str) -> Result<String, String> {
    let schema = pattern.replace("{project}", project);
    let reason = if schema.is_empty() || schema.contains('\0') {
        "it is no name".to_owned()
    } else if schema.len() > LONGEST {
        format!("it has {} characters, and PostgreSQL keeps {LONGEST}", schema.len())
    } else if schema.starts_with("pg_") {
        "names with pg_ at their beginning are PostgreSQL's".to_owned()
    } else if [super::SCHEMA, "information_schema"].contains(&&*schema) {
        "it has one itself".to_owned()
    } else {
        return Ok(schema);
    };
    Err(format!(
        "the project {project} cannot have the schema {schema:?}: {reason}: give the sink another `schema`, such \
         as \"orrery_{{project}}\", or leave the project out"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_shortened_and_stay_different() {
        let long = "a".repeat(64);
        assert_eq!(shortened(&long[..63]), long[..63]);
        let short = shortened(&long);
        assert_eq!((short.len(), &short[..55]), (63, &*format!("{}_", "a".repeat(54))));
        assert_eq!(short[55..], hashed(&long, 4));
        assert_ne!(shortened(&format!("{long}b")), shortened(&format!("{long}c")));
        // The 54th byte is the first of a letter of two.
        let letters = shortened(&format!("{}{}", "a".repeat(53), "ä".repeat(20)));
        assert_eq!((letters.len(), &letters[..54]), (62, &*format!("{}_", "a".repeat(53))));
        assert_eq!(shortened(&"ä".repeat(40)).len(), 63);
    }

    #[test]
    fn columns_of_postgres_and_of_the_sink_get_other_names() {
        let long = "x".repeat(100);
        let names = columns(["from", "_row", "_row_", "xmin", "a\"b", "ctid", "", "From", &long]);
        let expected =
            ["from", "_row_", "_row__", "xmin_", "a\"b", "ctid_", "_", "From", &shortened(&long)];
        assert_eq!(names, expected);
    }

    #[test]
    fn names_and_texts_are_quoted() {
        assert_eq!(qualified("a\"b", "select"), r#""a""b"."select""#);
        assert_eq!(literal(r"it's \x00"), r" E'it''s \\x00'");
    }

    #[test]
    fn schemas_that_postgres_or_the_sink_needs_are_refused() {
        let own = "p".repeat(63);
        for (pattern, project, expected) in [
            ("{project}", "xlm", Some("xlm")),
            ("s_{project}", "pg_x", Some("s_pg_x")),
            ("all", "xlm", Some("all")),
            ("{project}", &own, Some(&*own)),
            ("{project}", "pg_x", None),
            ("{project}", "orrery", None),
            ("{project}", "information_schema", None),
            ("{project}x", &own, None),
            ("", "xlm", None),
        ] {
            assert_eq!(schema(pattern, project).ok().as_deref(), expected, "{pattern} {project}");
        }
        let error = schema("{project}", "pg_x").unwrap_err();
        assert!(error.contains("pg_x") && error.contains("orrery_{project}"), "{error}");
    }
}
