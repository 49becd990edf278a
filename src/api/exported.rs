//! Tables that the service exports, as its catalogue lists them.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_iceberg::catalog::Lake;
use orrery_ledger::domain::ProgramId;

/// Returns the tables that the service exports as they are now, given the programs whose tables the client may
/// read; `None` before the first export.
pub type ExportedTables = Arc<dyn Fn(&[ProgramId]) -> Option<ExportedNow> + Send + Sync>;

/// Tables that the service exports, as they were at one moment.
pub struct ExportedNow {
    /// The tables.
    pub lake: Box<dyn Lake>,
    /// The namespaces with the tables of the programs that were asked for.
    pub namespaces: BTreeSet<String>,
}
