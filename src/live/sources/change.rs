//! Replaces what is served of a source by a new listing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::active_listing::ActiveListing;
use super::listing::UsableListing;
use super::source_task::SourceTask;
use super::tools::UnusableListing;
use super::{
    QuarantinedTool, SourceEntry, SourcePlan, SourceView, SourceWatch, Sources, StatusTracker,
};
use crate::live::file_snapshot::FileSnapshot;
use crate::live::reload::log_skipped_tools;
use crate::live::{DeclaredState, Error, LiveTools, State};
use crate::manifest::DeclaredSource;
use crate::registry::{DesiredState, Placement, Replaced, SkippedTool};
use crate::runtime::blocking;
use crate::text::sanitize;
use crate::tools::{Source, SourceListing};

/// The outcome of a listing.
pub(super) enum ApplyOutcome {
    /// Its tools are served.
    Served,
    /// A newer start has replaced this one, or the source was removed. The listing is ignored.
    Stale,
    /// The listing cannot be used, with the reason. A further attempt may help.
    Refused(String),
    /// The listing cannot be used, with the reason. A further attempt would give the same result.
    Unusable(String),
}

/// The restart of a source that a caller requested.
pub struct Restart {
    status: Arc<StatusTracker>,
    number: u64,
}

/// Reads the files of these sources.
pub(in crate::live) async fn snapshot_files(
    declared: Vec<DeclaredSource>,
) -> Option<Vec<(Arc<DeclaredSource>, FileSnapshot)>> {
    let snapshot_all = move || {
        let snapshot = |source: DeclaredSource| {
            (
                Arc::new(source.clone()),
                FileSnapshot::from_files(source.settings.source_files()),
            )
        };
        declared.into_iter().map(snapshot).collect()
    };
    blocking::run_blocking(snapshot_all).await
}

impl Sources {
    fn get(&mut self, name: &str) -> Option<&mut SourceEntry> {
        self.0.iter_mut().find(|entry| &*entry.status.name == name)
    }

    /// The files with which the sources were started.
    pub(in crate::live) fn files(&self) -> Vec<(Arc<str>, FileSnapshot)> {
        self.0
            .iter()
            .map(|entry| (entry.status.name.clone(), entry.files.clone()))
            .collect()
    }

    /// Keeps the newer snapshots of files whose contents are the same. The next poll then need not
    /// read them again.
    pub(in crate::live) fn keep_refreshed(&mut self, now: Vec<(Arc<str>, FileSnapshot)>) {
        for (name, files) in now {
            if let Some(entry) = self
                .get(&name)
                .filter(|entry| entry.files.has_same_content(&files))
            {
                entry.files = files;
            }
        }
    }

    /// The plan for this source under another declaration.
    fn plan_for(
        &self,
        declared: Arc<DeclaredSource>,
        files: FileSnapshot,
        added_late: bool,
    ) -> SourcePlan {
        let before = self
            .0
            .iter()
            .find(|entry| &*entry.status.name == declared.name());
        SourcePlan::new(before, declared, files, added_late)
    }
}

impl LiveTools {
    /// Replaces the declared state and the sources of the manifest. Unchanged sources continue.
    /// Other sources are started beside what is served, and replace it when they are listed.
    pub(in crate::live) async fn replace_sources(
        self: &Arc<Self>,
        sources: &mut Sources,
        declared_state: &DeclaredState,
        declared: Vec<(Arc<DeclaredSource>, FileSnapshot)>,
    ) -> Result<Vec<SkippedTool>, Error> {
        let added_late = self.has_started();
        let plans = declared
            .into_iter()
            .map(|(source, files)| sources.plan_for(source, files, added_late))
            .collect();
        // Order: first build the new catalog from what is listed already, then start what is new or
        // changed. If the catalog cannot be built, nothing has changed, and no source was started.
        // Until a changed source is listed, its old listing stays in service.
        let before: HashMap<Arc<str>, _> = sources
            .0
            .iter()
            .map(|entry| {
                (
                    entry.status.name.clone(),
                    (entry.declared.clone(), entry.files.clone()),
                )
            })
            .collect();
        let skipped = self.rebuild_catalog(sources, declared_state, plans).await?;
        for entry in &mut sources.0 {
            let same = before.get(&entry.status.name);
            let same = same.is_some_and(|(declared, files)| {
                declared.settings == entry.declared.settings && files.has_same_content(&entry.files)
            });
            match &entry.start {
                // A start of the same settings continues, without a further wait. An unchanged
                // source that is served stays as it is. All others are started; an unchanged source
                // has failed before, so its start waits first.
                Some(start) if same && start.is_running() => start.attempt_now(),
                _ if same && entry.active.is_some() => {}
                _ => {
                    self.start_source(entry, same);
                }
            }
        }
        Ok(skipped)
    }

