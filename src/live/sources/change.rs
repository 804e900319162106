//! Replaces what is served of a source by a new listing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::source_task::Start;
use super::tools::NotOffered;
use super::{
    ActiveListing, Listing, SourceEntry, SourcePlan, SourceStatusBoard, SourceView, Sources, Stopped, Watching,
};
use crate::blocking;
use crate::live::file_snapshot::FileSnapshot;
use crate::live::reload::warn_of;
use crate::live::{Error, Live, Remembered, State};
use crate::manifest::DeclaredSource;
use crate::registry::{DesiredState, Placement, Replaced, SkippedTool};
use crate::sanitize;
use crate::tools::{Listed, Source};

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
pub struct Restarting {
    board: Arc<SourceStatusBoard>,
    number: u64,
}

/// Reads the files of these sources.
pub(in crate::live) async fn look(declared: Vec<DeclaredSource>) -> Option<Vec<(Arc<DeclaredSource>, FileSnapshot)>> {
    let look = move || {
        let look = |one: DeclaredSource| (Arc::new(one.clone()), FileSnapshot::of(one.settings.files()));
        declared.into_iter().map(look).collect()
    };
    blocking::on_a_thread(look).await
}

impl Sources {
    fn get(&mut self, name: &str) -> Option<&mut SourceEntry> {
        self.0.iter_mut().find(|kept| &*kept.board.name == name)
    }

    /// The files with which the sources were started.
    pub(in crate::live) fn files(&self) -> Vec<(Arc<str>, FileSnapshot)> {
        self.0.iter().map(|kept| (kept.board.name.clone(), kept.files.clone())).collect()
    }

    /// Keeps the newer snapshots of files whose contents are the same. The next poll then need not read them again.
    pub(in crate::live) fn looked(&mut self, now: Vec<(Arc<str>, FileSnapshot)>) {
        for (name, files) in now {
            if let Some(kept) = self.get(&name).filter(|kept| kept.files.says_the_same(&files)) {
                kept.files = files;
            }
        }
    }

    /// The plan for this source under another declaration.
    fn draft(&self, declared: Arc<DeclaredSource>, files: FileSnapshot, late: bool) -> SourcePlan {
        let before = self.0.iter().find(|kept| &*kept.board.name == declared.name());
        SourcePlan::new(before, declared, files, late)
    }
}

impl Live {
    /// Replaces the remembered state and the sources of the manifest. Unchanged sources continue. Other sources are
    /// started beside what is served, and replace it when they are listed.
    pub(in crate::live) async fn put_sources(
        self: &Arc<Self>,
        sources: &mut Sources,
        world: &Remembered,
        declared: Vec<(Arc<DeclaredSource>, FileSnapshot)>,
    ) -> Result<Vec<SkippedTool>, Error> {
        let late = self.has_started();
        let drafts = declared.into_iter().map(|(one, files)| sources.draft(one, files, late)).collect();
        // Order: first build the new catalog from what is listed already, then start what is new or changed. If the
        // catalog cannot be built, nothing has changed, and no source was started. Until a changed source is listed,
        // its old listing stays in service.
        let before: HashMap<Arc<str>, _> = sources
            .0
            .iter()
            .map(|kept| (kept.board.name.clone(), (kept.declared.clone(), kept.files.clone())))
            .collect();
        let aside = self.renew(sources, world, drafts).await?;
        for kept in &mut sources.0 {
            let same = before.get(&kept.board.name);
            let same = same
                .is_some_and(|(one, files)| one.settings == kept.declared.settings && files.says_the_same(&kept.files));
            match &kept.start {
                // A start of the same settings continues, without a further wait. An unchanged source that is served
                // stays as it is. All others are started; an unchanged source has failed before, so its start waits
                // first.
                Some(start) if same && start.is_under_way() => start.try_now(),
                _ if same && kept.serving.is_some() => {}
                _ => {
                    self.begin(kept, same);
                }
            }
        }
        Ok(aside)
    }

    fn begin(self: &Arc<Self>, kept: &mut SourceEntry, wait: bool) -> u64 {
        let start = Start::new(self, &kept.board, &kept.declared.settings, wait);
        let number = start.number;
        kept.start = Some(start);
        number
    }

