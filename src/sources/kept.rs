//! One worker or connection that is replaced whenever it ends.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::restart_history::RestartHistory;
use super::source::SourceStatus;

/// The current worker or connection, and the history of those before it.
pub(in crate::sources) struct Kept<T> {
    stage: watch::Sender<Stage<T>>,
    pub(in crate::sources) history: Mutex<RestartHistory>,
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

    /// The state of a source that has this one, with this number of processes.
    pub(in crate::sources) fn status(&self, workers: usize) -> SourceStatus {
        self.history.lock().status(!self.is_unavailable(), workers)
    }

    /// Offers a started one to calls.
    pub(in crate::sources) fn set_ready(&self, started: Arc<T>) {
        self.history.lock().record_start();
        self.stage.send_replace(Stage::Ready(started));
    }

    /// Lets calls wait for the next one.
    pub(in crate::sources) fn set_starting(&self) {
        self.stage.send_replace(Stage::Starting);
    }

    /// Notes that the current one has ended by itself: when it had started, and whether it ever
    /// answered a call.
    pub(in crate::sources) fn record_death(&self, started: Instant, answered: bool, reason: &str) {
        self.history.lock().record_death(started, answered, reason);
        self.replace();
    }

    /// Notes that the current one was ended on purpose.
    pub(in crate::sources) fn record_end(&self) {
        self.history.lock().reset_early_deaths();
        self.replace();
    }

    fn replace(&self) {
        self.history.lock().replaced += 1;
        self.set_starting();
        self.give_up_if_failing();
    }

    fn give_up_if_failing(&self) {
        if self.history.lock().is_failing() {
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
            let pause = self.history.lock().next_pause(fastrand::f64());
            sleep(pause).await;
            let began = Instant::now();
            match start().await {
                Ok(started) => return started,
                Err(fault) => {
                    log(&fault);
                    self.history.lock().record_failed_start(began, &fault);
                    self.give_up_if_failing();
                }
            }
        }
    }
}
