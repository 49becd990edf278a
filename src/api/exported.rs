//! Tables that the service exports, as its catalogue lists them.

use std::sync::Arc;

use orrery_iceberg::catalog::Lake;
use orrery_ledger::domain::ProgramId;

/// Tables that the service exports.
#[derive(Clone)]
pub struct ExportedTables {
    /// The tables, as they were last written; no namespaces before the first export.
    pub lake: Arc<dyn Lake + Send + Sync>,
    /// Returns the namespace of a program's tables; `None` if it has none.
    pub namespace_of: Arc<dyn Fn(ProgramId) -> Option<String> + Send + Sync>,
}
