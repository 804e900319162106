//! Changes what is served of the sources. Each change builds the next catalog from the declared
//! state and from a plan for each source, and tells each source what is served of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::active_listing::{ActiveListing, UnusableListing};
use super::entry::{SourceEntry, SourceTasks, Sources, StartTask, WatchTask};
use super::live_source::{LiveSource, Warnings};
use super::plan::SourcePlan;
use super::states::{Event, Fault, Lifecycle, ServedListing};
use super::tasks::Applied;
use super::tools::{QuarantinedTool, shown_name};
use crate::call::ToolName;
use crate::catalog::registry::{Allocation, DesiredState, Placement, SkippedTool};
use crate::manifest::DeclaredSource;
use crate::sources::live::file_snapshot::FileSnapshot;
use crate::sources::live::live_tools::{DeclaredState, LiveTools, State};
use crate::sources::live::registration::log_skipped_tools;
use crate::sources::live::reload::Error;
use crate::sources::{DiscoveredTool, Source, SourceListing, ToolDefinitionSnapshot};

impl LiveTools {
    /// Replaces the declared state and the sources of the manifest. Unchanged sources continue.
    /// Other sources are started beside what is served, and replace it when they are listed.
    pub(in crate::sources::live) async fn replace_sources(
        self: &Arc<Self>,
        sources: &mut Sources,
        declared_state: &DeclaredState,
        declared: Vec<(Arc<DeclaredSource>, FileSnapshot)>,
    ) -> Result<Vec<SkippedTool>, Error> {
        // Order: first build the new catalog from what is listed already, then start what is new or
        // changed. If the catalog cannot be built, nothing has changed, and no source was started.
        // Until a changed source is listed, its old listing stays in service.
        let declaration = |entry: &SourceEntry| {
            let declared = (entry.declared.clone(), entry.files.clone());
            (entry.source.name.clone(), declared)
        };
        let before: HashMap<Arc<str>, _> = sources.0.iter().map(declaration).collect();
        let plans = SourcePlan::for_declared(sources, declared, self.has_started());
        let skipped = self.rebuild_catalog(sources, declared_state, plans).await?;
        for entry in &mut sources.0 {
            let same = before.get(&entry.source.name);
            let same = same.is_some_and(|(declared, files)| {
                declared.settings == entry.declared.settings && *files == entry.files
            });
            match &entry.tasks.start {
                // A start of the same settings continues, without a further wait. An unchanged
                // source that is served stays as it is. All others are started; an unchanged source
                // has failed before, so its start waits first.
                Some(start) if same && entry.source.read(Lifecycle::has_unfinished_start) => {
                    start.wake_up.notify_waiters();
                }
                _ if same && entry.source.read(Lifecycle::active).is_some() => {}
                _ => {
                    self.start_source(entry, same);
                }
            }
        }
        Ok(skipped)
    }

    /// Starts a source, beside what is served of it. Returns the number of the start.
    pub(super) fn start_source(self: &Arc<Self>, entry: &mut SourceEntry, wait: bool) -> u64 {
        let settings = &entry.declared.settings;
        let (start, number) = StartTask::spawn(self, &entry.source, settings, wait);
        entry.tasks.start = Some(start);
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
        for tools in &mut source_tools {
            let choices = tools.choices.iter_mut().flatten();
            for tool in choices.chain(&mut tools.fallback) {
                self.config.apply_deny_list(tool);
            }
        }
        let next = DesiredState {
            callers: declared_state.callers.clone(),
            calls: declared_state.calls.clone(),
            tools: declared_state.tools.clone(),
            sources: source_tools,
            registered,
        };
        let Allocation {
            placements,
            skipped,
        } = self.registry.replace_catalog(next).await?;
        let mut before = std::mem::take(&mut sources.0);
        for (plan, placement) in plans.into_iter().zip(placements) {
            let at = before
                .iter()
                .position(|entry| Arc::ptr_eq(&entry.source, &plan.source));
            let tasks = at.map(|at| before.swap_remove(at).tasks);
            let entry = self.build_entry(plan, placement, tasks.unwrap_or_default());
            sources.0.push(entry);
        }
        for removed in before {
            removed.source.apply(Event::Removed);
        }
        let live_sources = sources.0.iter().map(|entry| entry.source.clone());
        self.live_sources.store(Arc::new(live_sources.collect()));
        self.status_changed.send_replace(());
        Ok(skipped)
    }