    fn start_source(self: &Arc<Self>, entry: &mut SourceEntry, wait: bool) -> u64 {
        let start = SourceTask::new(self, &entry.status, &entry.declared.settings, wait);
        let number = start.number;
        entry.start = Some(start);
        number
    }

    /// Builds the catalog of this state and makes it the current one. Then updates the entry of
    /// each source.
    async fn rebuild_catalog(
        self: &Arc<Self>,
        sources: &mut Sources,
        declared_state: &DeclaredState,
        plans: Vec<SourcePlan>,
    ) -> Result<Vec<SkippedTool>, Error> {
        // `replace_catalog` is the last step that can fail, and it stores the catalog as a whole.
        // Everything after it only updates what this module remembers. So the entries of the
        // sources always match the catalog that is served.
        let registered = self
            .load_registered_tools(declared_state.defaults.clone())
            .await?;
        let mut source_tools: Vec<_> = plans.iter().map(SourcePlan::to_source_tools).collect();
        for tool in source_tools.iter_mut().flat_map(|group| {
            group
                .choices
                .iter_mut()
                .flatten()
                .chain(&mut group.fallback)
        }) {
            self.config.apply_deny_list(tool);
        }
        let DeclaredState {
            callers,
            calls,
            tools,
            ..
        } = declared_state;
        let next = DesiredState {
            callers: callers.clone(),
            calls: calls.clone(),
            tools: tools.clone(),
            sources: source_tools,
            registered,
        };
        let Replaced {
            placements,
            skipped,
        } = self.registry.replace_catalog(next).await?;
        let mut before: HashMap<Arc<str>, SourceEntry> = sources
            .0
            .drain(..)
            .map(|entry| (entry.status.name.clone(), entry))
            .collect();
        let entries = plans.into_iter().zip(placements).map(|(plan, placement)| {
            let (start, watch) = before
                .remove(&plan.status.name)
                .map_or((None, None), |entry| (entry.start, entry.watch));
            self.build_entry(plan, placement, start, watch)
        });
        sources.0 = entries.collect();
        self.source_statuses.store(Arc::new(
            sources.0.iter().map(|entry| entry.status.clone()).collect(),
        ));
        self.status_changed.send_replace(());
        Ok(skipped)
    }

