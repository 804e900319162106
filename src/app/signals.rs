//! The signals that stop a process.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Error;

/// Returns when the process gets a signal to stop (SIGTERM, SIGINT).
///
/// # Errors
/// Signals cannot be watched.
pub async fn wait_for_stop() -> Result<(), Error> {
    StopSignals::new()?.next().await;
    Ok(())
}

/// SIGTERM and SIGINT. Both have the same meaning.
pub(super) struct StopSignals {
    term: Signal,
    int: Signal,
}

impl StopSignals {
    pub(super) fn new() -> Result<Self, Error> {
        let term = signal(SignalKind::terminate()).map_err(Error::Signals)?;
        let int = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
        Ok(Self { term, int })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }

    /// Waits for two signals. The first one stops the service; the second one shortens the end.
    pub(super) async fn wait_for_two(&mut self) {
        self.next().await;
        self.next().await;
    }
}
