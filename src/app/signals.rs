//! What tells a process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Error;

/// Returns when the process is told to stop (SIGTERM, SIGINT).
///
/// # Errors
/// When signals cannot be watched.
pub async fn stopped() -> Result<(), Error> {
    Signals::new()?.next().await;
    Ok(())
}

/// SIGTERM and SIGINT, which mean the same.
pub(super) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
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

    /// The first is the one that stops; this waits for the next.
    pub(super) async fn second(&mut self) {
        self.next().await;
        self.next().await;
    }
}
