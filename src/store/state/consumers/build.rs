//! Names of the two builds of a consumer's rows.

/// Suffix of the name of a second build; no other name ends with it.
const SECOND_SUFFIX: char = '~';

/// Returns the name under which a consumer's second build is fed.
pub(crate) fn second(name: &str) -> String {
    format!("{name}{SECOND_SUFFIX}")
}

/// Returns whether a name is that of a second build.
pub(crate) fn is_second(name: &str) -> bool {
    name.ends_with(SECOND_SUFFIX)
}

/// Returns the name of the consumer to which a build belongs.
pub(crate) fn first(name: &str) -> &str {
    name.strip_suffix(SECOND_SUFFIX).unwrap_or(name)
}
