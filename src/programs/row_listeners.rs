//! Those who copy rows elsewhere, and hear when there may be some.

use parking_lot::RwLock;

/// Those who wait for rows.
#[derive(Default)]
pub(super) struct RowListeners(RwLock<Vec<Box<dyn Fn() + Send + Sync>>>);

impl RowListeners {
    /// Adds one, which must return at once.
    pub fn add(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.0.write().push(Box::new(listener));
    }

    /// Says that there may be rows.
    pub fn notify(&self) {
        self.0.read().iter().for_each(|listener| listener());
    }
}