    fn build_entry(
        self: &Arc<Self>,
        plan: SourcePlan,
        placement: Placement,
        start: Option<SourceTask>,
        watch: Option<SourceWatch>,
    ) -> SourceEntry {
        let SourcePlan {
            declared,
            files,
            status,
            mut candidates,
            fault,
            needs_status_update,
            mut listed_names,
            ..
        } = plan;
        let Placement {
            choice,
            rejections,
            rejected_tools,
        } = placement;
        let refusal = fault
            .or(rejections.into_iter().next())
            .map(|why| self.sanitize_text(&why));
        let (had_candidates, is_first) = (!candidates.is_empty(), choice == Some(0));
        let active = choice.map(|at| candidates.swap_remove(at));
        match &active {
            // Neither the choice nor the warnings have changed, so the status stays.
            Some(_) if is_first && !needs_status_update => {}
            Some(active) => {
                listed_names = active
                    .listing
                    .tools
                    .iter()
                    .map(|tool| tool.name.clone())
                    .collect();
                let (new_warnings, quarantined) =
                    status.record_served(active, refusal.clone().map(|why| (why, self.now())));
                self.log_warnings(&status.name, &new_warnings, &quarantined);
            }
            None if had_candidates => {
                let why = refusal.clone().unwrap_or_default();
                tracing::error!(
                    source = &*status.name,
                    why,
                    "no tool of a source can be served"
                );
                status.record_nothing_served((why, self.now()));
            }
            None => {}
        }
        let new_warnings = status.record_rejected(
            rejected_tools
                .iter()
                .map(|tool| tool.reason.clone())
                .collect(),
        );
        self.log_warnings(&status.name, &new_warnings, &[]);
        let watch = active.as_ref().map(|active| {
            let same = watch.filter(|watch| watch.is_for(&active.source));
            same.unwrap_or_else(|| SourceWatch::new(self, &status, &active.source))
        });
        SourceEntry {
            declared,
            files,
            status,
            active,
            refusal,
            rejected: rejected_tools,
            listed_names,
            start,
            watch,
        }
    }

    fn log_warnings(&self, source: &str, new_warnings: &[String], quarantined: &[QuarantinedTool]) {
        for warning in new_warnings {
            tracing::warn!(source, "{}", self.sanitize_text(warning));
        }
        for QuarantinedTool { tool, reason: why } in quarantined {
            let why = self.sanitize_text(why);
            tracing::warn!(
                source,
                tool,
                why,
                "a tool is quarantined until `toolcrib pin` approves it"
            );
        }
    }

    fn now(&self) -> Timestamp {
        self.registry.shared().clock.now()
    }

    /// Handles the listing of a start.
    pub(super) async fn apply_listing(
        self: &Arc<Self>,
        name: &str,
        number: u64,
        source: Arc<dyn Source>,
        listed: SourceListing,
    ) -> ApplyOutcome {
        // The source may have been removed or restarted while it was listed. Its settings may have
        // changed, too. Only the latest start may replace what is served.
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let is_stale = |entry: &SourceEntry| {
            entry
                .start
                .as_ref()
                .is_none_or(|start| start.number != number)
        };
        let Some(entry) = state.sources.get(name).filter(|entry| !is_stale(entry)) else {
            return ApplyOutcome::Stale;
        };
        let listing = Arc::new(UsableListing::from_listed(&entry.declared, listed));
        let declared = (entry.declared.clone(), entry.files.clone());
        let outcome = self
            .serve_listing(state, name, declared, source, listing)
            .await;
        if let (ApplyOutcome::Served, Some(entry)) = (&outcome, state.sources.get(name)) {
            entry.status.record_end(number, None, None);
            self.status_changed.send_replace(());
        }
        self.check_tool_lists();
        outcome
    }

    /// Handles a further listing of the served source.
    pub(super) async fn apply_relisting(
        self: &Arc<Self>,
        name: &str,
        source: &Arc<dyn Source>,
        listed: SourceListing,
    ) -> ApplyOutcome {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let Some(entry) = state.sources.get(name) else {
            return ApplyOutcome::Stale;
        };
        let Some(active) = entry
            .active
            .as_ref()
            .filter(|active| Arc::ptr_eq(&active.source, source))
        else {
            return ApplyOutcome::Stale;
        };
        let mut listing = UsableListing::from_listed(&active.declared, listed);
        if listing.has_same_tools(&active.listing) {
            tracing::debug!(
                source = name,
                "a source was listed again: its tools are unchanged"
            );
            entry.status.clear_fault();
            return ApplyOutcome::Served;
        }
        listing.keep_runners(&active.listing);
        // If the current declaration is of other settings or files, a start of it has not ended or
        // has failed. What is served stays under the declaration with which it was started.
        let declared = match active.was_started_with(&entry.declared, &entry.files) {
            true => (entry.declared.clone(), entry.files.clone()),
            false => (active.declared.clone(), active.files.clone()),
        };
        let outcome = self
            .serve_listing(state, name, declared, source.clone(), Arc::new(listing))
            .await;
        self.check_tool_lists();
        outcome
    }