    /// Builds the catalog of this state and makes it the current one. Then updates the entry of each source.
    async fn renew(
        self: &Arc<Self>,
        sources: &mut Sources,
        world: &Remembered,
        drafts: Vec<SourcePlan>,
    ) -> Result<Vec<SkippedTool>, Error> {
        // `replace` is the last step that can fail, and it stores the catalog as a whole. Everything after it only
        // updates what this module remembers. So the entries of the sources always match the catalog that is served.
        let registered = self.registered(world.defaults.clone()).await?;
        let mut groups: Vec<_> = drafts.iter().map(SourcePlan::group).collect();
        for tool in groups.iter_mut().flat_map(|group| group.choices.iter_mut().flatten().chain(&mut group.otherwise)) {
            self.plan.deny(tool);
        }
        let Remembered { callers, calls, tools, .. } = world;
        let next =
            DesiredState { callers: callers.clone(), calls: calls.clone(), tools: tools.clone(), groups, registered };
        let Replaced { seated, aside } = self.registry.replace(next).await?;
        let mut before: HashMap<Arc<str>, SourceEntry> =
            sources.0.drain(..).map(|kept| (kept.board.name.clone(), kept)).collect();
        let kept = drafts.into_iter().zip(seated).map(|(draft, seated)| {
            let (start, watching) =
                before.remove(&draft.board.name).map_or((None, None), |kept| (kept.start, kept.watching));
            self.settle(draft, seated, start, watching)
        });
        sources.0 = kept.collect();
        self.shown.store(Arc::new(sources.0.iter().map(|kept| kept.board.clone()).collect()));
        self.told.send_replace(());
        Ok(aside)
    }

    fn settle(
        self: &Arc<Self>,
        draft: SourcePlan,
        seated: Placement,
        start: Option<Start>,
        watching: Option<Watching>,
    ) -> SourceEntry {
        let SourcePlan { declared, files, board, mut candidates, fault, is_new, mut listed, .. } = draft;
        let Placement { choice, refused, left_out } = seated;
        let refused = fault.or(refused.into_iter().next()).map(|why| self.clean(&why));
        let (there_were, is_first) = (!candidates.is_empty(), choice == Some(0));
        let serving = choice.map(|at| candidates.swap_remove(at));
        match &serving {
            // Neither the choice nor the warnings have changed, so the status stays.
            Some(_) if is_first && !is_new => {}
            Some(serving) => {
                listed = serving.listing.offers.iter().map(|offer| offer.name.clone()).collect();
                let (odd, stopped) = board.serve(serving, refused.clone().map(|why| (why, self.now())));
                self.say_what_is_odd(&board.name, &odd, &stopped);
            }
            None if there_were => {
                let why = refused.clone().unwrap_or_default();
                tracing::error!(source = &*board.name, why, "nothing of a source can be served");
                board.serve_nothing((why, self.now()));
            }
            None => {}
        }
        let odd = board.leave_out(left_out.iter().map(|out| out.why.clone()).collect());
        self.say_what_is_odd(&board.name, &odd, &[]);
        let watching = serving.as_ref().map(|serving| {
            let same = watching.filter(|watching| watching.is_of(&serving.source));
            same.unwrap_or_else(|| Watching::new(self, &board, &serving.source))
        });
        SourceEntry { declared, files, board, serving, refused, left_out, listed, start, watching }
    }

    fn say_what_is_odd(&self, source: &str, odd: &[String], stopped: &[Stopped]) {
        for warning in odd {
            tracing::warn!(source, "{}", self.clean(warning));
        }
        for Stopped { tool, why } in stopped {
            let why = self.clean(why);
            tracing::warn!(source, tool, why, "a tool is stopped until `toolcrib pin` approves it");
        }
    }

    fn now(&self) -> Timestamp {
        self.registry.shared().clock.now()
    }

    /// Handles the listing of a start.
    pub(super) async fn listed(
        self: &Arc<Self>,
        name: &str,
        number: u64,
        source: Arc<dyn Source>,
        listed: Listed,
    ) -> ApplyOutcome {
        // The source may have been removed or restarted while it was listed. Its settings may have changed, too. Only
        // the latest start may replace what is served.
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let is_stale = |kept: &SourceEntry| kept.start.as_ref().is_none_or(|start| start.number != number);
        let Some(kept) = state.sources.get(name).filter(|kept| !is_stale(kept)) else { return ApplyOutcome::Stale };
        let listing = Arc::new(Listing::of(&kept.declared, listed));
        let declared = (kept.declared.clone(), kept.files.clone());
        let came = self.swap_in(state, name, declared, source, listing).await;
        if let (ApplyOutcome::Served, Some(kept)) = (&came, state.sources.get(name)) {
            kept.board.end(number, None, None);
            self.told.send_replace(());
        }
        self.judge_lists();
        came
    }

