//! One worker or connection that is replaced whenever it ends.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::restart_history::RestartHistory;
use crate::call::ToolError;

/// The current worker or connection, and the history of those before it.
pub(in crate::sources) struct Kept<T> {
    stage: watch::Sender<Stage<T>>,
    history: Mutex<RestartHistory>,
}

enum Stage<T> {
    /// The next one is being started.
    Starting,
    Ready(Arc<T>),
    /// They keep failing, so no call should wait for the next one.
    Unavailable,
}

impl<T> Kept<T> {
    /// Keeps this one; without one, the first one is being started.
    pub(in crate::sources) fn new(first: Option<Arc<T>>) -> Self {
        Self {
            stage: watch::Sender::new(first.map_or(Stage::Starting, Stage::Ready)),
            history: Mutex::default(),
        }
    }

    /// The history, for reports.
    pub(in crate::sources) fn history(&self) -> MutexGuard<'_, RestartHistory> {
        self.history.lock()
    }

    /// The current one, as soon as it is ready. Skips `previous`, which takes no more calls. `None`:
    /// they keep failing.
    pub(in crate::sources) async fn next(&self, previous: Option<&Arc<T>>) -> Option<Arc<T>> {
        let mut stage = self.stage.subscribe();
        let is_another = |stage: &Stage<T>| match stage {
            Stage::Starting => false,
            Stage::Ready(now) => previous.is_none_or(|previous| !Arc::ptr_eq(previous, now)),
            Stage::Unavailable => true,
        };
        match stage.wait_for(is_another).await.as_deref() {
            Ok(Stage::Ready(now)) => Some(now.clone()),
            Ok(Stage::Unavailable | Stage::Starting) | Err(_) => None,
        }
    }

    /// The current one, if it is ready.
    pub(in crate::sources) fn current(&self) -> Option<Arc<T>> {
        match &*self.stage.borrow() {
            Stage::Ready(now) => Some(now.clone()),
            Stage::Starting | Stage::Unavailable => None,
        }
    }

    /// Whether they keep failing.
    pub(in crate::sources) fn is_unavailable(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Unavailable)
    }

    /// The failure of a call for which none is ready. `subject` names what is unavailable.
    pub(in crate::sources) fn unavailable_error(&self, subject: &str, unknown: &str) -> ToolError {
        let history = self.history();
        let reason = history.fault.as_deref().unwrap_or(unknown);
        let message = format!("{subject} is unavailable: {reason}");
        ToolError::unavailable_before_start(message, Some(history.retry_after()))
    }

    /// Offers a started one to calls.
    pub(in crate::sources) fn set_ready(&self, started: Arc<T>) {
        self.history().record_start();
        self.stage.send_replace(Stage::Ready(started));
    }

    /// Lets calls wait for the next one.
    pub(in crate::sources) fn set_starting(&self) {
        self.stage.send_replace(Stage::Starting);
    }

    /// Notes that the current one has ended by itself: when it had started, and whether it ever
    /// answered a call.
    pub(in crate::sources) fn record_death(&self, started: Instant, answered: bool, reason: &str) {
        self.history().record_death(started, answered, reason);
        self.replace();
    }

    /// Notes that the current one was ended on purpose.
    pub(in crate::sources) fn record_end(&self) {
        self.history().reset_early_deaths();
        self.replace();
    }

    fn replace(&self) {
        self.history().replaced += 1;
        self.set_starting();
        self.give_up_if_failing();
    }

    fn give_up_if_failing(&self) {
        if self.history().is_failing() {
            self.stage.send_replace(Stage::Unavailable);
        }
    }

    /// Starts until one is up, with pauses after failures. `log` is told each failure.
    pub(in crate::sources) async fn start_until_up<S, F>(
        &self,
        start: impl Fn() -> F + Send + Sync,
        log: impl Fn(&str) + Send + Sync,
    ) -> S
    where
        S: Send,
        F: Future<Output = Result<S, String>> + Send,
    {
        loop {
            let pause = self.history().next_pause(fastrand::f64());
            sleep(pause).await;
            let began = Instant::now();
            match start().await {
                Ok(started) => return started,
                Err(fault) => {
                    log(&fault);
                    self.history().record_failed_start(began, &fault);
                    self.give_up_if_failing();
                }
            }
        }
    }
}