    /// Tells the source what is served of it, and watches what is served.
    fn build_entry(
        self: &Arc<Self>,
        plan: SourcePlan,
        placement: Placement,
        mut tasks: SourceTasks,
    ) -> SourceEntry {
        let source = plan.source;
        let fault = plan.fault.or(placement.rejections.into_iter().next());
        let fault = fault.map(|why| self.new_fault(&why, false));
        let choice = placement.choice;
        let active = choice.and_then(|at| plan.candidates.get(at)).cloned();
        let event = match (&active, fault) {
            (Some(active), fault) => Some(Event::Placed {
                active: active.clone(),
                rejected: placement.rejected_tools,
                fault,
            }),
            (None, Some(fault)) => {
                tracing::error!(
                    source = &*source.name,
                    why = fault.why,
                    "no tool of a source can be served"
                );
                Some(Event::Displaced(fault))
            }
            // The source was not listed yet.
            (None, None) => None,
        };
        if let Some(event) = event {
            self.log_warnings(&source.name, source.apply(event));
        }
        tasks.watch = active.map(|active| {
            let same = tasks
                .watch
                .filter(|watch| Arc::ptr_eq(&watch.source, &active.source));
            same.unwrap_or_else(|| WatchTask::spawn(self, &source, &active.source))
        });
        SourceEntry {
            declared: plan.declared,
            files: plan.files,
            source,
            tasks,
        }
    }

    fn log_warnings(&self, source: &str, new: Warnings) {
        for warning in new.texts {
            tracing::warn!(source, "{}", self.sanitize_text(&warning));
        }
        for QuarantinedTool { tool, reason, .. } in new.quarantined {
            let why = self.sanitize_text(&reason);
            tracing::warn!(
                source,
                tool,
                why,
                "a tool is quarantined until `toolcrib pin` approves it"
            );
        }
    }

    fn new_fault(&self, why: &str, is_unverified: bool) -> Fault {
        Fault {
            why: self.sanitize_text(why),
            at: self.now(),
            is_unverified,
        }
    }

    /// Handles the listing of a start.
    pub(super) async fn apply_listing(
        self: &Arc<Self>,
        source: &Arc<LiveSource>,
        start: u64,
        instance: Arc<dyn Source>,
        listed: SourceListing,
    ) -> Result<Applied, UnusableListing> {
        // The source may have been removed or restarted while it was listed. Its settings may have
        // changed, too. Only the latest start may replace what is served.
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let Some(entry) = state.sources.find(source) else {
            return Ok(Applied::Stale);
        };
        if !source.read(|lifecycle| lifecycle.latest_start == start) {
            return Ok(Applied::Stale);
        }
        let listing = Arc::new(listed.without_invalid_names(&entry.declared));
        let declared = (entry.declared.clone(), entry.files.clone());
        let outcome = self
            .serve_listing(state, source, declared, instance, listing)
            .await;
        if outcome.is_ok() {
            source.apply(Event::StartServed(start));
            self.status_changed.send_replace(());
        }
        self.check_tool_lists();
        outcome.map(|()| Applied::Served)
    }