    /// Handles a further listing of the served source.
    pub(super) async fn listed_again(
        self: &Arc<Self>,
        name: &str,
        source: &Arc<dyn Source>,
        listed: Listed,
    ) -> ApplyOutcome {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let Some(kept) = state.sources.get(name) else { return ApplyOutcome::Stale };
        let Some(serving) = kept.serving.as_ref().filter(|serving| Arc::ptr_eq(&serving.source, source)) else {
            return ApplyOutcome::Stale;
        };
        let mut listing = Listing::of(&serving.declared, listed);
        if listing.says_the_same(&serving.listing) {
            tracing::debug!(source = name, "a source was listed again: its tools are what they were");
            kept.board.is_as_it_was();
            return ApplyOutcome::Served;
        }
        listing.keep_runners(&serving.listing);
        // If the current declaration is of other settings or files, a start of it is still under way or has failed.
        // What is served stays under the declaration with which it was started.
        let declared = match serving.is_of(&kept.declared, &kept.files) {
            true => (kept.declared.clone(), kept.files.clone()),
            false => (serving.declared.clone(), serving.files.clone()),
        };
        let came = self.swap_in(state, name, declared, source.clone(), Arc::new(listing)).await;
        self.judge_lists();
        came
    }

    /// Replaces what is served of this source by this listing.
    async fn swap_in(
        self: &Arc<Self>,
        state: &mut State,
        name: &str,
        (declared, files): (Arc<DeclaredSource>, FileSnapshot),
        source: Arc<dyn Source>,
        listing: Arc<Listing>,
    ) -> ApplyOutcome {
        let Some(kept) = state.sources.get(name) else { return ApplyOutcome::Stale };
        let fresh = match ActiveListing::new(&declared, &files, source, listing.clone(), &kept.listed) {
            Ok(fresh) => fresh,
            Err(NotOffered { why, is_lasting: true }) => return ApplyOutcome::Unusable(why),
            Err(NotOffered { why, .. }) => return ApplyOutcome::Refused(why),
        };
        let mut drafts: Vec<SourcePlan> = state.sources.0.iter().map(SourcePlan::of).collect();
        for draft in drafts.iter_mut().filter(|draft| &*draft.board.name == name) {
            draft.candidates.insert(0, fresh.clone());
            draft.is_new = true;
        }
        match self.renew(&mut state.sources, &state.world, drafts).await {
            Ok(aside) => warn_of(&aside),
            Err(error) => return ApplyOutcome::Refused(error.to_string()),
        }
        self.seat_left_out(state).await;
        // This listing may have taken names from another source, so that nothing of that source is served any more. It
        // was listed and no start of it is under way, so start it again.
        for kept in state.sources.0.iter_mut().filter(|kept| kept.serving.is_none() && !kept.is_starting()) {
            self.begin(kept, true);
        }
        let Some(kept) = state.sources.get(name) else { return ApplyOutcome::Stale };
        let is_served = kept.serving.as_ref().is_some_and(|serving| Arc::ptr_eq(&serving.listing, &listing));
        if !is_served {
            return ApplyOutcome::Refused(kept.refused.clone().unwrap_or_default());
        }
        tracing::info!(source = name, tools = listing.offers.len(), "a source was listed");
        ApplyOutcome::Served
    }

    /// Attempts to place the tools that were left out: their names may be free now.
    pub(in crate::live) async fn seat_left_out(self: &Arc<Self>, state: &mut State) {
        if state.sources.0.iter().any(|kept| !kept.left_out.is_empty()) {
            let drafts = state.sources.0.iter().map(SourcePlan::of).collect();
            // Ignore the registered tools that are set aside: they were logged just before.
            if let Err(error) = self.renew(&mut state.sources, &state.world, drafts).await {
                tracing::error!(%error, "what was left out cannot be looked at again");
            }
        }
    }

