//! When to read the manifest again: on SIGHUP, and when a file of it says something else.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::signal::unix::Signal;

use super::{Live, Seen};
use crate::blocking;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Files must have stood still for so long: an editor or a deployment writes several, and each in pieces.
const QUIET: Duration = Duration::from_millis(250);

impl Live {
    /// Reloads when told to or when files have changed, for as long as the service runs.
    pub async fn watch(self: Arc<Self>, mut hangups: Signal) {
        let mut moving: Option<Seen> = None;
        loop {
            let pause = if moving.is_some() { QUIET } else { LOOK };
            tokio::select! {
                Some(()) = hangups.recv() => {
                    tracing::info!("SIGHUP: the manifest is read again");
                    self.try_again().await;
                    moving = None;
                }
                () = tokio::time::sleep(pause), if self.plan.manifest.is_some() => {
                    moving = self.look(moving).await;
                }
                else => return,
            }
        }
    }

    /// Looks at the files once. `moving` is how they were a moment ago, if they were changing; so is the answer.
    async fn look(&self, moving: Option<Seen>) -> Option<Seen> {
        let before = self.state.lock().await.seen.clone();
        let looked = blocking::on_a_thread(move || {
            let now = before.look_again();
            (now.says_the_same(&before), now)
        });
        let (same, now) = looked.await?;
        if same {
            self.state.lock().await.seen = now;
            return None;
        }
        if !moving.is_some_and(|moving| moving.says_the_same(&now)) {
            return Some(now);
        }
        tracing::info!("files of the manifest have changed: it is read again");
        self.try_again().await;
        None
    }

    /// Reloads. What went wrong is in the log and in `/readyz`; a panic must not end the watch.
    async fn try_again(&self) {
        if AssertUnwindSafe(self.reload()).catch_unwind().await.is_err() {
            tracing::error!("reading the manifest panicked; the one before is served on");
        }
    }
}