    /// Handles a further listing of the served source.
    pub(super) async fn apply_relisting(
        self: &Arc<Self>,
        source: &Arc<LiveSource>,
        instance: &Arc<dyn Source>,
        listed: SourceListing,
    ) -> Result<Applied, UnusableListing> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let Some(entry) = state.sources.find(source) else {
            return Ok(Applied::Stale);
        };
        let active = source.read(Lifecycle::active);
        let Some(active) = active.filter(|active| Arc::ptr_eq(&active.source, instance)) else {
            return Ok(Applied::Stale);
        };
        let mut listing = listed.without_invalid_names(&active.declared);
        if listing.has_same_tools(&active.listing) {
            tracing::debug!(
                source = &*source.name,
                "a source was listed again: its tools are unchanged"
            );
            source.apply(Event::Relisted(instance.clone()));
            return Ok(Applied::Served);
        }
        listing.keep_runners(&active.listing);
        // If the current declaration is of other settings or files, a start of it has not ended or
        // has failed. What is served stays under the declaration with which it was started.
        let declared = match active.was_started_with(&entry.declared, &entry.files) {
            true => (entry.declared.clone(), entry.files.clone()),
            false => (active.declared.clone(), active.files.clone()),
        };
        let outcome = self
            .serve_listing(state, source, declared, instance.clone(), Arc::new(listing))
            .await;
        if outcome.is_ok() {
            source.apply(Event::Relisted(instance.clone()));
        }
        self.check_tool_lists();
        outcome.map(|()| Applied::Served)
    }

    /// Replaces what is served of this source by this listing.
    async fn serve_listing(
        self: &Arc<Self>,
        state: &mut State,
        source: &Arc<LiveSource>,
        (declared, files): (Arc<DeclaredSource>, FileSnapshot),
        instance: Arc<dyn Source>,
        listing: Arc<SourceListing>,
    ) -> Result<(), UnusableListing> {
        let before = source.read(|lifecycle| lifecycle.listed_names.clone());
        let fresh = ActiveListing::new(&declared, &files, instance, listing, &before)?;
        let fresh = Arc::new(fresh);
        let mut plans = SourcePlan::for_unchanged(&state.sources);
        for plan in &mut plans {
            if Arc::ptr_eq(&plan.source, source) {
                plan.prefer(fresh.clone());
            }
        }
        let rebuilt = self
            .rebuild_catalog(&mut state.sources, &state.declared_state, plans)
            .await;
        log_skipped_tools(&rebuilt.map_err(|error| error.to_string())?);
        self.place_rejected_tools(state).await;
        // This listing may have taken names from another source, so that nothing of that source is
        // served any more. If its latest start succeeded, start it again. Otherwise that start is
        // repeated, or waits for a change.
        for entry in &mut state.sources.0 {
            if entry.source.read(Lifecycle::active).is_none()
                && !entry.source.read(Lifecycle::has_unfinished_start)
            {
                self.start_source(entry, true);
            }
        }
        let is_fresh = |active: Arc<ActiveListing>| Arc::ptr_eq(&active.listing, &fresh.listing);
        if !source.read(Lifecycle::active).is_some_and(is_fresh) {
            let why = source.read(|lifecycle| lifecycle.fault().map(|fault| fault.why.clone()));
            return Err(why.unwrap_or_default().into());
        }
        // The findings themselves are in `/sources`: the author of the tools mends them, and may be
        // another party.
        let findings = Some(fresh.findings.warnings).filter(|warnings| *warnings > 0);
        tracing::info!(
            source = &*source.name,
            tools = fresh.listing.tools.len(),
            findings,
            "a source was listed"
        );
        Ok(())
    }

    /// Attempts to place the rejected tools: their names may be free now.
    pub(in crate::sources::live) async fn place_rejected_tools(
        self: &Arc<Self>,
        state: &mut State,
    ) {
        let (sources, declared_state) = (&mut state.sources, &state.declared_state);
        let has_rejected = |entry: &SourceEntry| {
            let is_any = |served: &ServedListing| !served.rejected.is_empty();
            entry
                .source
                .read(|lifecycle| lifecycle.served().is_some_and(is_any))
        };
        if sources.0.iter().any(has_rejected) {
            let plans = SourcePlan::for_unchanged(sources);
            // Ignore the skipped registered tools: they were logged just before.
            if let Err(error) = self.rebuild_catalog(sources, declared_state, plans).await {
                tracing::error!(%error, "the rejected tools cannot be placed");
            }
        }
    }

    /// Builds the catalog again with the switches and the registered tools of the ledger, which
    /// another replica has changed.
    ///
    /// # Errors
    /// Why the current catalog stays.
    pub(crate) async fn reload_shared_tools(self: &Arc<Self>) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let plans = SourcePlan::for_unchanged(&state.sources);
        let skipped = self
            .rebuild_catalog(&mut state.sources, &state.declared_state, plans)
            .await?;
        log_skipped_tools(&skipped);
        self.check_tool_lists();
        Ok(())
    }

    /// Records a failed start. The next attempt follows after `pause`; `None`: after a change, or a
    /// restart on request.
    pub(super) fn record_start_failure(
        &self,
        source: &LiveSource,
        start: u64,
        why: &str,
        pause: Option<Duration>,
    ) {
        let fault = self.new_fault(why, false);
        let (name, why) = (&*source.name, &fault.why);
        match pause {
            Some(pause) => tracing::error!(
                source = name,
                why,
                wait_ms = whole_millis(pause),
                "a source failed; the next attempt follows"
            ),
            None => tracing::error!(
                source = name,
                why,
                "a source cannot be used; the next attempt follows a change of its file or the manifest, or a restart"
            ),
        }
        source.apply(Event::StartFailed {
            start,
            fault,
            next_attempt: pause,
        });
        self.status_changed.send_replace(());
        self.check_tool_lists();
    }

    /// Records that the served source could not be listed again. The next attempt follows after
    /// `pause`.
    pub(super) fn record_relisting_failure(
        &self,
        source: &LiveSource,
        instance: &Arc<dyn Source>,
        why: &str,
        pause: Duration,
    ) {
        let fault = self.new_fault(why, true);
        tracing::error!(
            source = &*source.name,
            why = fault.why,
            wait_ms = whole_millis(pause),
            "a source could not be listed again; its previous tools stay in service"
        );
        source.apply(Event::RelistingFailed(instance.clone(), fault));
    }
}