    /// Replaces what is served of this source by this listing.
    async fn serve_listing(
        self: &Arc<Self>,
        state: &mut State,
        name: &str,
        (declared, files): (Arc<DeclaredSource>, FileSnapshot),
        source: Arc<dyn Source>,
        listing: Arc<UsableListing>,
    ) -> ApplyOutcome {
        let Some(entry) = state.sources.get(name) else {
            return ApplyOutcome::Stale;
        };
        let fresh = match ActiveListing::new(
            &declared,
            &files,
            source,
            listing.clone(),
            &entry.listed_names,
        ) {
            Ok(fresh) => fresh,
            Err(UnusableListing {
                why,
                is_lasting: true,
            }) => return ApplyOutcome::Unusable(why),
            Err(UnusableListing { why, .. }) => return ApplyOutcome::Refused(why),
        };
        let mut plans: Vec<SourcePlan> = state
            .sources
            .0
            .iter()
            .map(SourcePlan::for_unchanged)
            .collect();
        for plan in plans.iter_mut().filter(|plan| &*plan.status.name == name) {
            plan.candidates.insert(0, fresh.clone());
            plan.needs_status_update = true;
        }
        match self
            .rebuild_catalog(&mut state.sources, &state.declared_state, plans)
            .await
        {
            Ok(skipped) => log_skipped_tools(&skipped),
            Err(error) => return ApplyOutcome::Refused(error.to_string()),
        }
        self.place_rejected_tools(state).await;
        // This listing may have taken names from another source, so that nothing of that source is
        // served any more. It was listed and no start of it is running, so start it again.
        for entry in state
            .sources
            .0
            .iter_mut()
            .filter(|entry| entry.active.is_none() && !entry.is_starting())
        {
            self.start_source(entry, true);
        }
        let Some(entry) = state.sources.get(name) else {
            return ApplyOutcome::Stale;
        };
        let is_served = entry
            .active
            .as_ref()
            .is_some_and(|active| Arc::ptr_eq(&active.listing, &listing));
        if !is_served {
            return ApplyOutcome::Refused(entry.refusal.clone().unwrap_or_default());
        }
        // The findings themselves are in `/sources`: the author of the tools mends them, and may be
        // another party.
        let findings = Some(fresh.findings.warnings).filter(|warnings| *warnings > 0);
        tracing::info!(
            source = name,
            tools = listing.tools.len(),
            findings,
            "a source was listed"
        );
        ApplyOutcome::Served
    }

    /// Attempts to place the rejected tools: their names may be free now.
    pub(in crate::live) async fn place_rejected_tools(self: &Arc<Self>, state: &mut State) {
        if state
            .sources
            .0
            .iter()
            .any(|entry| !entry.rejected.is_empty())
        {
            let plans = state
                .sources
                .0
                .iter()
                .map(SourcePlan::for_unchanged)
                .collect();
            // Ignore the skipped registered tools: they were logged just before.
            if let Err(error) = self
                .rebuild_catalog(&mut state.sources, &state.declared_state, plans)
                .await
            {
                tracing::error!(%error, "the rejected tools cannot be placed");
            }
        }
    }

    /// Records a failed start. The next attempt follows after `pause`; `None`: after a change, or a
    /// restart on request.
    pub(super) fn record_start_failure(
        &self,
        status: &StatusTracker,
        number: u64,
        why: &str,
        pause: Option<Duration>,
    ) {
        let why = self.sanitize_text(why);
        match pause {
            Some(pause) => {
                let wait_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                tracing::error!(
                    source = &*status.name,
                    why,
                    wait_ms,
                    "a source failed; the next attempt follows"
                );
            }
            None => tracing::error!(
                source = &*status.name,
                why,
                "a source cannot be used; the next attempt follows a change of its file or the manifest, or a restart"
            ),
        }
        status.record_end(number, Some((why, self.now())), pause);
        self.status_changed.send_replace(());
        self.check_tool_lists();
    }

