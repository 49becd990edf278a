//! The SQL worker as a program of its own, for tests and benches of the tables without the service.
//! Takes no arguments; in the product, `orrery sql-worker` does the same. It is never installed.

use orrery_runtime::process::close_inherited_descriptors;
use orrery_tables::worker::{self, WorkerError};

fn main() -> Result<(), WorkerError> {
    close_inherited_descriptors();
    worker::run()
}