fn whole_millis(pause: Duration) -> u64 {
    u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
}

impl SourceListing {
    /// Leaves out the tools of a foreign source whose names are invalid, because the operator
    /// cannot rename them. Tools of other sources are all kept, so that their author sees the error
    /// at once.
    pub(super) fn without_invalid_names(mut self, declared: &DeclaredSource) -> Self {
        let prefix = &declared.rules.prefix;
        for tool in std::mem::take(&mut self.tools) {
            match ToolName::parse(&format!("{prefix}{}", tool.name)) {
                Err(error) if declared.settings.may_lose_tools() => {
                    let shown = shown_name(&tool.name);
                    self.warnings.push(format!(
                        "the tool `{shown}` is left out: {error}, `{prefix}` included; rename it on its server, or add it to \
                         `exclude` to silence this warning"
                    ));
                    self.skipped_names.push(tool.name);
                }
                Ok(_) | Err(_) => self.tools.push(tool),
            }
        }
        self
    }

    /// Whether another listing has the same tools and warnings. Their runners may differ.
    pub(super) fn has_same_tools(&self, other: &Self) -> bool {
        let same = self.tools.len() == other.tools.len() && self.warnings == other.warnings;
        same && self
            .tools
            .iter()
            .zip(&other.tools)
            .all(|(one, other)| is_same_tool(one, other) && has_same_key_order(one, other))
    }

    /// Takes over the runners of unchanged tools from an earlier listing of the same source. Equal
    /// runners let the tools keep their stacks.
    pub(super) fn keep_runners(&mut self, before: &Self) {
        for tool in &mut self.tools {
            if let Some(same) = before
                .tools
                .iter()
                .find(|before| is_same_tool(before, tool))
            {
                tool.runner = same.runner.clone();
                tool.snapshot.clone_from(&same.snapshot);
            }
        }
    }
}

/// JSON objects are equal regardless of order, but a model reads the members in their order.
fn has_same_key_order(one: &DiscoveredTool, other: &DiscoveredTool) -> bool {
    let text = |tool: &DiscoveredTool| {
        json!([
            tool.input_schema,
            tool.output_schema,
            tool.annotations,
            tool.meta
        ])
        .to_string()
    };
    text(one) == text(other)
}

fn is_same_tool(one: &DiscoveredTool, other: &DiscoveredTool) -> bool {
    let DiscoveredTool {
        name,
        description,
        input_schema,
        output_schema,
        schema_owner,
        effect,
        tags,
        annotations,
        meta,
        result_as_answer,
        max_calls,
        env,
        runner: _,
        snapshot,
    } = one;
    let fingerprint = |snapshot: &Option<ToolDefinitionSnapshot>| {
        snapshot
            .as_ref()
            .map(|snapshot| snapshot.fingerprint.clone())
    };
    (name, description, input_schema) == (&other.name, &other.description, &other.input_schema)
        && (output_schema, annotations) == (&other.output_schema, &other.annotations)
        && (schema_owner, effect, tags) == (&other.schema_owner, &other.effect, &other.tags)
        && *meta == other.meta
        && (result_as_answer, max_calls, env) == (&other.result_as_answer, &other.max_calls, &other.env)
        // The fingerprint covers the definition before secrets are removed. A change of a removed
        // part is found only here.
        && fingerprint(snapshot) == fingerprint(&other.snapshot)
}
