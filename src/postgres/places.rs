//! Where in the database rows of a project go.

use std::collections::BTreeMap;

/// Where the rows of each target go.
#[derive(Debug, Clone, Default)]
pub struct Places(pub(super) BTreeMap<String, Place>);

/// Where the rows of a table go.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Name of the table in its schema.
    pub name: String,
    /// Names of columns by the exact ones.
    pub columns: BTreeMap<String, String>,
}
