//! Decides when to read the manifest again: on SIGHUP, and when one of its files has changed. A source is restarted
//! when one of its own files has changed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::signal::unix::Signal;

use super::{FileSnapshot, Live};
use crate::blocking;

/// Time between two polls.
const LOOK: Duration = Duration::from_secs(1);
/// Files must be unchanged for this time before a reload. An editor or a deployment writes several files, and each of
/// them in pieces.
const QUIET: Duration = Duration::from_millis(250);

impl Live {
    /// Reloads on SIGHUP and when files have changed, for as long as the service runs.
    pub async fn watch(self: Arc<Self>, mut hangups: Signal) {
        let mut moving: Option<Files> = None;
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

    /// Polls the files once, and reloads if they have changed and are quiet. `moving` is the last snapshot, if it
    /// differed from the files in use. Returns the new snapshot while the files still change, else `None`.
    async fn look(self: &Arc<Self>, moving: Option<Files>) -> Option<Files> {
        let before = {
            let state = self.state.lock().await;
            Files { manifest: state.seen.clone(), sources: state.sources.files() }
        };
        let looked = blocking::on_a_thread(move || {
            let now = before.look_again();
            (now.manifest.says_the_same(&before.manifest), now.say_the_same(&before), now)
        });
        let (same_manifest, same, now) = looked.await?;
        if same {
            let mut state = self.state.lock().await;
            state.seen = now.manifest;
            state.sources.looked(now.sources);
            return None;
        }
        if !moving.is_some_and(|moving| moving.say_the_same(&now)) {
            return Some(now);
        }
        if same_manifest {
            self.restart_changed(now.sources).await;
        } else {
            tracing::info!("files of the manifest have changed: it is read again");
            self.try_again().await;
        }
        None
    }

    /// Reloads. Failures are reported in the log and in `/readyz`. A panic must not end the watch.
    async fn try_again(self: &Arc<Self>) {
        if AssertUnwindSafe(self.reload()).catch_unwind().await.is_err() {
            tracing::error!("reading the manifest panicked; the one before is served on");
        }
    }
}

/// Snapshots of all files that are watched.
struct Files {
    manifest: FileSnapshot,
    sources: Vec<(Arc<str>, FileSnapshot)>,
}

impl Files {
    fn look_again(&self) -> Self {
        let sources = self.sources.iter().map(|(name, files)| (name.clone(), files.look_again())).collect();
        Self { manifest: self.manifest.look_again(), sources }
    }

    fn say_the_same(&self, other: &Self) -> bool {
        let mut pairs = self.sources.iter().zip(&other.sources);
        let as_many = self.sources.len() == other.sources.len();
        let same = pairs.all(|((one, files), (other, others))| one == other && files.says_the_same(others));
        self.manifest.says_the_same(&other.manifest) && as_many && same
    }
}
