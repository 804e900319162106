//! Decides when to read the manifest again: on SIGHUP, and when one of its files has changed. A
//! source is restarted when one of its own files has changed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::signal::unix::Signal;

use super::file_snapshot::FileSnapshot;
use super::live_tools::LiveTools;
use crate::runtime::blocking;

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Files must be unchanged for this time before a reload. An editor or a deployment writes several
/// files, and each of them in pieces.
const QUIET_PERIOD: Duration = Duration::from_millis(250);

impl LiveTools {
    /// Reloads on SIGHUP and when files have changed, for as long as the service runs.
    pub async fn watch_for_changes(self: Arc<Self>, mut hangups: Signal) {
        let mut unsettled: Option<WatchedFiles> = None;
        loop {
            let pause = if unsettled.is_some() {
                QUIET_PERIOD
            } else {
                POLL_INTERVAL
            };
            tokio::select! {
                Some(()) = hangups.recv() => {
                    tracing::info!("SIGHUP: reloading the manifest");
                    self.reload_catching_panics().await;
                    unsettled = None;
                }
                () = tokio::time::sleep(pause), if self.config.manifest.is_some() => {
                    unsettled = self.poll_files(unsettled).await;
                }
                else => return,
            }
        }
    }

    /// Polls the files once, and reloads if they have changed and are quiet. `unsettled` is the
    /// last snapshot, if it differed from the files in use. Returns the new snapshot while the
    /// files still change, else `None`.
    async fn poll_files(self: &Arc<Self>, unsettled: Option<WatchedFiles>) -> Option<WatchedFiles> {
        let before = {
            let state = self.state.lock().await;
            WatchedFiles {
                manifest: state.manifest_files.clone(),
                sources: state.sources.files(),
            }
        };
        let comparison = blocking::run_blocking(move || {
            let now = before.refreshed();
            (now.manifest == before.manifest, now == before, now)
        });
        let (same_manifest, same, now) = comparison.await?;
        if same {
            let mut state = self.state.lock().await;
            state.manifest_files = now.manifest;
            state.sources.keep_refreshed(now.sources);
            return None;
        }
        if unsettled.as_ref() != Some(&now) {
            return Some(now);
        }
        if same_manifest {
            self.restart_changed_sources(now.sources).await;
        } else {
            tracing::info!("files of the manifest have changed: reloading it");
            self.reload_catching_panics().await;
        }
        None
    }

    /// Reloads. Failures are reported in the log and in `/readyz`. A panic must not end the watch.
    async fn reload_catching_panics(self: &Arc<Self>) {
        if AssertUnwindSafe(self.reload())
            .catch_unwind()
            .await
            .is_err()
        {
            tracing::error!("reading the manifest panicked; the previous one stays in use");
        }
    }
}

/// Snapshots of all files that are watched.
#[derive(PartialEq)]
struct WatchedFiles {
    manifest: FileSnapshot,
    sources: Vec<(Arc<str>, FileSnapshot)>,
}

impl WatchedFiles {
    fn refreshed(&self) -> Self {
        let sources = self
            .sources
            .iter()
            .map(|(name, files)| (name.clone(), files.refreshed()))
            .collect();
        Self {
            manifest: self.manifest.refreshed(),
            sources,
        }
    }
}
