//! The signal that ends an export early.

use tokio::sync::watch;

/// Signals that an export is to end early. The default value never does.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Option<watch::Receiver<bool>>);

impl Interrupt {
    /// Creates an interrupt that is raised when `stop` becomes true.
    pub fn by(stop: watch::Receiver<bool>) -> Self {
        Self(Some(stop))
    }

    /// Returns whether the interrupt is raised.
    pub fn is_raised(&self) -> bool {
        self.0.as_ref().is_some_and(|stop| *stop.borrow())
    }

    /// Waits until the interrupt is raised.
    pub(super) async fn raised(&self) {
        if let Some(stop) = &self.0
            && stop.clone().wait_for(|stop| *stop).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}
