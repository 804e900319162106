//! The sources of the service, each with its current declaration and its tasks.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::live_source::LiveSource;
use crate::manifest::DeclaredSource;
use crate::runtime::blocking;
use crate::sources::Source;
use crate::sources::live::file_snapshot::FileSnapshot;

/// All sources: the program's first, then those of the manifest, in its order. The first source
/// gets a name that two want. But operators' sources come before foreign ones, and a foreign source
/// never gets a name that is served.
#[derive(Default)]
pub(in crate::sources::live) struct Sources(pub(super) Vec<SourceEntry>);

/// A source with its current declaration.
pub(super) struct SourceEntry {
    /// The current declaration. What is served may still be of an older one.
    pub(super) declared: Arc<DeclaredSource>,
    /// Snapshot of its files at its last start.
    pub(super) files: FileSnapshot,
    pub(super) source: Arc<LiveSource>,
    pub(super) tasks: SourceTasks,
}

/// The tasks of a source. Dropping a task stops what it has started.
#[derive(Default)]
pub(super) struct SourceTasks {
    /// The latest start.
    pub(super) start: Option<StartTask>,
    /// Waits until the served source reports changed tools.
    pub(super) watch: Option<WatchTask>,
}

/// A source that is being started, or waits for the next attempt.
pub(super) struct StartTask {
    /// Ends a wait.
    pub(super) wake_up: Arc<Notify>,
    pub(super) _task: AbortOnDropHandle<()>,
}

/// A task that waits for changes of one source.
pub(super) struct WatchTask {
    pub(super) source: Arc<dyn Source>,
    pub(super) task: AbortOnDropHandle<()>,
}

impl Sources {
    pub(super) fn find(&mut self, source: &Arc<LiveSource>) -> Option<&mut SourceEntry> {
        self.0
            .iter_mut()
            .find(|entry| Arc::ptr_eq(&entry.source, source))
    }

    pub(super) fn find_by_name(&mut self, name: &str) -> Option<&mut SourceEntry> {
        self.0.iter_mut().find(|entry| &*entry.source.name == name)
    }

    /// The files with which the sources were started.
    pub(in crate::sources::live) fn files(&self) -> Vec<(Arc<str>, FileSnapshot)> {
        self.0
            .iter()
            .map(|entry| (entry.source.name.clone(), entry.files.clone()))
            .collect()
    }

    /// Keeps the newer snapshots of files whose contents are the same. The next poll then need not
    /// read them again.
    pub(in crate::sources::live) fn keep_refreshed(&mut self, now: Vec<(Arc<str>, FileSnapshot)>) {
        for (name, files) in now {
            let entry = self.find_by_name(&name);
            if let Some(entry) = entry.filter(|entry| entry.files == files) {
                entry.files = files;
            }
        }
    }
}

impl WatchTask {
    /// Ends the task. When this returns, nothing here holds the source any more.
    pub(super) async fn stop(self) {
        let Self { source, task } = self;
        task.abort();
        let _ = task.await;
        drop(source);
    }
}

/// Reads the files of these sources.
pub(in crate::sources::live) async fn snapshot_files(
    declared: Vec<DeclaredSource>,
) -> Option<Vec<(Arc<DeclaredSource>, FileSnapshot)>> {
    let snapshot_all = move || {
        let snapshot = |source: DeclaredSource| {
            let files = FileSnapshot::from_files(source.settings.source_files());
            (Arc::new(source), files)
        };
        declared.into_iter().map(snapshot).collect()
    };
    blocking::run_blocking(snapshot_all).await
}
