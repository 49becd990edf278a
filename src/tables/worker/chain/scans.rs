//! How much is read from files at a time: each scan of a table has buffers for its columns, which DuckDB does not
//! count among its memory.

use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of columns that all scans of a worker read at a time. The buffers of one have a page of data and a
/// dictionary, compressed and not: 3 MiB.
const MAX_COLUMNS: usize = 160;
/// Maximum number of scans at a time, each of which keeps a file open.
const MAX_SCANS: usize = 16;

/// The scans of a worker.
#[derive(Default)]
pub struct Scans(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    scans: usize,
    columns: usize,
}

/// The share of a scan, which is released when this is dropped.
pub struct Share {
    scans: Arc<Scans>,
    columns: usize,
}

impl Scans {
    /// Begins a scan of this many columns.
    ///
    /// # Errors
    /// The sentence for the user when too much is read already.
    pub fn begin(self: &Arc<Self>, columns: usize) -> Result<Share, String> {
        let mut taken = self.0.lock();
        if taken.scans >= MAX_SCANS || taken.columns + columns > MAX_COLUMNS.max(columns) {
            return Err(format!(
                "Tables of the chain are read at more than {MAX_SCANS} places, or {MAX_COLUMNS} of their columns, at \
                 a time: select fewer columns, read them once (WITH name AS MATERIALIZED (...)), or wait for your \
                 other queries"
            ));
        }
        taken.scans += 1;
        taken.columns += columns;
        Ok(Share { scans: Arc::clone(self), columns })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.scans.0.lock();
        taken.scans -= 1;
        taken.columns -= self.columns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_at_a_time_is_limited() {
        let scans = Arc::new(Scans::default());
        let all: Vec<_> = (0..MAX_SCANS).map(|_| scans.begin(1).unwrap()).collect();
        assert!(scans.begin(1).is_err());
        drop(all);
        let wide = scans.begin(MAX_COLUMNS - 1).unwrap();
        assert!(scans.begin(2).is_err() && scans.begin(1).is_ok());
        drop(wide);
        assert!(scans.begin(2).is_ok());
    }
}