    /// Notes a failed start. The next attempt follows after `pause`; `None`: after a change, or a restart on request.
    pub(super) fn failed(&self, board: &SourceStatusBoard, number: u64, why: &str, pause: Option<Duration>) {
        let why = self.clean(why);
        match pause {
            Some(pause) => {
                let wait_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                tracing::error!(source = &*board.name, why, wait_ms, "a source failed; it is tried again");
            }
            None => tracing::error!(
                source = &*board.name,
                why,
                "a source cannot be used; it is tried again when its file or the manifest has changed, or when it is restarted"
            ),
        }
        board.end(number, Some((why, self.now())), pause);
        self.told.send_replace(());
        self.judge_lists();
    }

    /// Notes that the served source could not be listed again. The next attempt follows after `pause`.
    pub(super) fn failed_again(&self, board: &SourceStatusBoard, why: &str, pause: Duration) {
        let why = self.clean(why);
        let wait_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        tracing::error!(
            source = &*board.name,
            why,
            wait_ms,
            "a source could not be listed again; what it had is served on"
        );
        board.failed_again((why, self.now()));
    }

    /// Removes control characters and secrets from a text of a source.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        sanitize::string(&mut text);
        self.registry.shared().redactor.string(&mut text);
        text
    }

    /// The status of every source.
    pub fn sources(&self) -> Vec<SourceView> {
        let now = self.now();
        let view = |board: &Arc<SourceStatusBoard>| {
            let mut view = board.view(now);
            let said = view.doing.iter_mut().chain(&mut view.fault).chain(&mut view.warnings);
            said.for_each(|text| *text = self.clean(text));
            view
        };
        self.shown.load().iter().map(view).collect()
    }

    /// The sources for which the service waits before it is ready: not listed and not failed since the start.
    pub fn awaited(&self) -> Vec<SourceView> {
        let boards = self.shown.load();
        boards.iter().filter(|board| board.is_awaited()).map(|board| board.view(self.now())).collect()
    }

    /// Waits until every source was listed once or failed once.
    pub async fn sources_listed(&self) {
        let mut told = self.told.subscribe();
        loop {
            told.borrow_and_update();
            if self.shown.load().iter().all(|board| board.is_settled()) || told.changed().await.is_err() {
                return;
            }
        }
    }

    /// Starts a source again, beside what is served. Its listing then replaces what is served. `None`: there is no such
    /// source.
    pub async fn restart(self: &Arc<Self>, name: &str) -> Option<Restarting> {
        let mut state = self.state.lock().await;
        let kept = state.sources.get(name)?;
        let settings = kept.declared.settings.clone();
        kept.files = blocking::on_a_thread(move || FileSnapshot::of(settings.files())).await?;
        let number = self.begin(kept, false);
        Some(Restarting { board: kept.board.clone(), number })
    }

    /// Waits until this start has ended, well or not, and returns the status. `None` after `patience`.
    pub async fn restarted(&self, one: &Restarting, patience: Duration) -> Option<SourceView> {
        let mut told = self.told.subscribe();
        let ended = async {
            loop {
                told.borrow_and_update();
                if one.board.has_ended(one.number) || told.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(patience, ended).await.ok().map(|()| self.view(one))
    }

    /// The current status of this source.
    pub fn view(&self, one: &Restarting) -> SourceView {
        let found = self.sources().into_iter().find(|view| view.name == one.board.name);
        found.unwrap_or_else(|| one.board.view(self.now()))
    }

    /// Restarts the sources whose files have other contents than `now`.
    pub(in crate::live) async fn restart_changed(self: &Arc<Self>, now: Vec<(Arc<str>, FileSnapshot)>) {
        let mut state = self.state.lock().await;
        for (name, files) in now {
            if let Some(kept) = state.sources.get(&name).filter(|kept| !kept.files.says_the_same(&files)) {
                tracing::info!(source = &*name, "files of a source have changed: it is started anew");
                kept.files = files;
                self.begin(kept, false);
            }
        }
    }

    /// Drops every source and every tool. Their runners end with the last running call.
    pub async fn stop_sources(&self) {
        let mut sources = std::mem::take(&mut self.state.lock().await.sources);
        self.registry.clear();
        self.shown.store(Arc::default());
        for watching in sources.0.iter_mut().filter_map(|kept| kept.watching.take()) {
            watching.end().await;
        }
        drop(sources);
    }
}