    /// Records that the served source could not be listed again. The next attempt follows after
    /// `pause`.
    pub(super) fn record_relist_failure(&self, status: &StatusTracker, why: &str, pause: Duration) {
        let why = self.sanitize_text(why);
        let wait_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        tracing::error!(
            source = &*status.name,
            why,
            wait_ms,
            "a source could not be listed again; its previous tools stay in service"
        );
        status.record_relist_failure((why, self.now()));
    }

    /// Removes control characters and secrets from a text of a source.
    pub(super) fn sanitize_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        sanitize::clean_in_place(&mut text);
        self.registry.shared().redactor.redact_string(&mut text);
        text
    }

    /// The status of every source.
    pub fn sources(&self) -> Vec<SourceView> {
        let now = self.now();
        let view = |status: &Arc<StatusTracker>| {
            let mut view = status.view(now);
            let texts = view
                .doing
                .iter_mut()
                .chain(&mut view.fault)
                .chain(&mut view.warnings);
            texts.for_each(|text| *text = self.sanitize_text(text));
            view
        };
        self.source_statuses.load().iter().map(view).collect()
    }

    /// The sources for which the service waits before it is ready: not listed and not failed since
    /// the start.
    pub fn awaited_sources(&self) -> Vec<SourceView> {
        let statuses = self.source_statuses.load();
        statuses
            .iter()
            .filter(|status| status.is_awaited())
            .map(|status| status.view(self.now()))
            .collect()
    }

    /// Waits until every source was listed once or failed once.
    pub async fn wait_for_sources(&self) {
        let mut changes = self.status_changed.subscribe();
        loop {
            changes.borrow_and_update();
            if self
                .source_statuses
                .load()
                .iter()
                .all(|status| status.is_settled())
                || changes.changed().await.is_err()
            {
                return;
            }
        }
    }

    /// Starts a source again, beside what is served. Its listing then replaces what is served.
    /// `None`: there is no such source.
    pub async fn restart_source(self: &Arc<Self>, name: &str) -> Option<Restart> {
        let mut state = self.state.lock().await;
        let entry = state.sources.get(name)?;
        let settings = entry.declared.settings.clone();
        entry.files =
            blocking::run_blocking(move || FileSnapshot::from_files(settings.source_files()))
                .await?;
        let number = self.start_source(entry, false);
        Some(Restart {
            status: entry.status.clone(),
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
        let mut changes = self.status_changed.subscribe();
        let ended = async {
            loop {
                changes.borrow_and_update();
                if restart.status.has_ended(restart.number) || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(patience, ended)
            .await
            .ok()
            .map(|()| self.restart_view(restart))
    }

    /// The current status of this source.
    pub fn restart_view(&self, restart: &Restart) -> SourceView {
        let found = self
            .sources()
            .into_iter()
            .find(|view| view.name == restart.status.name);
        found.unwrap_or_else(|| restart.status.view(self.now()))
    }

    /// Restarts the sources whose files have other contents than `now`.
    pub(in crate::live) async fn restart_changed_sources(
        self: &Arc<Self>,
        now: Vec<(Arc<str>, FileSnapshot)>,
    ) {
        let mut state = self.state.lock().await;
        for (name, files) in now {
            if let Some(entry) = state
                .sources
                .get(&name)
                .filter(|entry| !entry.files.has_same_content(&files))
            {
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
        let mut sources = std::mem::take(&mut self.state.lock().await.sources);
        self.registry.clear();
        self.source_statuses.store(Arc::default());
        for watch in sources.0.iter_mut().filter_map(|entry| entry.watch.take()) {
            watch.stop().await;
        }
        drop(sources);
    }
}
