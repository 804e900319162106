//! What operators and probes do with sources: read their status, restart them, stop them.

use std::sync::Arc;
use std::time::Duration;

use super::live_source::{LiveSource, SourceView};
use super::states::Event;
use crate::runtime::blocking;
use crate::sources::live::file_snapshot::FileSnapshot;
use crate::sources::live::live_tools::LiveTools;

/// The restart of a source that a caller requested.
pub struct Restart {
    source: Arc<LiveSource>,
    number: u64,
}

impl LiveTools {
    /// The status of every source.
    pub fn sources(&self) -> Vec<SourceView> {
        let sources = self.live_sources.load();
        sources.iter().map(|source| self.view(source)).collect()
    }

    /// The sources for which the service waits before it is ready: not listed and not failed since
    /// the start.
    pub fn awaited_sources(&self) -> Vec<SourceView> {
        let sources = self.live_sources.load();
        let awaited = sources.iter().filter(|source| source.is_awaited());
        awaited.map(|source| self.view(source)).collect()
    }

    fn view(&self, source: &LiveSource) -> SourceView {
        let mut view = source.view(self.now());
        let texts = view
            .doing
            .iter_mut()
            .chain(&mut view.fault)
            .chain(&mut view.warnings);
        texts.for_each(|text| *text = self.sanitize_text(text));
        view
    }

    /// Waits until every source was listed once or failed once.
    pub async fn wait_for_sources(&self) {
        let sources = || self.live_sources.load();
        self.wait_until(|| sources().iter().all(|source| source.is_settled()))
            .await;
    }

    /// Starts a source again, beside what is served. Its listing then replaces what is served.
    /// `None`: there is no such source.
    pub async fn restart_source(self: &Arc<Self>, name: &str) -> Option<Restart> {
        let mut state = self.state.lock().await;
        let entry = state.sources.find_by_name(name)?;
        let settings = entry.declared.settings.clone();
        entry.files =
            blocking::run_blocking(move || FileSnapshot::from_files(settings.source_files()))
                .await?;
        let number = self.start_source(entry, false);
        Some(Restart {
            source: entry.source.clone(),
            number,
        })
    }

    /// Waits until this start has ended, well or not, and returns the status. `None` after
    /// `patience`.
    pub async fn wait_for_restart(
        &self,
        restart: &Restart,
        patience: Duration,
    ) -> Option<SourceView> {
        // A later start may have replaced this one.
        let Restart { source, number } = restart;
        let ended = self.wait_until(|| source.read(|lifecycle| lifecycle.latest_ended >= *number));
        tokio::time::timeout(patience, ended).await.ok()?;
        Some(self.restart_view(restart))
    }

    /// The current status of this source.
    pub fn restart_view(&self, restart: &Restart) -> SourceView {
        let sources = self.live_sources.load();
        let current = sources
            .iter()
            .find(|source| source.name == restart.source.name);
        self.view(current.unwrap_or(&restart.source))
    }

    /// Waits until the condition holds. It is checked at each change of a source's state.
    async fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        let mut changes = self.status_changed.subscribe();
        // An error: the service has ended.
        let _ = changes.wait_for(|()| condition()).await;
    }

    /// Restarts the sources whose files have other contents than `now`.
    pub(in crate::sources::live) async fn restart_changed_sources(
        self: &Arc<Self>,
        now: Vec<(Arc<str>, FileSnapshot)>,
    ) {
        let mut state = self.state.lock().await;
        for (name, files) in now {
            let entry = state.sources.find_by_name(&name);
            if let Some(entry) = entry.filter(|entry| entry.files != files) {
                tracing::info!(
                    source = &*name,
                    "files of a source have changed: restarting it"
                );
                entry.files = files;
                self.start_source(entry, false);
            }
        }
    }

    /// Drops every source and every tool. Their runners end with the last running call.
    pub async fn stop_sources(&self) {
        let sources = std::mem::take(&mut self.state.lock().await.sources);
        self.registry.clear();
        self.live_sources.store(Arc::default());
        for entry in sources.0 {
            entry.source.apply(Event::Removed);
            if let Some(watch) = entry.tasks.watch {
                watch.stop().await;
            }
        }
    }
}
